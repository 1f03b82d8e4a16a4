"""Charts as figures on a plane: the templates draw them as SVG, and as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from relay.dashboard.marks import Mark, clock, labels_at, place_marks
from relay.dashboard.plane import BASE, HEIGHT, LEFT, TOP, WIDTH
from relay.dashboard.words import NOTHING, span
from relay.queries.documents import MarkDocument

__all__ = [
    "OUTCOMES",
    "Bar",
    "Chart",
    "Line",
    "Spark",
    "Step",
    "jobs_chart",
    "share_chart",
    "spark_of",
    "times_chart",
]

# Of a sparkline, whose steps are one wide.
SPARK_HEIGHT: Final = 16

OUTCOMES: Final = {
    "completed": gettext_lazy("completed"),
    "failed": gettext_lazy("failed"),
    "cancelled": gettext_lazy("cancelled"),
    "retried": gettext_lazy("retried"),
}
_QUANTILES: Final = {"p50": "p50", "p95": "p95", "p99": "p99"}
_SHARE: Final = {"share": gettext_lazy("failed of those that ended")}

_Rows = Sequence[Mapping[str, Any]]
_Marks = Sequence[MarkDocument]


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle of the class that its name says."""

    name: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Line:
    """A path of the class that its name says."""

    name: str
    line: str


@dataclass(frozen=True, slots=True)
class Step:
    """A column of the plane, and what is said of it to who points at it."""

    x: float
    width: float
    middle: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """All that a template needs to draw a chart, and the table behind it."""

    id: str
    text: str
    most: str
    begins: str
    ends: str
    legend: Sequence[Mapping[str, Any]]
    rows: _Rows
    steps: Sequence[Step]
    marks: Sequence[Mark] = ()
    bars: Sequence[Bar] = ()
    lines: Sequence[Line] = ()
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    top: int = TOP
    base: int = BASE


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """A line of how many attempts ended in each step, small enough for a table.

    Attributes:
        text: the same in words.
        line: its path; empty where nothing ended.
    """

    text: str
    line: str
    width: int
    height: int = SPARK_HEIGHT


def spark_of(steps: Sequence[Mapping[str, int]]) -> Spark:
    """Return the sparkline of a queue's last hour; no steps are an hour of nothing."""
    counts = [sum(step.get(name, 0) for name in OUTCOMES) for step in steps]
    most = max(counts, default=0)
    text = _("{count} attempts ended in the last hour, at most {most} in a minute")
    points = [
        f"{place} {SPARK_HEIGHT - 1 - round((SPARK_HEIGHT - 2) * count / most)}"
        for place, count in enumerate(counts)
        if most
    ]
    return Spark(
        text=text.format(count=f"{sum(counts):,}", most=f"{most:,}"),
        line=f"M{'L'.join(points)}" if points else "",
        width=max(1, len(counts) - 1),
    )


def jobs_chart(rows: _Rows, id: str = "jobs", marks: _Marks = ()) -> Chart:
    """Return how many attempts ended how, one stack of bars a step."""
    most = max((sum(row[name] for name in OUTCOMES) for row in rows), default=0)
    step = (WIDTH - LEFT) / max(1, len(rows))
    bars: list[Bar] = []
    for place, row in enumerate(rows):
        base = float(BASE)
        for name in OUTCOMES:
            height = (BASE - TOP) * row[name] / most if most else 0
            if height:
                base -= height
                x = LEFT + step * place
                bars.append(_bar(name, x, base, step * 0.8, height))
    totals = {name: sum(row[name] for row in rows) for name in OUTCOMES}
    told = ", ".join(f"{count:,} {OUTCOMES[name]}" for name, count in totals.items())
    return _chart(
        rows,
        marks,
        names=OUTCOMES,
        shown=lambda row, name: f"{row[name]:,}",
        said=lambda row, name: f"{row[name]:,} {OUTCOMES[name]}" if row[name] else "",
        id=id,
        text=_("Attempts that ended: {told}").format(told=told),
        most=f"{most:,}",
        bars=bars,
    )


def times_chart(
    rows: _Rows,
    what: Literal["run", "wait"],
    id: str | None = None,
    marks: _Marks = (),
) -> Chart:
    """Return how long attempts ran, or had waited: a line for each quantile."""
    known = [row[what][name] for row in rows for name in _QUANTILES]
    most = max((value for value in known if value is not None), default=0.0)
    text = _("How long jobs waited") if what == "wait" else _("How long jobs ran")
    return _chart(
        rows,
        marks,
        names=_QUANTILES,
        shown=lambda row, name: span(row[what][name]),
        said=lambda row, name: (
            "" if row[what][name] is None else f"{name} {span(row[what][name])}"
        ),
        id=id or what,
        text=_("{what}: up to {most}").format(what=text, most=span(most)),
        most=span(most),
        lines=[
            Line(name, _path([row[what][name] for row in rows], most))
            for name in _QUANTILES
        ],
    )


def share_chart(rows: _Rows, id: str = "share", marks: _Marks = ()) -> Chart:
    """Return which share of the jobs that ended had failed."""
    shares = {row["at"]: _share(row) for row in rows}
    most = max((each for each in shares.values() if each is not None), default=0.0)
    text = _("Share that failed")
    return _chart(
        rows,
        marks,
        names=_SHARE,
        shown=lambda row, _name: _percent(shares[row["at"]]),
        said=lambda row, _name: (
            "" if shares[row["at"]] is None else _percent(shares[row["at"]])
        ),
        id=id,
        text=_("{what}: up to {most}").format(what=text, most=_percent(most)),
        most=_percent(most),
        lines=[Line("share", _path(list(shares.values()), most))],
    )


def _chart(
    rows: _Rows,
    marks: _Marks,
    *,
    names: Mapping[str, Any],
    shown: Callable[[Mapping[str, Any], str], str],
    said: Callable[[Mapping[str, Any], str], str],
    text: str,
    **values: Any,
) -> Chart:
    """Return a chart with what all have.

    Args:
        shown: of a row and a name, what the table says.
        said: the same for who points at the step; empty for nothing.
    """
    starts = [row["at"] for row in rows]
    at = labels_at(starts, marks)
    told = ", ".join(f"{each['label']} ({clock(each['at'])})" for each in marks)
    steps = [
        (clock(row["at"]), [*filter(None, (said(row, name) for name in names))])
        for row in rows
    ]
    return Chart(
        text=f"{text}. {_('Marks: {told}').format(told=told)}" if told else text,
        legend=[{"name": name, "label": label} for name, label in names.items()],
        rows=[
            {
                "at": row["at"],
                "marks": at[place],
                "shown": [shown(row, name) for name in names],
            }
            for place, row in enumerate(rows)
        ],
        steps=list(_steps(steps, at)),
        marks=place_marks(starts, marks),
        begins=clock(starts[0]) if starts else "",
        ends=clock(starts[-1]) if starts else "",
        **values,
    )


def _steps(
    steps: Sequence[tuple[str, list[str]]], marks: Sequence[Sequence[str]]
) -> Iterable[Step]:
    width = (WIDTH - LEFT) / max(1, len(steps))
    for place, (begins, said) in enumerate(steps):
        x = LEFT + width * place
        told = ", ".join(said) or NOTHING
        text = " · ".join([f"{begins}: {told}", *marks[place]])
        yield Step(round(x, 1), round(width, 1), round(x + width / 2, 1), text)


def _share(row: Mapping[str, Any]) -> float | None:
    ended: int = row["completed"] + row["failed"] + row["cancelled"]
    return row["failed"] / ended if ended else None


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share:.1%}"


def _bar(name: str, x: float, y: float, width: float, height: float) -> Bar:
    return Bar(name, round(x, 1), round(y, 1), round(width, 1), round(height, 1))


def _path(values: Sequence[float | None], most: float) -> str:
    """Return a line through what is known: it is broken where nothing is."""
    step = (WIDTH - LEFT) / max(1, len(values))
    parts: list[str] = []
    is_open = False
    for place, value in enumerate(values):
        if value is None:
            is_open = False
            continue
        y = BASE - ((BASE - TOP) * value / most if most else 0)
        x = LEFT + step * (place + 0.5)
        # A point alone is a short stroke.
        parts.append(f"L{x:.1f} {y:.1f}" if is_open else f"M{x - 1:.1f} {y:.1f}h1")
        is_open = True
    return "".join(parts)

"""Charts as figures on a plane: the templates draw them as SVG, and as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from relay.dashboard.words import span

__all__ = [
    "OUTCOMES",
    "Bar",
    "Chart",
    "Line",
    "Spark",
    "jobs_chart",
    "spark_of",
    "times_chart",
]

WIDTH: Final = 640
HEIGHT: Final = 180
# Of the plane: what is left for the words around it.
LEFT: Final = 60
TOP: Final = 14
BASE: Final = 152
# Of a sparkline, whose steps are one wide.
SPARK_HEIGHT: Final = 16

OUTCOMES: Final = {
    "completed": gettext_lazy("completed"),
    "failed": gettext_lazy("failed"),
    "cancelled": gettext_lazy("cancelled"),
    "retried": gettext_lazy("retried"),
}
_QUANTILES: Final = {"p50": "p50", "p95": "p95", "p99": "p99"}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """All that a template needs to draw a chart, and the table behind it."""

    id: str
    text: str
    most: str
    begins: str
    ends: str
    legend: Sequence[Mapping[str, Any]]
    rows: Sequence[Mapping[str, Any]]
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


def jobs_chart(rows: Sequence[Mapping[str, Any]], id: str = "jobs") -> Chart:
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
    return Chart(
        id=id,
        text=_("Attempts that ended: {told}").format(told=told),
        most=f"{most:,}",
        legend=_legend(OUTCOMES),
        rows=[_row(row, (f"{row[name]:,}" for name in OUTCOMES)) for row in rows],
        bars=bars,
        begins=_clock(rows[0]["at"]) if rows else "",
        ends=_clock(rows[-1]["at"]) if rows else "",
    )


def times_chart(
    rows: Sequence[Mapping[str, Any]],
    what: Literal["run", "wait"],
    id: str | None = None,
) -> Chart:
    """Return how long attempts ran, or had waited: a line for each quantile."""
    known = [row[what][name] for row in rows for name in _QUANTILES]
    most = max((value for value in known if value is not None), default=0.0)
    lines = [
        Line(name, _path([row[what][name] for row in rows], most))
        for name in _QUANTILES
    ]
    text = _("How long jobs waited") if what == "wait" else _("How long jobs ran")
    return Chart(
        id=id or what,
        text=_("{what}: up to {most}").format(what=text, most=span(most)),
        most=span(most),
        legend=_legend(_QUANTILES),
        rows=[_row(row, (span(row[what][n]) for n in _QUANTILES)) for row in rows],
        lines=lines,
        begins=_clock(rows[0]["at"]) if rows else "",
        ends=_clock(rows[-1]["at"]) if rows else "",
    )


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


def _legend(names: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [{"name": name, "label": label} for name, label in names.items()]


def _row(row: Mapping[str, Any], shown: Iterable[str]) -> Mapping[str, Any]:
    return {"at": row["at"], "shown": list(shown)}


def _clock(text: str) -> str:
    at = parse_datetime(text)
    if at is None:
        return text
    return f"{timezone.localtime(at):%m-%d %H:%M}"

"""A bar chart of one run: python -m bench.chart bench/out/latest.json chart.svg."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from math import floor, log10
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from bench.table import number

__all__ = ["chart", "main"]

# A row of the run, and what the chart calls it.
GROUPS = {
    "enqueue, one by one": "enqueue, one by one",
    "enqueue, 1,000 a call": "enqueue, 1,000 a call",
    "drain, 1 process, function": "drain, 1 process",
    "drain, 2 processes, function": "drain, 2 processes",
}
# Clear against white and against near black.
COLOURS = ("#2f81f7", "#8b949e", "#e3872d", "#3fa45b", "#b65fcf", "#c9510c")
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f; }
.title { font-weight: 600; font-size: 15px; }
.note { font-size: 11px; fill: #57606a; }
.grid { stroke: #d0d7de; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .note { fill: #9198a1; } .grid { stroke: #3d444d; }
}
"""
WIDTH, LEFT, RIGHT = 860, 190, 90
TOP, BAR, GAP, FOOT = 84, 17, 22, 46


def chart(report: Mapping[str, Any]) -> str:
    """Return the SVG: jobs per second of relay, the ceiling and rivals, log scale.

    Raises:
        ValueError: the run has none of the rows that the chart shows.
    """
    groups = list(_groups(report))
    if not groups:
        raise ValueError(
            f"no row to draw: run python -m bench with any of {', '.join(GROUPS)}"
        )
    names = list(dict.fromkeys(name for _, bars in groups for name in bars))
    colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(names)}
    values = [value for _, bars in groups for value in bars.values()]
    low, high = 10 ** max(0, floor(log10(min(values)))), max(values)
    height = TOP + sum(GAP + BAR * len(bars) for _, bars in groups) + FOOT

    def place(value: float) -> float:
        share = log10(value / low) / log10(high / low) if high > low else 1.0
        return LEFT + (WIDTH - LEFT - RIGHT) * share

    body = [
        *_legend(colours),
        *_scale(low, high, place, height),
        *_bars(groups, colours, place),
        _text(LEFT, height - 12, _note(report["machine"]), "note"),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-label="Jobs per second of relay and others">\n'
        f"<style>{STYLE}</style>\n" + "\n".join(body) + "\n</svg>\n"
    )


def _groups(report: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, float]]]:
    for result in report["results"].values():
        for row in result["rows"]:
            if row["work"] in GROUPS:
                bars = {"relay": row["relay"]["median"]}
                if "ceiling" in row:
                    bars["PostgreSQL alone"] = row["ceiling"]["median"]
                for name, rival in row["rivals"].items():
                    bars[name] = rival["median"]
                yield GROUPS[row["work"]], bars


def _legend(colours: Mapping[str, str]) -> Iterator[str]:
    yield _text(20, 26, "Jobs per second (logarithmic scale)", "title")
    at = 20
    for name, colour in colours.items():
        yield f'<rect x="{at}" y="42" width="12" height="12" rx="2" fill="{colour}"/>'
        yield _text(at + 18, 53, name)
        at += 42 + 8 * len(name)


def _scale(low: int, high: float, place: Any, height: int) -> Iterator[str]:
    power = low
    while power <= high:
        x = place(power)
        yield (
            f'<line class="grid" x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" '
            f'y2="{height - FOOT}"/>'
        )
        yield _text(x, height - FOOT + 14, f"{power:,}", "note", "middle")
        power *= 10


def _bars(
    groups: Sequence[tuple[str, Mapping[str, float]]],
    colours: Mapping[str, str],
    place: Any,
) -> Iterator[str]:
    y = TOP
    for title, bars in groups:
        middle = y + BAR * len(bars) / 2 + 4
        yield _text(LEFT - 12, middle, title, anchor="end")
        for name, value in bars.items():
            # A value at the foot of the scale has a bar too.
            width = max(2.0, place(value) - LEFT)
            yield (
                f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 3}" '
                f'rx="2" fill="{colours[name]}"><title>{escape(name)}</title></rect>'
            )
            yield _text(LEFT + width + 6, y + BAR - 5, number(value), "note")
            y += BAR
        y += GAP


def _text(x: float, y: float, words: str, name: str = "", anchor: str = "start") -> str:
    kind = f' class="{name}"' if name else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>'
        f"{escape(words)}</text>"
    )


def _note(machine: Mapping[str, Any]) -> str:
    return (
        f"{machine['at'][:10]}, {machine['cores']} cores, PostgreSQL "
        f"{machine['postgresql']} on the same machine, Python {machine['python']}; "
        "medians"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.chart", description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("chart", type=Path)
    options = parser.parse_args()
    try:
        drawn = chart(json.loads(options.report.read_text()))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{options.report}: {error}\n")
        return 1
    options.chart.parent.mkdir(parents=True, exist_ok=True)
    options.chart.write_text(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The table for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["number", "table"]

HEADER = ("work", "relay", "ceiling", "best rival", "÷ ceiling", "÷ rival")


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the rows as aligned text, each figure with its unit or its name."""
    lines = [HEADER, *map(_cells, rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(HEADER))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    ceiling, best = row.get("ceiling"), row["best_rival"]
    rival = None if best is None else row["rivals"][best]
    return (
        row["work"],
        f"{number(row['relay']['median'])} {row['unit']}",
        "" if ceiling is None else f"{number(ceiling['median'])} {ceiling['name']}",
        "" if rival is None else f"{number(rival['median'])} {best}",
        _ratio(ceiling),
        _ratio(rival),
    )


def _ratio(other: Mapping[str, Any] | None) -> str:
    return "" if other is None else f"{other['ratio']['median']:.2f}"


def number(value: float) -> str:
    """Return three figures, or all those before the point."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}"

"""Tables in Markdown: read, and written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["kept", "rows_of", "table"]

_CELLS = re.compile(r"(?<!\\)\|")


def rows_of(text: str) -> dict[str, list[str]]:
    """Return the cells of a table's rows, by the first of them."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in _CELLS.split(line)[1:-1]]
            found[cells[0]] = cells
    return found


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [list(header), ["---"] * len(header), *map(list, rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines).replace(
        "|  |", "| |"
    )


def kept(
    old: str,
    header: Sequence[str],
    known: Mapping[str, Sequence[str]],
    facts: Sequence[int] = (),
) -> str:
    """Return a table with a row for each name that is known, and for no other.

    Its words are those that stand in the page; where a name has none, those given.

    Args:
        known: by name the cells after the first.
        facts: the columns that are always as given: the page has no say.
    """
    said = rows_of(old)
    rows: list[list[str]] = []
    for name, cells in known.items():
        first = f"`{name}`"
        row = said.get(first) or [first, *cells]
        for column in facts:
            row[column] = cells[column - 1]
        rows.append(row)
    return table(header, rows)

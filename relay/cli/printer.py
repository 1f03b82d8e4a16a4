"""What comes out: tables for people, documents and ids for programs.

Texts of jobs are never trusted: nothing that a terminal would obey gets through.
"""

from __future__ import annotations

import json
import shutil
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

__all__ = [
    "Column",
    "Document",
    "Mode",
    "Printer",
    "Stream",
    "fields",
    "inert",
    "table",
]

Document = Mapping[str, Any]
Mode = Literal["people", "json", "jsonl", "ids"]

# Nothing narrower is cut to fit a terminal.
_NARROWEST: Final = 8
_GAP: Final = "  "
_TONES: Final[Mapping[str, str]] = {
    "blocked": "2",
    "scheduled": "34",
    "queued": "34",
    "running": "36",
    "retrying": "33",
    "completed": "32",
    "failed": "31",
    "cancelled": "2",
    "paused": "33",
    "quiet": "33",
    "draining": "33",
    "lost": "31",
    "stopped": "2",
    "error": "31",
    "warning": "33",
}


class Stream(Protocol):
    """Where text is written: a file, or what Django has around one."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...

    def isatty(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        value: what a document shows there; None is left empty.
        can_cut: whether it may be cut to fit a terminal.
        is_number: whether it stands to the right.
    """

    title: str
    value: Callable[[Document], object]
    can_cut: bool = False
    is_number: bool = False


class Printer:
    """Writes to one stream as the flags and the stream want it."""

    def __init__(
        self, out: Stream, *, mode: Mode = "people", colour: bool = True
    ) -> None:
        self.out = out
        self.mode = mode
        self.is_terminal = out.isatty()
        self.has_colour = colour and self.is_terminal

    @property
    def width(self) -> int | None:
        """Return how wide a terminal is now; to a file or a program nothing is cut."""
        return shutil.get_terminal_size().columns if self.is_terminal else None

    def write(self, text: str) -> None:
        """Write a text; what the stream's encoding has no sign for, as an escape."""
        encoding = getattr(self.out, "encoding", None) or "utf-8"
        self.out.write(text.encode(encoding, "backslashreplace").decode(encoding))

    def line(self, text: str = "") -> None:
        self.write(f"{text}\n")

    def flush(self) -> None:
        self.out.flush()

    def document(self, document: object) -> None:
        """Write JSON: of a terminal's escapes nothing is left in it."""
        indent = None if self.mode == "jsonl" else 2
        self.line(json.dumps(document, indent=indent))

    def table(self, columns: Sequence[Column], rows: Iterable[Document]) -> None:
        for text in table(columns, rows, width=self.width, colour=self.has_colour):
            self.line(text)

    def fields(self, pairs: Iterable[tuple[str, object]]) -> None:
        for text in fields(pairs, colour=self.has_colour):
            self.line(text)

    def block(self, title: str, text: str) -> None:
        """Write a text of several lines under its title."""
        self.line()
        self.line(f"{title}:")
        for each in text.splitlines():
            self.line(f"    {inert(each.expandtabs(4))}")


def inert(text: str) -> str:
    """Return a text on one line, with escapes for all that does not print itself."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in text
    )


def fields(
    pairs: Iterable[tuple[str, object]], *, colour: bool = False
) -> Iterable[str]:
    """Return one line for each name and value; those without a value are left out."""
    shown = [(name, _cell(value)) for name, value in pairs if value not in (None, "")]
    longest = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        yield f"{name:<{longest}}{_GAP}{_toned(value, value, colour)}"


def table(
    columns: Sequence[Column],
    rows: Iterable[Document],
    *,
    width: int | None = None,
    colour: bool = False,
) -> Iterable[str]:
    """Return the lines of a table, cut to a width if one is given."""
    cells = [[_cell(column.value(row)) for column in columns] for row in rows]
    widths = [
        max([_wide(column.title), *(_wide(row[place]) for row in cells)])
        for place, column in enumerate(columns)
    ]
    if width is not None:
        _narrow(widths, columns, width)
    yield _line([column.title for column in columns], columns, widths, False)
    for row in cells:
        yield _line(row, columns, widths, colour)


def _narrow(widths: list[int], columns: Sequence[Column], width: int) -> None:
    """Take what is too much from the widest columns that may be cut."""
    for place, column in enumerate(columns):
        if column.can_cut:  # at once: the rest goes sign by sign
            widths[place] = min(widths[place], max(width, _NARROWEST))
    while sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        places = [
            place
            for place, column in enumerate(columns)
            if column.can_cut and widths[place] > _NARROWEST
        ]
        if not places:
            return
        widths[max(places, key=widths.__getitem__)] -= 1


def _line(
    row: Sequence[str], columns: Sequence[Column], widths: Sequence[int], colour: bool
) -> str:
    shown: list[str] = []
    for text, column, width in zip(row, columns, widths, strict=True):
        cut = _cut(text, width) if column.can_cut else text
        space = " " * max(0, width - _wide(cut))
        padded = space + cut if column.is_number else cut + space
        shown.append(_toned(padded, text, colour))
    return _GAP.join(shown).rstrip()


def _toned(shown: str, word: str, colour: bool) -> str:
    tone = _TONES.get(word)
    return f"\x1b[{tone}m{shown}\x1b[0m" if colour and tone else shown


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return inert(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    return inert(json.dumps(value, ensure_ascii=False))


def _wide(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(map(_columns_of, text))


def _columns_of(sign: str) -> int:
    if unicodedata.combining(sign):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1


def _cut(text: str, width: int) -> str:
    if _wide(text) <= width:
        return text
    kept, used = [], 1
    for sign in text:
        used += _columns_of(sign)
        if used > width:
            break
        kept.append(sign)
    return "".join(kept) + "…"

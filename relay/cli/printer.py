"""What comes out: tables for people, documents and ids for programs.

Texts of jobs are never trusted: nothing that a terminal would obey gets through.
"""

from __future__ import annotations

import json
import shutil
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

__all__ = [
    "Column",
    "Document",
    "Mode",
    "Printer",
    "Stream",
    "cut_to",
    "fields",
    "inert",
    "table",
]

Document = Mapping[str, Any]
Mode = Literal["people", "json", "jsonl", "ids"]

# Of an id: its time in milliseconds, and more of it where that is not enough.
_BEGINNINGS: Final = (13, 18, 23)
_ID_SIGNS: Final = 36
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
        keeps_end: whether what is cut is its beginning.
        is_number: whether it stands to the right.
        least: how narrow it may be cut.
        is_id: whether it may be shortened to the beginning that tells it from others.
        rank: of those that a terminal has no room for the largest is left out first;
            what is 0 stays.
    """

    title: str
    value: Callable[[Document], object]
    can_cut: bool = False
    is_number: bool = False
    keeps_end: bool = False
    least: int = 8
    is_id: bool = False
    rank: int = 0


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
        for text in fields(pairs, width=self.width, colour=self.has_colour):
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
    pairs: Iterable[tuple[str, object]],
    *,
    width: int | None = None,
    colour: bool = False,
) -> Iterable[str]:
    """Return one line for each name and value; those without a value are left out.

    Args:
        width: of a terminal; what is longer goes on in the next line.
    """
    shown = [(name, _cell(value)) for name, value in pairs if value not in (None, "")]
    longest = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        start = f"{name:<{longest}}{_GAP}"
        if width is None or len(start) + _wide(value) <= width:
            yield f"{start}{_toned(value, value, colour)}"
            continue
        yield from textwrap.wrap(
            value,
            width,
            initial_indent=start,
            subsequent_indent=" " * len(start),
            break_long_words=False,
            break_on_hyphens=False,
        )


def table(
    columns: Sequence[Column],
    rows: Iterable[Document],
    *,
    width: int | None = None,
    colour: bool = False,
) -> Iterable[str]:
    """Return the lines of a table; with a width as narrow as that, if they can be.

    Cells are cut, ids shortened, and columns left out whose rank says so.
    """
    shown = list(rows)
    drawn = [
        _Drawn(column, [_cell(column.value(row)) for row in shown])
        for column in columns
    ]
    if width is not None:
        _fit(drawn, width)
    yield _line([(each, each.column.title) for each in drawn], False)
    for place in range(len(shown)):
        yield _line([(each, each.cells[place]) for each in drawn], colour)


@dataclass(slots=True)
class _Drawn:
    """A column with its cells, and how wide it is drawn."""

    column: Column
    cells: list[str]
    width: int = field(init=False)

    def __post_init__(self) -> None:
        self.measure()

    def measure(self) -> None:
        self.width = max(map(_wide, (self.column.title, *self.cells)))

    @property
    def least(self) -> int:
        return min(self.width, self.column.least) if self.column.can_cut else self.width


def _fit(drawn: list[_Drawn], width: int) -> None:
    """Make a table as narrow as a terminal, if it can be."""
    room = width + len(_GAP)

    def is_over(widths: Iterable[int]) -> bool:
        return sum(each + len(_GAP) for each in widths) > room

    if is_over(each.least for each in drawn):
        _shorten_ids(drawn)
    # Those first in which nothing stands.
    others = [each for each in drawn if each.column.rank]
    others.sort(key=lambda each: (any(each.cells), -each.column.rank))
    for each in others:
        if is_over(every.least for every in drawn):
            drawn.remove(each)
    for each in drawn:
        if each.column.can_cut:  # at once: the rest goes sign by sign
            each.width = min(each.width, max(width, each.least))
    while is_over(each.width for each in drawn):
        cut = [e for e in drawn if e.column.can_cut and e.width > e.column.least]
        if not cut:
            return
        max(cut, key=lambda each: each.width).width -= 1


def _shorten_ids(drawn: Iterable[_Drawn]) -> None:
    for each in drawn:
        if not each.column.is_id or not all(len(c) == _ID_SIGNS for c in each.cells):
            continue
        for length in _BEGINNINGS:
            short = [cell[:length] for cell in each.cells]
            if len(set(short)) == len(set(each.cells)):
                each.cells = short
                each.measure()
                break


def _line(cells: Iterable[tuple[_Drawn, str]], colour: bool) -> str:
    shown: list[str] = []
    for each, text in cells:
        cut = text
        if each.column.can_cut:
            cut = cut_to(text, each.width, keeps_end=each.column.keeps_end)
        space = " " * max(0, each.width - _wide(cut))
        padded = space + cut if each.column.is_number else cut + space
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


def cut_to(text: str, width: int, *, keeps_end: bool = False) -> str:
    """Return a text, no wider than so many columns of a terminal."""
    if _wide(text) <= width:
        return text
    kept, used = [], 1
    for sign in reversed(text) if keeps_end else text:
        used += _columns_of(sign)
        if used > width:
            break
        kept.append(sign)
    return f"…{''.join(reversed(kept))}" if keeps_end else f"{''.join(kept)}…"

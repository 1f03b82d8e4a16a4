"""How far something long is: on stderr, and only where somebody looks."""

from __future__ import annotations

from typing import Final

from relay.cli.printer import Printer

__all__ = ["Progress"]

_CLEAR: Final = "\r\x1b[2K"
_CELLS: Final = 30


class Progress:
    """A line that is drawn over itself, and taken away at the end of the block.

    Args:
        is_shown: not where what it tells of is written to the same terminal.
    """

    def __init__(self, notes: Printer, *, is_shown: bool = True) -> None:
        self._notes = notes
        self._is_shown = is_shown and notes.is_terminal
        self._is_drawn = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_drawn:
            self._draw("")

    def show(self, done: float, of: float | None = None) -> None:
        """Draw it; without a total only how many are done."""
        if not of:
            self._draw(f"{done:,}")
            return
        share = min(1.0, done / of)
        bar = ("#" * int(share * _CELLS)).ljust(_CELLS, ".")
        self._draw(f"[{bar}] {share:4.0%} {done:,} of {of:,}")

    def _draw(self, text: str) -> None:
        if self._is_shown:
            self._is_drawn = True
            self._notes.write(f"{_CLEAR}{text}")
            self._notes.flush()

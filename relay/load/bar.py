"""A line on a terminal that says how far something is."""

from __future__ import annotations

from typing import Final, TextIO

__all__ = ["Bar"]

CELLS: Final = 30
# Back to the line's beginning, and away with what stands there.
_CLEAR: Final = "\r\x1b[2K"


class Bar:
    """Drawn over itself by each show(), and taken away at the end of the with block."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._write(_CLEAR)

    def show(self, share: float, text: str) -> None:
        """Draw it, filled by the share from 0 to 1, with the text behind."""
        full = int(share * CELLS)
        bar = "#" * full + "." * (CELLS - full)
        self._write(f"{_CLEAR}[{bar}] {share:4.0%} {text}")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

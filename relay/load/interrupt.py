"""Ctrl-C, which ends a load with the report of what was done."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Final, Self

__all__ = ["Interrupt"]

_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Is set by the first SIGINT or SIGTERM; the second raises KeyboardInterrupt.

    The handler only sets a flag: it can break into nothing that is half done. Works in
    the main thread alone, as all handlers do.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._before: dict[int, Any] = {}

    def is_set(self) -> bool:
        return self._is_set

    def __enter__(self) -> Self:
        for number in _NUMBERS:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._is_set:
            raise KeyboardInterrupt
        self._is_set = True

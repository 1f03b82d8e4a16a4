"""Whether the machine stood still, so that no process had its turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

__all__ = ["Standstill"]

TICK_SECONDS = 0.1


class Standstill:
    """Watches from a thread of this process, which is to wake ten times a second.

    Attributes:
        longest_seconds: the longest that it came late, until the end of the block.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.longest_seconds = 0.0

    def __enter__(self) -> Standstill:
        self._ticked_at = self._clock()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._is_over.wait(TICK_SECONDS)
            now = self._clock()
            late = now - self._ticked_at - TICK_SECONDS
            self.longest_seconds = max(self.longest_seconds, late)
            self._ticked_at = now

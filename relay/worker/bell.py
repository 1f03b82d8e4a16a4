"""A wait on descriptors that signals and other threads can end."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

__all__ = ["Bell", "readable"]

_CHUNK_BYTES: Final = 4_096
# poll() takes milliseconds as a C int: whoever waits for longer looks once a day.
_LONGEST_SECONDS: Final = 86_400.0


def readable(readers: Sequence[Any], seconds: float) -> list[Any]:
    """Wait until one of these can be read; return those that can.

    Not by select(): a process may have more descriptors than that knows.
    """
    poll = select.poll()
    for reader in readers:
        poll.register(reader, select.POLLIN)
    ready = dict(poll.poll(min(max(0.0, seconds), _LONGEST_SECONDS) * 1_000))
    return [reader for reader in readers if _number(reader) in ready]


class Bell:
    """A pipe that a waiting thread reads and anybody rings."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._is_awaited = False

    def ring_on_signals(self) -> None:
        """Let every signal with a Python handler end the wait. Main thread only."""
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def ring(self) -> None:
        """End the wait, if there is one. From any thread."""
        if self._is_awaited:
            self._is_awaited = False
            try:
                os.write(self._writer, b".")
            except BlockingIOError:
                return  # it is full: it rings

    def expect(self) -> None:
        """Say that a wait comes: from now on, changes ring."""
        self._is_awaited = True

    def wait(self, readers: Sequence[Any], seconds: float) -> list[Any]:
        """Wait until one of these can be read, the bell rings, or the time is over.

        Returns:
            those that can be read.
        """
        ready = readable([self._reader, *readers], seconds)
        self._is_awaited = False
        if self._reader in ready:
            ready.remove(self._reader)
            with suppress(BlockingIOError):
                os.read(self._reader, _CHUNK_BYTES)
        return ready

    def close(self) -> None:
        """Close both ends; ring() does nothing from now on."""
        self._is_awaited = False
        os.close(self._reader)
        os.close(self._writer)


def _number(reader: Any) -> int:
    number: int = reader if isinstance(reader, int) else reader.fileno()
    return number

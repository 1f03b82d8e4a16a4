"""Plain lines on the terminal, and the wish to stop."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Final

__all__ = ["Stop", "Stopped", "Terminal", "printable", "seconds"]

LOOK_SECONDS: Final = 0.05
ELLIPSIS: Final = "..."


class Stopped(Exception):
    """Somebody wants the demo to stop."""


class Stop:
    """Counts SIGINT, SIGTERM and SIGHUP.

    Handlers only count: nothing is cut in the middle of starting or stopping a process
    or the database, and whoever waits looks here.
    """

    def __init__(self) -> None:
        self.count = 0

    def install(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1

    def request(self) -> None:
        self.count += 1

    def check(self) -> None:
        """Raise Stopped if somebody wants that."""
        if self.count:
            raise Stopped

    def wait(self, wait_seconds: float) -> None:
        """Wait; raise Stopped as soon as somebody wants that."""
        ends_at = time.monotonic() + wait_seconds
        while True:
            self.check()
            left_seconds = ends_at - time.monotonic()
            if left_seconds <= 0:
                return
            time.sleep(min(LOOK_SECONDS, left_seconds))


class Terminal:
    """Standard output, line by line, as good in a log as on a screen."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._began = time.monotonic()
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="backslashreplace")
        self._is_bold = sys.stdout.isatty() and "NO_COLOR" not in os.environ

    def step(self, text: str, *, strong: bool = False) -> None:
        """Write one step, with the seconds since the demo began."""
        line = f"{time.monotonic() - self._began:6.1f} s  {text}"
        self.write(f"\033[1m{line}\033[0m" if strong and self._is_bold else line)

    def write(self, line: str = "") -> None:
        try:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        except BrokenPipeError:
            # Nobody reads any more: end as by Ctrl-C, and let the rest go nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self._stop.request()

    def strong(self, line: str) -> None:
        self.write(f"\033[1m{line}\033[0m" if self._is_bold else line)

    def table(self, rows: Sequence[Sequence[str]], *, right: Sequence[int]) -> None:
        """Write rows in columns, the first row as the head.

        Args:
            right: the columns whose values stand to the right.
        """
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for number, row in enumerate(rows):
            cells = [
                cell.rjust(width) if place in right else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            self.write("  ".join(cells).rstrip())
            if number == 0:
                self.write("  ".join("-" * width for width in widths))


def printable(text: str, *, limit: int = 32) -> str:
    """Return a text that moves no cursor and is not long, such as a file's name."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    if len(shown) <= limit:
        return shown
    tail = limit // 2 - len(ELLIPSIS)
    return shown[: limit - tail - len(ELLIPSIS)] + ELLIPSIS + shown[-tail:]


def seconds(value: float) -> str:
    return f"{value:.1f} s"

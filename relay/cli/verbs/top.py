"""A view of everything that is drawn again and again, until q or Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Final, TextIO

from relay.cli import figures, shown
from relay.cli.errors import CliError, UsageError
from relay.cli.printer import Printer, inert, table
from relay.cli.session import Session
from relay.cli.tree import Branch
from relay.cli.values import pause

__all__ = ["grow"]

# The alternate screen, without a cursor; and back.
_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"
_JOBS: Final = 20
# Those that wait or run; those that have ended.
_STATES: Final = (
    ("queued", "running", "retrying", "scheduled", "blocked"),
    ("completed", "failed", "cancelled"),
)
_GONE: Final = frozenset({"stopped", "lost"})
_MOST_KEYS: Final = 1_024


def grow(root: Branch) -> None:
    """Add the verb."""
    parser = root.verb("top", _top, "watch queues, workers and running jobs")
    parser.add_argument(
        "--interval",
        type=pause,
        default=2.0,
        metavar="SPAN",
        help="how often (default: 2s)",
    )
    parser.add_argument("--once", action="store_true", help="draw it once, and end")


def _top(session: Session) -> None:
    printer = session.printer
    if session.options.once:
        for line in _frame(session):
            printer.line(line)
        return
    if not printer.is_terminal:
        raise UsageError("top draws on a terminal: give --once, or take stats --json")
    with _screen(printer), _keys(session.source) as keys:
        while True:
            _draw(session)
            if keys.is_q_within(session.options.interval):
                return


def _draw(session: Session) -> None:
    """Draw over what is there; while the other side is away, say so instead."""
    printer = session.printer
    try:
        lines = list(_frame(session))
    except CliError as error:
        lines = [inert(str(error))]
    # Of more lines than there are the screen would scroll, and the first be lost.
    seen = lines[: max(1, shutil.get_terminal_size().lines - 1)]
    text = "".join(f"{line}{_REST_OF_LINE}\r\n" for line in seen)
    printer.write(f"{_HOME}{text}{_REST_OF_SCREEN}")
    printer.flush()


def _frame(session: Session) -> Iterator[str]:
    printer = session.printer
    stats = session.transport.get_stats()
    moment = datetime.fromisoformat(stats["at"]).astimezone(UTC)
    workers = stats["workers"]
    yield (
        f"relay  {moment:%Y-%m-%d %H:%M:%S} UTC  {workers['busy']} of "
        f"{workers['slots']} slots busy"
    )
    jobs = stats["jobs"]
    for names in _STATES:
        yield "  ".join(f"{name} {figures.count(jobs[name])}" for name in names)
    yield ""
    drawn = partial(table, width=printer.width, colour=printer.has_colour)
    yield from drawn(shown.QUEUES, stats["queues"])
    yield ""
    alive = [
        each
        for each in session.transport.list_workers()["results"]
        if each["state"] not in _GONE
    ]
    if alive:
        yield from drawn(shown.WORKERS, alive)
    else:
        yield "no worker is alive"
    yield ""
    running = session.transport.list_jobs("state:running", limit=_JOBS, cursor=None)
    if running["results"]:
        yield from drawn(shown.JOBS, running["results"])
    else:
        yield "no job runs"


@contextlib.contextmanager
def _screen(printer: Printer) -> Iterator[None]:
    printer.write(_ENTER)
    try:
        yield
    finally:
        printer.write(_LEAVE)
        printer.flush()


class _Keys:
    """Keys as they are pressed.

    Read past Python's own buffer: what that held, no select() would tell of.
    """

    def __init__(self, number: int) -> None:
        self._number = number

    def is_q_within(self, seconds: float) -> bool:
        """Wait for so long; tell whether q was pressed, or nobody can press it."""
        ends_at = time.monotonic() + seconds
        while True:
            left = max(0.0, ends_at - time.monotonic())
            if not select.select([self._number], [], [], left)[0]:
                return False
            pressed = os.read(self._number, _MOST_KEYS)
            if not pressed or b"q" in pressed.lower():
                return True


@contextlib.contextmanager
def _keys(source: TextIO) -> Iterator[_Keys]:
    if sys.platform == "win32" or not source.isatty():
        raise UsageError("top is driven by a terminal: give --once without one")
    import termios  # not on Windows
    import tty

    number = source.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    try:
        yield _Keys(number)
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)

"""The relay_scheduler process: one loop, one connection, any number of processes."""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Final, Protocol, Self

import psycopg

from relay.engine.connection import connect, is_outage
from relay.retry import Backoff
from relay.scheduler.duty import ScheduleDuty

__all__ = ["SchedulerHealth", "StopSignal", "run"]

logger = logging.getLogger("relay.scheduler")

# The database comes back to all schedulers at once: the jitter spreads them, and the
# cap keeps the return below 5 s. Source: B11, docs/explanation/schedules.md.
RECONNECT: Final = Backoff(base=timedelta(seconds=0.25), cap=timedelta(seconds=4))
# A loop that has not gone round for so long is stuck: every statement ends sooner.
STALL_SECONDS: Final = 30.0
# An outage is reported this often.
REPORT_SECONDS: Final = 60.0

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


class Stop(Protocol):
    """What ends the loop."""

    @property
    def is_set(self) -> bool: ...

    def wait(self, seconds: float) -> None:
        """Return after this long, or as soon as it is set."""


class StopSignal:
    """Is set by SIGTERM or SIGINT; a second one ends the process at once.

    The handlers only set a flag, and the wake-up descriptor ends a wait: there is no
    lock that a handler could find taken. They are installed by name, so that they
    hold for process 1 too, which has no default ones.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._fd_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in _STOPPING:
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
        signal.set_wakeup_fd(self._fd_before)
        os.close(self._reader)
        os.close(self._writer)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.is_set:
            # Whatever was under way is one transaction that the server rolls back.
            os._exit(0)
        self.is_set = True

    def wait(self, seconds: float) -> None:
        """Return after this long, or as soon as a signal has come."""
        if not self.is_set and select.select([self._reader], [], [], seconds)[0]:
            # Each signal with a handler in Python leaves a byte, also those of others:
            # left there, no later wait would wait.
            os.read(self._reader, 4096)


class SchedulerHealth:
    """What the loop says to those who watch it, from any thread."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._ticked_at = time.monotonic()
        self._reason = "has not looked yet"

    def tick(self, reason: str = "") -> None:
        """Say that the loop goes round, and why it fires nothing; "" if it does."""
        self._ticked_at, self._reason = time.monotonic(), reason

    def ills(self) -> list[str]:
        """Return whether the loop does not go round; empty if it does."""
        seconds = time.monotonic() - self._ticked_at
        stuck = f"the loop has not gone round for {seconds:.0f} s"
        return [stuck] if seconds > STALL_SECONDS else []

    def wants(self) -> list[str]:
        """Return why nothing is fired; empty if schedules are."""
        return [*self.ills(), *([self._reason] if self._reason else [])]

    def status(self) -> Mapping[str, Any]:
        """Return what the scheduler does."""
        return {
            "database": self._alias,
            "pid": os.getpid(),
            "last_tick_s": round(time.monotonic() - self._ticked_at, 3),
        }


def run(
    alias: str,
    stop: Stop,
    *,
    health: SchedulerHealth | None = None,
    duty: ScheduleDuty | None = None,
    connecting: Callable[[], psycopg.Connection[Any]] | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Fire schedules until stop is set, across every outage of the database.

    Args:
        alias: key of settings.DATABASES.
        health: is told how the loop fares.
        duty, connecting, monotonic: for tests.
    """
    loop = _Loop(
        alias,
        health or SchedulerHealth(alias),
        duty or ScheduleDuty(),
        connecting or partial(connect, alias, role="duty", name="scheduler"),
        monotonic,
    )
    logger.info(
        "scheduler started", extra={"event": "scheduler.started", "database": alias}
    )
    while not stop.is_set:
        stop.wait(loop.turn())
    loop.close()
    logger.info(
        "scheduler stopped", extra={"event": "scheduler.stopped", "database": alias}
    )


class _Loop:
    """The scheduler's turns, over a connection that is made anew after any trouble."""

    def __init__(
        self,
        alias: str,
        health: SchedulerHealth,
        duty: ScheduleDuty,
        connecting: Callable[[], psycopg.Connection[Any]],
        monotonic: Callable[[], float],
    ) -> None:
        self._alias = alias
        self._health = health
        self._duty = duty
        self._connecting = connecting
        self._monotonic = monotonic
        self._connection: psycopg.Connection[Any] | None = None
        self._failures = 0
        self._reported_at = float("-inf")

    def turn(self) -> float:
        """Fire what is due; return how many seconds to wait before the next turn."""
        try:
            if self._connection is None:
                self._connection = self._connecting()
            self._duty.tick(self._connection)
        except Exception as error:  # an edge: it outlives whatever the database does
            return self._fail(error)
        self._health.tick()
        if self._failures:
            self._failures, self._reported_at = 0, float("-inf")
            logger.info(
                "scheduler resumed",
                extra={"event": "scheduler.resumed", "database": self._alias},
            )
        return self._duty.interval.total_seconds()

    def _fail(self, error: Exception) -> float:
        self._failures += 1
        self._health.tick("schedules cannot be fired now: see the log")
        now = self._monotonic()
        if now - self._reported_at >= REPORT_SECONDS:
            self._reported_at = now
            is_understood, reason = _explain(error)
            logger.warning(
                "schedules cannot be fired now; trying again: %s",
                reason,
                extra={
                    "event": "scheduler.failed",
                    "database": self._alias,
                    "failures": self._failures,
                },
                exc_info=None if is_understood else error,
            )
        self._drop()
        return RECONNECT.delay(self._failures).total_seconds()

    def close(self) -> None:
        """End the connection, and say so to those who watch."""
        self._drop()
        self._health.tick("stopping")

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _explain(error: Exception) -> tuple[bool, str]:
    """Return whether an operator needs no traceback, and the reason."""
    if isinstance(error, psycopg.errors.UndefinedTable):
        missing = str(error).splitlines()[0]
        return True, f"relay's tables are missing, run manage.py migrate: {missing}"
    return is_outage(error), str(error)

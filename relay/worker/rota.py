"""Whose turn it is: a keeper's duties, each as often as there is something to do.

One statement asks for all of them when that will be. Source:
docs/explanation/duties.md.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import psycopg

from relay.engine.connection import EngineConnection, is_outage
from relay.worker.duties import Duty

__all__ = ["LOOK_SECONDS", "Rota"]

logger = logging.getLogger("relay.worker")

# Between two looks at what there is to do, while nothing is.
LOOK_SECONDS: Final = 1.0
LONGEST_BACKOFF_SECONDS: Final = 60.0


@dataclass(slots=True)
class Timer:
    """When a duty's next tick is, by the monotonic clock.

    Attributes:
        not_before: so that a duty with much to do leaves time for others.
        rest_until: when it ticks though no look asked for it.
        due_at: when it ticks, by what is known now; between the two.
    """

    duty: Duty
    not_before: float = 0.0
    rest_until: float = 0.0
    due_at: float = 0.0
    failures: int = 0


class Rota:
    """Runs the duties of one process, in their order."""

    def __init__(self, duties: Sequence[Duty]) -> None:
        self.timers = [Timer(duty) for duty in duties]
        self._look_at = 0.0
        self._failed_looks = 0

    @property
    def due_at(self) -> float:
        """When turn() has something to do next."""
        return min(self._look_at, *(timer.due_at for timer in self.timers))

    def turn(self, connection: EngineConnection, *, until: float) -> None:
        """Run what is due; stop, until the next turn, where this moment has come.

        Raises:
            psycopg.Error: the connection is lost, or the database is away.
        """
        for timer in self.timers:
            if time.monotonic() >= until:
                return
            if time.monotonic() >= timer.due_at:
                self._run(connection, timer)
        if self._look_at <= time.monotonic() < until:
            self._look(connection)

    def _run(self, connection: EngineConnection, timer: Timer) -> None:
        duty, begun_at = timer.duty, time.monotonic()
        has_more = False
        try:
            has_more = duty.tick(connection)
        except Exception as error:  # an edge: one failing duty must not stop the others
            self._check(connection, error)
            # A timeout or a deadlock costs this tick, never the connection: the
            # reaper counts how long that has been sound.
            timer.failures = min(timer.failures + 1, 10)
            logger.exception(
                "duty failed",
                extra={"event": "duty.failed", "duty": type(duty).__name__},
            )
        else:
            timer.failures = 0
        # At once where a look brought it forward: what comes next is not known yet.
        if begun_at < timer.rest_until:
            self._look_at = min(self._look_at, begun_at)
        interval = duty.interval.total_seconds()
        if timer.failures:
            interval = min(
                interval * 2.0**timer.failures, max(LONGEST_BACKOFF_SECONDS, interval)
            )
        now, spread = time.monotonic(), random.uniform(1.0, 1.1)  # noqa: S311 - only spreads load
        timer.not_before = now + interval * spread
        rest = interval if has_more else duty.rest.total_seconds()
        timer.rest_until = max(timer.not_before, now + rest * spread)
        timer.due_at = timer.rest_until

    def _look(self, connection: EngineConnection) -> None:
        """Ask for all duties in one statement when there is something to do."""
        seconds: Sequence[float | None]
        try:
            seconds = upcoming(connection, [timer.duty for timer in self.timers])
        except psycopg.Error as error:
            self._check(connection, error)
            self._failed_looks = min(self._failed_looks + 1, 10)
            logger.exception(
                "duty failed", extra={"event": "duty.failed", "duty": "look"}
            )
            # Nobody knows: each looks for itself.
            seconds = [0.0] * len(self.timers)
        else:
            self._failed_looks = 0
        # From when the answer is there: a duty that comes too early finds nothing.
        now = time.monotonic()
        for timer, each in zip(self.timers, seconds, strict=True):
            due_at = timer.rest_until if each is None else now + max(0.0, each)
            timer.due_at = max(timer.not_before, min(timer.rest_until, due_at))
        self._look_at = now + min(
            LOOK_SECONDS * 2.0**self._failed_looks, LONGEST_BACKOFF_SECONDS
        )

    @staticmethod
    def _check(connection: EngineConnection, error: Exception) -> None:
        """Raise the error if it cost the connection."""
        if isinstance(error, psycopg.Error) and (connection.closed or is_outage(error)):
            raise error


def upcoming(
    connection: EngineConnection, duties: Sequence[Duty]
) -> tuple[float | None, ...]:
    """Return in how many seconds each duty has something to do; None if it is open.

    Transaction: one statement that reads the first entry of some indexes.
    """
    columns = ", ".join(
        f"extract(epoch FROM {duty.next_at} - statement_timestamp())::float8"
        for duty in duties
    )
    row = connection.execute(f"SELECT {columns}".encode()).fetchone()
    return () if row is None else row

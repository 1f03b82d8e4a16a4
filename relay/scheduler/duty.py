"""The duty that fires schedules: in relay_scheduler and in every worker."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import psycopg

from relay.engine import wakeup
from relay.engine.connection import is_outage
from relay.exceptions import ScheduleError
from relay.scheduler.due import NEXT_DUE_AT, find_due, forget_disabled
from relay.scheduler.occurrences import (
    Wakeup,
    fire,
    record_error,
)
from relay.scheduler.outcomes import FIRST, note_outcomes

__all__ = ["ScheduleDuty"]

logger = logging.getLogger("relay.scheduler")

# A duty shares its process with others, such as the renewal of leases.
BUDGET_SECONDS: Final = 1.0
# What failed is tried again at once when its row changes, and this often besides: the
# cause may lie outside the row, as with a zone that this host does not know.
RETRY_SECONDS: Final = 60.0
# How jobs ended is noted this often: for the admin, checks and gauges.
OUTCOME_SECONDS: Final = 5.0
# And this often where no job of an occurrence is known that has not ended.
REST: Final = timedelta(seconds=60)


class ScheduleDuty:
    """Fires what is due, each schedule in a transaction of its own.

    Any number of them may run: the row's lock, the unique occurrence and the next
    due instant make each occurrence one job. One row that cannot be kept does not
    stop the others: it carries its error and is left alone until it changes.

    Attributes:
        interval: how long after the end of one tick the next one starts at the
            earliest; in a relay_scheduler each does.
        rest: how long after it at the latest.
        next_at: SQL of the instant from which a tick has something to do.
    """

    interval = timedelta(seconds=0.5)
    next_at = NEXT_DUE_AT

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        # Per schedule that failed: its row's xmin then, and when to try it again.
        self._failed: dict[UUID, tuple[str, float]] = {}
        # Those the last tick looked at come last in the next one, so that a long
        # catch-up keeps none of the others waiting.
        self._served: set[UUID] = set()
        self.rest = REST
        self._outcomes_at = float("-inf")
        self._outcomes_from = FIRST

    def tick(self, connection: psycopg.Connection[Any]) -> bool:
        """Plan and fire what is due, for about a second at most.

        Returns:
            whether something was left for the next tick.

        Raises:
            psycopg.Error: the database is away; what was committed is kept.

        Transaction: one for each schedule; the connection is in autocommit.
        """
        ends_at = self._monotonic() + BUDGET_SECONDS
        forget_disabled(connection)
        due = find_due(connection)
        due.sort(key=lambda row: row.id in self._served)
        self._served = set()
        found = {row.id for row in due}
        self._failed = {
            key: value for key, value in self._failed.items() if key in found
        }
        wakeups: list[Wakeup] = []
        has_more = False
        for schedule_id, xmin, name, _ in due:
            if self._is_left_alone(schedule_id, xmin):
                continue
            wakeups += self._fire(connection, schedule_id, xmin, name)
            self._served.add(schedule_id)
            if self._monotonic() >= ends_at:
                has_more = True
                break
        wakeup.notify_with(connection, wakeups)
        if self._monotonic() >= self._outcomes_at + OUTCOME_SECONDS:
            self._outcomes_at = self._monotonic()
            self._outcomes_from, has_open = note_outcomes(
                connection, self._outcomes_from
            )
            self.rest = timedelta(seconds=OUTCOME_SECONDS) if has_open else REST
        if wakeups:
            self.rest = timedelta(seconds=OUTCOME_SECONDS)
        return has_more

    def _is_left_alone(self, schedule_id: UUID, xmin: str) -> bool:
        failed = self._failed.get(schedule_id)
        return (
            failed is not None and failed[0] == xmin and self._monotonic() < failed[1]
        )

    def _fire(
        self,
        connection: psycopg.Connection[Any],
        schedule_id: UUID,
        xmin: str,
        name: str,
    ) -> list[Wakeup]:
        try:
            wakeups = fire(connection, schedule_id)
        except Exception as error:  # an edge: one row never stops the others
            if connection.closed or is_outage(error):
                raise
            self._note(connection, schedule_id, xmin, name, error)
            return []
        self._failed.pop(schedule_id, None)
        return wakeups

    def _note(
        self,
        connection: psycopg.Connection[Any],
        schedule_id: UUID,
        xmin: str,
        name: str,
        error: Exception,
    ) -> None:
        extra = {"event": "schedule.failed", "schedule": name, "error": str(error)}
        if isinstance(error, psycopg.OperationalError):
            # A deadlock or a timeout says nothing about the row: the next tick tries.
            logger.warning("schedule not fired yet", extra=extra)
            return
        is_known = isinstance(error, ScheduleError)
        text = str(error) if is_known else _describe(error)
        written = record_error(connection, schedule_id, text)
        retry_at = self._monotonic() + RETRY_SECONDS
        self._failed[schedule_id] = (written or xmin, retry_at)
        if written is not None:
            logger.error("schedule cannot be kept", extra=extra, exc_info=not is_known)


def _describe(error: Exception) -> str:
    """Name the error; of a database's without the detail, which quotes whole rows."""
    detail = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return f"{type(error).__name__}: {detail or error}"

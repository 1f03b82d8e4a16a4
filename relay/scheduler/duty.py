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
from relay.scheduler.occurrences import (
    DEFINITION,
    Wakeup,
    fire,
    forget_disabled,
    record_error,
)

__all__ = ["ScheduleDuty"]

logger = logging.getLogger("relay.scheduler")

# A duty shares its process with others, such as the renewal of leases.
BUDGET_SECONDS: Final = 1.0
# What failed is tried again at once when its row changes, and this often besides: the
# cause may lie outside the row, as with a zone that this host does not know.
RETRY_SECONDS: Final = 60.0

# A scan of a small table. The definition is compared for every row: that is how edits
# are noticed, in whatever way they were made. xmin changes with each of them.
FIND_DUE: Final = f"""
SELECT id, xmin::text, name
FROM relay_schedule
WHERE enabled AND (
    next_due_at IS NULL OR next_due_at <= statement_timestamp()
    OR planned IS DISTINCT FROM {DEFINITION}
)
ORDER BY next_due_at NULLS FIRST, id
"""  # noqa: S608 - joins a constant, no value


class ScheduleDuty:
    """Fires what is due, each schedule in a transaction of its own.

    Any number of them may run: the row's lock, the unique occurrence and the next
    due instant make each occurrence one job. One row that cannot be kept does not
    stop the others: it carries its error and is left alone until it changes.

    Attributes:
        interval: how long after the end of one tick the next one starts.
    """

    interval = timedelta(seconds=0.5)

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        # Per schedule that failed: its row's xmin then, and when to try it again.
        self._failed: dict[UUID, tuple[str, float]] = {}
        # Those the last tick looked at come last in the next one, so that a long
        # catch-up keeps none of the others waiting.
        self._served: set[UUID] = set()

    def tick(self, connection: psycopg.Connection[Any]) -> None:
        """Plan and fire what is due, for about a second at most; the rest comes next.

        Raises:
            psycopg.Error: the database is away; what was committed is kept.

        Transaction: one for each schedule; the connection is in autocommit.
        """
        ends_at = self._monotonic() + BUDGET_SECONDS
        forget_disabled(connection)
        due = connection.execute(FIND_DUE).fetchall()
        due.sort(key=lambda row: row[0] in self._served)
        self._served = set()
        found = {row[0] for row in due}
        self._failed = {
            key: value for key, value in self._failed.items() if key in found
        }
        wakeups: list[Wakeup] = []
        for schedule_id, xmin, name in due:
            if self._is_left_alone(schedule_id, xmin):
                continue
            wakeups += self._fire(connection, schedule_id, xmin, name)
            self._served.add(schedule_id)
            if self._monotonic() >= ends_at:
                break
        wakeup.notify_with(connection, wakeups)

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
        extra = {"schedule": name, "error": str(error)}
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

"""Schedules that are late, or whose jobs have not succeeded for too long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import connections

from relay.scheduler.timetable import spread_of

__all__ = [
    "LATE",
    "SINCE_DUE",
    "SINCE_SUCCESS",
    "Lateness",
    "lateness_of",
    "read_lateness",
]

# Less is an ordinary restart of the schedulers.
LATE: Final = timedelta(minutes=1)

# Times of rows made by hand may be infinite: seconds within 300 years are what Python
# can hold. A schedule that never succeeded counts from when it was made.
SINCE_DUE: Final = """
least(greatest(extract(epoch FROM statement_timestamp())
               - extract(epoch FROM next_due_at), 0), 1e10)::float8
"""
SINCE_SUCCESS: Final = """
least(greatest(extract(epoch FROM statement_timestamp())
               - extract(epoch FROM coalesce(last_success_at, created_at)), 0),
      1e10)::float8
"""
# A scan of a small table.
READ: Final = f"""
SELECT id, name, spread_ms, success_within_ms, last_success_at,
       {SINCE_DUE}, {SINCE_SUCCESS}
FROM relay_schedule WHERE enabled AND finished_at IS NULL ORDER BY name
"""  # noqa: S608 - constants only


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """How an enabled schedule that is not over keeps its times.

    Attributes:
        late_by: how long ago the oldest instant came that no scheduler has dealt with;
            0 if there is none.
        last_success_at: when a job of it last completed; None if none ever did.
        unsuccessful_for: how long ago that was, or how long there has been none.
        success_within: how long that may be; None if nobody has said.
    """

    id: UUID
    name: str
    late_by: timedelta
    last_success_at: datetime | None
    unsuccessful_for: timedelta
    success_within: timedelta | None

    @property
    def is_late(self) -> bool:
        """Whether no scheduler seems to run."""
        return self.late_by > LATE

    @property
    def is_unsuccessful(self) -> bool:
        """Whether the last success is longer ago than the schedule allows."""
        allowed = self.success_within
        return allowed is not None and self.unsuccessful_for > allowed


def lateness_of(
    key: UUID,
    name: str,
    spread_ms: int | None,
    within_ms: int | None,
    success_at: datetime | None,
    due_s: float | None,
    success_s: float,
) -> Lateness:
    """Return how a schedule keeps its times, by columns of its row.

    Args:
        due_s, success_s: SINCE_DUE and SINCE_SUCCESS.
    """
    # Not planned, not late: last_error says why, or the next tick plans it.
    late = timedelta(seconds=due_s or 0) - spread_of(name, spread_ms)
    return Lateness(
        id=key,
        name=name,
        late_by=max(late, timedelta(0)),
        last_success_at=success_at,
        unsuccessful_for=timedelta(seconds=success_s),
        success_within=(
            None if within_ms is None else timedelta(milliseconds=within_ms)
        ),
    )


def read_lateness(*, using: str) -> list[Lateness]:
    """Return of every enabled schedule how it keeps its times, by name.

    Transaction: one statement on Django's connection.
    """
    with connections[using].cursor() as cursor:
        cursor.execute(READ)
        return [lateness_of(*row) for row in cursor]

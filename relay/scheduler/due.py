"""Which schedules a scheduler has to look at now."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

import psycopg

from relay.scheduler.timetable import spread_of

__all__ = ["DEFINITION", "Due", "find_due"]

# What next_due_at was computed from stands in planned, in this form. An edit, made in
# whatever way, shows as a difference. concat_ws leaves out NULLs, so that a row which
# uses none of the later columns reads the same for an older release.
DEFINITION: Final = """concat_ws(
    E'\\n', cron, seconds::text, timezone, 'every ' || every_ms,
    'once ' || extract(epoch FROM once_at), 'from ' || extract(epoch FROM starts_at),
    'to ' || extract(epoch FROM ends_at), 'not ' || excluded
)"""

# A scan of a small table. The definition is compared for every row: that is how edits
# are noticed, in whatever way they were made. xmin changes with each of them. The jobs
# that an occurrence waits for are looked up by their primary key.
FIND_DUE: Final = f"""
SELECT * FROM (
    SELECT id, xmin::text AS xmin, name, next_due_at, spread_ms,
        statement_timestamp() + %(ahead)s::interval AS now,
        (next_due_at IS NULL AND finished_at IS NULL)
            OR planned IS DISTINCT FROM {DEFINITION}
            OR (waiting_at IS NOT NULL AND NOT EXISTS (
                SELECT FROM relay_job WHERE relay_job.id = ANY(open_jobs)
                  AND state NOT IN ('completed', 'failed', 'cancelled')
            )) AS is_needed
    FROM relay_schedule
    WHERE enabled
) AS schedule
WHERE is_needed OR next_due_at <= now
ORDER BY next_due_at NULLS FIRST, id
"""  # noqa: S608 - joins a constant, no value


class Due(NamedTuple):
    """A schedule that is due, new, changed, or done with waiting."""

    id: UUID
    xmin: str
    name: str
    next_due_at: datetime | None


def find_due(
    connection: psycopg.Connection[Any], *, ahead: timedelta = timedelta(0)
) -> list[Due]:
    """Return the schedules to look at, those due for longest first.

    Args:
        ahead: how far from the database's clock the time is taken to be; for tests.
    """
    rows = connection.execute(FIND_DUE, {"ahead": ahead}).fetchall()
    return [
        Due(schedule_id, xmin, name, next_due_at)
        for schedule_id, xmin, name, next_due_at, spread_ms, now, is_needed in rows
        if is_needed or next_due_at + spread_of(name, spread_ms) <= now
    ]

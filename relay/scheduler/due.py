"""Which schedules a scheduler has to look at now."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

import psycopg

from relay.scheduler.timetable import spread_of

__all__ = ["DEFINITION", "NEXT_DUE_AT", "SPREAD", "Due", "find_due", "forget_disabled"]

# What next_due_at was computed from stands in planned, in this form. An edit, made in
# whatever way, shows as a difference. concat_ws leaves out NULLs, so that a row which
# uses none of the later columns reads the same for an older release.
DEFINITION: Final = """concat_ws(
    E'\\n', cron, seconds::text, timezone, 'every ' || every_ms,
    'once ' || extract(epoch FROM once_at), 'from ' || extract(epoch FROM starts_at),
    'to ' || extract(epoch FROM ends_at), 'not ' || excluded
)"""

# The definition is compared for every row: that is how edits are noticed, in whatever
# way they were made. The jobs that an occurrence waits for are looked up by their
# primary key.
_IS_NEEDED: Final = f"""(
    (next_due_at IS NULL AND finished_at IS NULL)
    OR planned IS DISTINCT FROM {DEFINITION}
    OR (waiting_at IS NOT NULL AND NOT EXISTS (
        SELECT FROM relay_job WHERE relay_job.id = ANY(open_jobs)
          AND state NOT IN ('completed', 'failed', 'cancelled')
    ))
)"""

# A scan of a small table. xmin changes with each edit.
FIND_DUE: Final = f"""
SELECT * FROM (
    SELECT id, xmin::text AS xmin, name, next_due_at, spread_ms,
        statement_timestamp() + %(ahead)s::interval AS now, {_IS_NEEDED} AS is_needed
    FROM relay_schedule
    WHERE enabled
) AS schedule
WHERE is_needed OR next_due_at <= now
ORDER BY next_due_at NULLS FIRST, id
"""  # noqa: S608 - joins a constant, no value


# What was disabled is planned anew when it is enabled: without back-fill, from then on.
FORGET_DISABLED: Final = """
WITH disabled AS MATERIALIZED (
    SELECT id, waiting_at FROM relay_schedule
    WHERE NOT enabled AND (
        planned IS NOT NULL OR next_due_at IS NOT NULL OR waiting_at IS NOT NULL
    )
    FOR NO KEY UPDATE SKIP LOCKED
), given_up AS (
    UPDATE relay_occurrence AS occurrence
    SET state = 'skipped', reason = 'the schedule was disabled while it waited'
    FROM disabled
    WHERE occurrence.schedule_id = disabled.id
      AND occurrence.due_at = disabled.waiting_at AND occurrence.state = 'waiting'
)
UPDATE relay_schedule
SET planned = NULL, next_due_at = NULL, finished_at = NULL, waiting_at = NULL,
    last_error = NULL
FROM disabled WHERE relay_schedule.id = disabled.id
"""

# spread_of() in SQL, of a row of relay_schedule: the first 64 bits of the name's
# SHA-256, modulo the seconds.
SPREAD: Final = """make_interval(secs => CASE WHEN spread_ms >= 1000 THEN (
    (('x' || left(encode(sha256(convert_to(name, 'UTF8')), 'hex'), 8))
        ::bit(32)::bigint * 4294967296::numeric
     + ('x' || substr(encode(sha256(convert_to(name, 'UTF8')), 'hex'), 9, 8))
        ::bit(32)::bigint) % (spread_ms / 1000)
    )::float8 ELSE 0 END)"""

# When find_due() or forget_disabled() has a row: a scan of a small table as well.
NEXT_DUE_AT: Final = f"""(
    SELECT min(CASE
        WHEN NOT enabled OR {_IS_NEEDED} THEN statement_timestamp()
        ELSE next_due_at + {SPREAD} END)
    FROM relay_schedule
    WHERE enabled OR planned IS NOT NULL OR next_due_at IS NOT NULL
       OR waiting_at IS NOT NULL
)"""  # noqa: S608 - joins constants, no value


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


def forget_disabled(connection: psycopg.Connection[Any]) -> None:
    """Take the plan off disabled schedules, so that enabling plans them from then on.

    Transaction: its own; rows locked by others are skipped.
    """
    connection.execute(FORGET_DISABLED)

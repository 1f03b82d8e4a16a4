"""How the jobs of occurrences ended, noted before those jobs are pruned."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import psycopg

__all__ = ["FIRST", "Place", "note_outcomes"]

# Occurrences looked at in one statement: about 10 ms.
BATCH: Final = 1_000

Place = tuple[UUID, datetime]
"""Where a look through the open occurrences has come to: schedule, due instant."""

FIRST: Final[Place] = (UUID(int=0), datetime(1, 1, 2, tzinfo=UTC))

# Index: relay_occurrence_open_idx, then the primary keys. The schedules are locked in
# the order of their ids, so that two of these statements never deadlock. A job that is
# gone has been deleted: by hand, or at its end where its results are not kept.
NOTE: Final = """
WITH looked AS MATERIALIZED (
    SELECT id, schedule_id, due_at, job_id FROM relay_occurrence
    WHERE job_id IS NOT NULL AND outcome IS NULL
      AND (schedule_id, due_at) > (%(schedule_id)s::uuid, %(due_at)s::timestamptz)
    ORDER BY schedule_id, due_at
    LIMIT %(limit)s
), ended AS MATERIALIZED (
    SELECT looked.id, looked.schedule_id, looked.due_at, job.state, job.finished_at
    FROM looked LEFT JOIN relay_job AS job ON job.id = looked.job_id
    WHERE job.id IS NULL OR job.state IN ('completed', 'failed', 'cancelled')
), locked AS MATERIALIZED (
    SELECT id FROM relay_schedule
    WHERE id IN (SELECT schedule_id FROM ended)
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
), noted AS (
    UPDATE relay_occurrence AS occurrence
    SET outcome = coalesce(ended.state, 'deleted')
    FROM ended JOIN locked ON locked.id = ended.schedule_id
    WHERE occurrence.id = ended.id AND occurrence.outcome IS NULL
), succeeded AS (
    UPDATE relay_schedule AS schedule
    SET last_success_due_at = greatest(schedule.last_success_due_at, best.due_at),
        last_success_at = greatest(schedule.last_success_at, best.finished_at)
    FROM (
        SELECT schedule_id, max(due_at) AS due_at, max(finished_at) AS finished_at
        FROM ended WHERE state = 'completed' GROUP BY schedule_id
    ) AS best JOIN locked ON locked.id = best.schedule_id
    WHERE schedule.id = best.schedule_id
)
SELECT schedule_id, due_at, count(*) OVER () FROM looked
ORDER BY schedule_id DESC, due_at DESC
LIMIT 1
"""


def note_outcomes(
    connection: psycopg.Connection[Any], place: Place
) -> tuple[Place, bool]:
    """Note how the jobs of the next open occurrences ended.

    Returns:
        where to go on, and whether there were any.

    Transaction: one statement, its own. Schedules locked by others are left for the
    next time.
    """
    schedule_id, due_at = place
    values = {"schedule_id": schedule_id, "due_at": due_at, "limit": BATCH}
    last = connection.execute(NOTE, values).fetchone()
    if last is None or last[2] < BATCH:
        return FIRST, last is not None
    return (last[0], last[1]), True

"""waiting → failed, once the deadline of a job has passed before it started."""

from __future__ import annotations

from typing import Final

from relay import counts
from relay.engine import rules
from relay.engine.connection import EngineConnection

__all__ = [
    "DEADLINE_EXCEEDED",
    "EXPIRE_BATCH",
    "NEXT_DEADLINE_AT",
    "NOT_STARTED_IN_TIME",
    "expire",
]

# Rows per statement: as many as one promotion moves.
EXPIRE_BATCH: Final = 1_000

# What the row of such a job says.
DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
NOT_STARTED_IN_TIME: Final = "the job had not started when its deadline passed"

# Index: relay_job_deadline_idx. statement_timestamp() is stable and so bounds the scan
# of the index. A claim that has the row is left alone: its worker looks again before
# it starts the job.
EXPIRE: Final = (
    """
WITH late AS MATERIALIZED (
    SELECT id FROM relay_job
    WHERE state IN ('blocked', 'scheduled', 'queued', 'retrying')
      AND deadline_at IS NOT NULL AND deadline_at <= statement_timestamp()
    ORDER BY deadline_at
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
), moved AS (
    UPDATE relay_job AS job
    SET state = 'failed', worker_id = NULL, finished_at = clock_timestamp(),
        error_class = %(error_class)s, error_message = %(error_message)s,
        expires_at = """  # noqa: S608 - constants only
    + rules.expiry("'failed'")
    + """,
        unique_key = CASE WHEN job.unique_until > clock_timestamp()
                     THEN job.unique_key END
    FROM late WHERE job.id = late.id
    RETURNING job.id, job.task, job.queue, job.attempt, job.state, job.deadline_at,
              job.error_class, job.error_message
), history AS (
    INSERT INTO relay_history (job_id, at, event, attempt, detail)
    SELECT id, clock_timestamp(), 'expire', attempt,
           jsonb_build_object('deadline', deadline_at)
    FROM moved
)
"""
    + rules.TOLD_HERE
    + "SELECT queue, task, count(*) FROM moved GROUP BY queue, task"
)

# Index: relay_job_deadline_idx.
NEXT_DEADLINE_AT: Final = """(
    SELECT deadline_at FROM relay_job
    WHERE state IN ('blocked', 'scheduled', 'queued', 'retrying')
      AND deadline_at IS NOT NULL
    ORDER BY deadline_at LIMIT 1
)"""


def expire(connection: EngineConnection, *, limit: int = EXPIRE_BATCH) -> int:
    """Fail at most limit jobs whose deadline has passed while they waited, uncharged.

    Call again while limit come back. Rows locked by others are left to them.

    Transaction: its own.

    Returns:
        how many were failed.
    """
    cursor = connection.execute(
        rules.told(EXPIRE),
        {
            "limit": limit,
            **rules.values(),
            "error_class": DEADLINE_EXCEEDED,
            "error_message": NOT_STARTED_IN_TIME,
        },
    )
    rows = rules.parted(cursor, cursor.fetchall())
    for queue, task, jobs in rows:
        counts.ended(queue, task, "failed", "deadline", jobs)
    return sum(jobs for _, _, jobs in rows)

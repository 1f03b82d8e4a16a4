"""scheduled and retrying → queued when due, behind what already waits."""

from __future__ import annotations

from typing import Final

from relay.engine.connection import EngineConnection
from relay.engine.lease import Ready

__all__ = ["NEXT_DUE_AT", "promote"]

# Rows per statement: short enough a lock, long enough to keep up with 20,000/s.
# Source: docs/explanation/tables.md, "What is pruned".
PROMOTE_BATCH: Final = 1_000

# Index: relay_job_due_idx. statement_timestamp() is stable and so bounds the scan of
# the index; clock_timestamp() would be compared with every row that is due one day.
# The new places are drawn from an ordered subquery: due times become order.
PROMOTE: Final = """
WITH due AS MATERIALIZED (
    SELECT id, nextval('relay_ready_seq') AS ready_seq
    FROM (
        SELECT id FROM relay_job
        WHERE state IN ('scheduled', 'retrying') AND run_at <= statement_timestamp()
        ORDER BY run_at
        LIMIT %(limit)s
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS locked
), moved AS (
    UPDATE relay_job AS job SET state = 'queued', ready_seq = due.ready_seq
    FROM due WHERE job.id = due.id
    RETURNING job.queue, job.priority, job.ready_seq
)
SELECT queue, priority, min(ready_seq), count(*) FROM moved GROUP BY queue, priority
"""

# Index: relay_job_due_idx.
NEXT_DUE_AT: Final = """(
    SELECT run_at FROM relay_job WHERE state IN ('scheduled', 'retrying')
    ORDER BY run_at LIMIT 1
)"""


def promote(
    connection: EngineConnection, *, limit: int = PROMOTE_BATCH
) -> tuple[int, list[Ready]]:
    """Make at most limit jobs ready whose time has come, by the database's clock.

    Call again while limit come back. Rows locked by others are left to them.

    Transaction: its own.

    Returns:
        how many were promoted, and what became ready.
    """
    rows = connection.execute(PROMOTE, {"limit": limit}).fetchall()
    ready = [Ready(queue, priority, seq) for queue, priority, seq, _ in rows]
    return sum(row[3] for row in rows), ready

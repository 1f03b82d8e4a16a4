"""Delete what has outlived its keep time, in batches that hold no lock for long."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final
from uuid import UUID

from relay.conf import get_settings
from relay.engine.connection import EngineConnection

__all__ = [
    "PRUNE_BATCH",
    "Pruner",
    "prune_audit",
    "prune_jobs",
    "prune_occurrences",
    "prune_operations",
    "prune_queue_history",
    "prune_requests",
    "prune_workers",
]

# Source: docs/explanation/tables.md, "What is pruned".
PRUNE_BATCH: Final = 1_000
# What has come to lie below a mark is looked for this often. Source: as above.
SWEEP_SECONDS: Final = 30.0
# A mark below every job's time: microseconds from 1970, exact as a float.
START: Final = -(2**53)
KEEP_WORKERS: Final = timedelta(days=1)
KEEP_QUEUE_HISTORY: Final = timedelta(days=90)
# As long as an Idempotency-Key is remembered. Source: docs/reference/rest.md.
KEEP_REQUESTS: Final = timedelta(hours=24)
# Longer than any catch-up window a schedule may have: the row is what keeps an
# occurrence from firing twice. Source: docs/explanation/schedules.md.
KEEP_OCCURRENCES: Final = timedelta(days=32)

_MARK: Final = "'epoch'::timestamptz + %(mark)s * interval '1 microsecond'"

# Index: relay_job_retention_idx, from the mark on: the entries of what was pruned stay
# until vacuum, and all of them would be read again. What COMPLETE_EXPIRING has put off
# goes on here: the result goes, and the row has the rest of its time; null there is for
# ever. One walk for both, as whatever was passed over would be read again by every
# batch. Children have no foreign key: they go here, found by the ids one by one, never
# by a scan of those of all jobs. What must not be read yet has its expires_at ahead.
PRUNE_JOBS: Final = f"""
WITH old AS MATERIALIZED (
    SELECT id, expires_at,
           state = 'completed' AND coalesce(meta ? 'row_keep_s', false) AS goes_on
    FROM relay_job
    WHERE expires_at <= statement_timestamp() AND expires_at >= {_MARK}
      AND state IN ('completed', 'failed', 'cancelled')
      AND (unique_until IS NULL OR unique_until <= statement_timestamp()
           OR state = 'completed' AND meta ? 'row_keep_s')
    ORDER BY expires_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), emptied AS (
    UPDATE relay_job AS job
    SET result = NULL, meta = nullif(meta - 'row_keep_s', '{{}}'),
        expires_at = CASE
            WHEN unique_until > finished_at
                 + make_interval(secs => (meta->>'row_keep_s')::float8)
            THEN unique_until
            ELSE finished_at
                 + make_interval(secs => (meta->>'row_keep_s')::float8) END
    FROM old WHERE job.id = old.id AND old.goes_on
), gone AS (
    DELETE FROM relay_job AS job USING old WHERE job.id = old.id AND NOT old.goes_on
), attempts AS (
    DELETE FROM relay_attempt
    WHERE job_id = ANY(ARRAY(SELECT id FROM old WHERE NOT goes_on))
), history AS (
    DELETE FROM relay_history
    WHERE job_id = ANY(ARRAY(SELECT id FROM old WHERE NOT goes_on))
), outputs AS (
    DELETE FROM relay_output
    WHERE job_id = ANY(ARRAY(SELECT id FROM old WHERE NOT goes_on))
), steps AS (
    DELETE FROM relay_step
    WHERE job_id = ANY(ARRAY(SELECT id FROM old WHERE NOT goes_on))
)
SELECT count(*),
       (extract(epoch FROM greatest(max(expires_at), 'epoch')) * 1000000)::bigint,
       extract(epoch FROM statement_timestamp() - max(expires_at))::float8
FROM old
"""  # noqa: S608 - joins a constant, no value

# Index: relay_job_retention_idx.
NEXT_END_AT: Final = f"""(
    SELECT expires_at FROM relay_job
    WHERE expires_at >= {_MARK} AND state IN ('completed', 'failed', 'cancelled')
    ORDER BY expires_at LIMIT 1
)"""  # noqa: S608 - joins a constant, no value

# Rows are made in the order of their ids: only the oldest few are looked at.
PRUNE_OCCURRENCES: Final = """
WITH old AS MATERIALIZED (
    SELECT id FROM relay_occurrence
    WHERE created_at < statement_timestamp() - %(keep)s::interval
      AND id IN (SELECT id FROM relay_occurrence ORDER BY id LIMIT %(limit)s)
    FOR UPDATE SKIP LOCKED
)
DELETE FROM relay_occurrence USING old WHERE relay_occurrence.id = old.id
"""

# A worker that still holds running rows stays until they are taken.
PRUNE_WORKERS: Final = """
WITH old AS MATERIALIZED (
    SELECT worker.id FROM relay_worker AS worker
    WHERE worker.state IN ('stopped', 'lost')
      AND worker.heartbeat_at < statement_timestamp() - %(keep)s::interval
      AND NOT EXISTS (
        SELECT FROM relay_job
        WHERE state = 'running' AND worker_id = worker.id
      )
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM relay_worker USING old WHERE relay_worker.id = old.id
"""

# Index: that of relay_history.job_id.
PRUNE_QUEUE_HISTORY: Final = """
WITH old AS MATERIALIZED (
    SELECT id FROM relay_history
    WHERE job_id IS NULL AND at < statement_timestamp() - %(keep)s::interval
    LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM relay_history USING old WHERE relay_history.id = old.id
"""

# Index: relay_request_old_idx.
PRUNE_REQUESTS: Final = """
WITH old AS MATERIALIZED (
    SELECT id FROM relay_request
    WHERE created_at < statement_timestamp() - %(keep)s::interval
    ORDER BY created_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM relay_request USING old WHERE relay_request.id = old.id
"""

# Index: the primary key, thrice: rows are made in the order of their ids, so only the
# oldest few are looked at. By arrays, whatever the statistics say.
PRUNE_AUDIT: Final = """
WITH oldest AS MATERIALIZED (
    SELECT id, at FROM relay_audit ORDER BY id LIMIT %(limit)s
), old AS MATERIALIZED (
    SELECT id FROM relay_audit
    WHERE id = ANY(ARRAY(
        SELECT id FROM oldest WHERE at < statement_timestamp() - %(keep)s::interval
    ))
    FOR UPDATE SKIP LOCKED
)
DELETE FROM relay_audit WHERE id = ANY(ARRAY(SELECT id FROM old))
"""


# Index: the primary key, as PRUNE_AUDIT: rows are made in the order of their ids. They
# end in another: behind a page of those that did not there may be some that did, as
# long as it holds a row old enough to have ended in time. Returns where to go on, too.
PRUNE_OPERATIONS: Final = """
WITH page AS MATERIALIZED (
    SELECT id, created_at, finished_at FROM relay_operation
    WHERE id > %(after)s ORDER BY id LIMIT %(limit)s
), old AS MATERIALIZED (
    SELECT id FROM relay_operation
    WHERE id = ANY(ARRAY(
        SELECT id FROM page
        WHERE finished_at < statement_timestamp() - %(keep)s::interval
    ))
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM relay_operation WHERE id = ANY(ARRAY(SELECT id FROM old)) RETURNING id
)
SELECT (SELECT count(*) FROM gone),
       (SELECT id FROM page
        WHERE (SELECT min(created_at) FROM page)
              < statement_timestamp() - %(keep)s::interval
        ORDER BY id OFFSET %(limit)s - 1)
"""


class Pruner:
    """Prunes jobs batch by batch, the oldest first, and remembers how far it is.

    It goes on where the last batch ended: its mark. What comes to lie below the mark,
    as a row that was locked, is found by a batch from the start, every SWEEP_SECONDS.

    Args:
        monotonic: for tests.

    Attributes:
        late_seconds: for how long the last job of the last batch had been due; 0 if
            there was none.
    """

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._mark = START
        self._sweep_at = float("-inf")
        self.late_seconds = 0.0

    @property
    def next_at(self) -> str:
        """SQL of the instant when the first job from the mark on is due."""
        return NEXT_END_AT % {"mark": self._mark}

    def prune(self, connection: EngineConnection, *, limit: int = PRUNE_BATCH) -> int:
        """Prune at most limit finished jobs past their retention; return how many.

        A job goes with its attempts, history, logs and steps. Where only its result is
        kept for less, that goes, and the job has the rest of its time. Call again while
        limit come back.

        Transaction: its own. Rows locked by others are skipped.
        """
        now, mark = self._monotonic(), self._mark
        if now >= self._sweep_at:
            # A sweep that fails, as by a timeout, is not tried again at once.
            self._sweep_at, mark = now + SWEEP_SECONDS, START
        row = connection.execute(PRUNE_JOBS, {"limit": limit, "mark": mark}).fetchone()
        count, last, late_seconds = row or (0, START, None)
        if count:
            # A sweep that has found all there is below the mark does not lower it.
            self._mark = last if count >= limit else max(last, self._mark)
        self.late_seconds = late_seconds or 0.0
        return int(count)


def prune_jobs(connection: EngineConnection, *, limit: int = PRUNE_BATCH) -> int:
    """Prune at most limit finished jobs, looking from the start; return how many.

    Transaction: its own. As Pruner.prune().
    """
    return Pruner().prune(connection, limit=limit)


def prune_occurrences(connection: EngineConnection, *, limit: int = PRUNE_BATCH) -> int:
    """Delete at most limit old occurrences; return how many."""
    return connection.execute(
        PRUNE_OCCURRENCES, {"keep": KEEP_OCCURRENCES, "limit": limit}
    ).rowcount


def prune_workers(connection: EngineConnection, *, limit: int = PRUNE_BATCH) -> int:
    """Delete at most limit rows of workers that are long gone; return how many."""
    return connection.execute(
        PRUNE_WORKERS, {"keep": KEEP_WORKERS, "limit": limit}
    ).rowcount


def prune_queue_history(
    connection: EngineConnection, *, limit: int = PRUNE_BATCH
) -> int:
    """Delete at most limit old history rows of queues; return how many."""
    return connection.execute(
        PRUNE_QUEUE_HISTORY, {"keep": KEEP_QUEUE_HISTORY, "limit": limit}
    ).rowcount


def prune_requests(connection: EngineConnection, *, limit: int = PRUNE_BATCH) -> int:
    """Delete at most limit idempotency keys that are old; return how many."""
    return connection.execute(
        PRUNE_REQUESTS, {"keep": KEEP_REQUESTS, "limit": limit}
    ).rowcount


def prune_audit(connection: EngineConnection, *, limit: int = PRUNE_BATCH) -> int:
    """Delete at most limit rows of the record of acts that are old; return how many.

    None where RELAY["RETENTION_AUDIT"] is None.
    """
    keep = get_settings().retention_audit
    if keep is None:
        return 0
    return connection.execute(PRUNE_AUDIT, {"keep": keep, "limit": limit}).rowcount


def prune_operations(connection: EngineConnection, *, limit: int = PRUNE_BATCH) -> int:
    """Delete at most limit bulk operations that ended as long ago; return how many."""
    keep = get_settings().retention_audit
    if keep is None:
        return 0
    after: UUID | None = UUID(int=0)
    deleted = 0
    while after is not None and not deleted:
        values = {"keep": keep, "limit": limit, "after": after}
        [(deleted, after)] = connection.execute(PRUNE_OPERATIONS, values).fetchall()
    return deleted

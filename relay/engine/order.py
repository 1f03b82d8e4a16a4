"""The order of locks: whatever locks several jobs takes them in the order of their ids.

Source: docs/explanation/leases.md, "In which order rows are locked".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from relay.engine.connection import EngineConnection, fetch_all

__all__ = ["LOCK_ENDED", "LOCK_HOLDERS", "lock_holders", "send_locks"]

# Index: the primary key, in the order of the array: the connections of role "hot"
# cannot sort. Rows that are not this worker's are not written, and so not waited for.
LOCK_ENDED: Final = """
WITH locked AS MATERIALIZED (
    SELECT job.id
    FROM unnest(%(ids)s::uuid[]) AS ended(id)
    JOIN relay_job AS job ON job.id = ended.id
    WHERE CASE WHEN job.state = 'running' THEN job.worker_id = %(worker_id)s END
    FOR NO KEY UPDATE OF job
)
SELECT count(*) FROM locked
"""


def send_locks(
    connection: EngineConnection, ids: Iterable[UUID], *, worker_id: UUID
) -> None:
    """Lock the rows of this worker that several statements are going to end.

    To be sent before them: each keeps the order by itself, but the second would go back
    to ids below those of the first, and wait for who waits for that. Nobody waits for
    an answer; where one statement locks a whole batch none is needed.

    Transaction: must be called inside EngineConnection.block().
    """
    connection.execute(
        LOCK_ENDED,
        {
            # As PostgreSQL's text: psycopg would look at each for its type.
            "ids": f"{{{','.join(sorted(one.hex for one in ids))}}}",
            "worker_id": worker_id,
        },
        prepare=connection.prepares,
    )


# Index: relay_job_unique_idx; the states are hidden, as in control.FREE_KEY. An ended
# one is locked also where its window is ahead: that may end before the key is freed.
LOCK_HOLDERS: Final = """
WITH locked AS MATERIALIZED (
    SELECT id FROM relay_job
    WHERE unique_key = ANY(%(keys)s::bytea[])
      AND CASE WHEN state IN ('completed', 'failed', 'cancelled') THEN true
          WHEN state IN ('blocked', 'scheduled', 'queued', 'retrying')
          THEN unique_key = ANY(%(changed)s::bytea[]) END
    ORDER BY id
    FOR NO KEY UPDATE
)
SELECT count(*) FROM locked
"""


def lock_holders(
    keys: Sequence[bytes], *, changed: Sequence[bytes], using: str
) -> None:
    """Lock the jobs whose keys are going to be freed, and those to be changed for them.

    To be called before two statements do the one and the other; where one key is
    asked for, or no holder is changed, one statement is all there is.

    Args:
        changed: those of the keys whose holders are changed while they wait.

    Transaction: must be called inside one, on Django's connection.
    """
    fetch_all(LOCK_HOLDERS, {"keys": keys, "changed": changed}, using=using)

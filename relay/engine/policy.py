"""How the jobs of a queue are ordered: by priority, or first in, first out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Final, Literal
from uuid import UUID

from django.db import transaction

from relay.conf import check_queue_name, get_settings
from relay.engine import wakeup
from relay.engine.connection import fetch_all
from relay.exceptions import UnknownQueue

__all__ = ["FLATTEN_BATCH", "Policy", "set_policy"]

Policy = Literal["priority", "fifo"]

# Rows per statement, so that no lock is held for long: as many as promote() moves.
FLATTEN_BATCH: Final = 1_000
_ID_BYTES: Final = 16

# A queue without a row gets one only if the caller knows it, as with a pause.
SET_POLICY: Final = """
WITH known AS (
    SELECT %(queue)s AS name
    WHERE %(known)s OR EXISTS (SELECT FROM relay_queue WHERE name = %(queue)s)
), changed AS (
    INSERT INTO relay_queue AS queue (name, policy)
    SELECT name, %(policy)s FROM known
    ON CONFLICT (name) DO UPDATE SET policy = excluded.policy
    WHERE queue.policy <> excluded.policy
    RETURNING name, policy
), noted AS (
    INSERT INTO relay_history (at, event, actor, detail)
    SELECT clock_timestamp(), 'policy', %(actor)s,
           jsonb_build_object('queue', name, 'policy', policy)
    FROM changed
    RETURNING id
)
SELECT EXISTS (SELECT FROM noted) FROM known
"""

# Indexes: relay_job_ready_idx, relay_job_due_idx, relay_job_held_idx. Read once, as
# there is no index in this order, and as 16 bytes each: they may be millions. Queued
# ones without a priority count from the first that has one: they have to stay behind
# it.
FIND_READY: Final = """
WITH ready AS MATERIALIZED (
    SELECT id, priority, ready_seq FROM relay_job
    WHERE state = 'queued' AND concurrency_key IS NULL AND queue = %(queue)s
)
SELECT coalesce(string_agg(uuid_send(id), ''::bytea ORDER BY ready_seq), '')
FROM ready
WHERE ready_seq >= (SELECT min(ready_seq) FROM ready WHERE priority <> 0)
"""
FIND_OTHERS: Final = """
SELECT coalesce(string_agg(uuid_send(id), ''::bytea), '') FROM (
    SELECT id FROM relay_job
    WHERE state IN ('scheduled', 'retrying') AND queue = %(queue)s AND priority <> 0
    UNION ALL
    SELECT id FROM relay_job
    WHERE state = 'running' AND queue = %(queue)s AND priority <> 0
) AS job
"""

# Index: the primary key. Locked in the order of ids, as every act over many jobs does.
# A row that became ready meanwhile goes behind the others; one that was claimed keeps
# its place, and only loses its priority for the time when it is ready again.
FLATTEN: Final = """
WITH locked AS MATERIALIZED (
    SELECT id, state, ready_seq FROM relay_job
    WHERE id = ANY(%(ids)s::uuid[]) AND queue = %(queue)s
      AND state NOT IN ('completed', 'failed', 'cancelled')
    ORDER BY id
    FOR NO KEY UPDATE
), numbered AS MATERIALIZED (
    SELECT id, nextval('relay_ready_seq') AS ready_seq
    FROM (
        SELECT id FROM locked WHERE state = 'queued' ORDER BY ready_seq
    ) AS ordered
), moved AS (
    UPDATE relay_job AS job
    SET priority = 0, ready_seq = coalesce(numbered.ready_seq, job.ready_seq)
    FROM locked LEFT JOIN numbered ON numbered.id = locked.id
    WHERE job.id = locked.id
    RETURNING job.state, job.ready_seq
)
SELECT min(ready_seq) FILTER (WHERE state = 'queued') FROM moved
"""


def set_policy(
    queue: str,
    policy: Policy,
    *,
    actor: str | None,
    using: str,
    known: Collection[str] = (),
) -> bool:
    """Order the queue's jobs by priority, or "fifo"; return whether that is new.

    A fifo queue stores priority 0 with every job, so what became ready first starts
    first. Jobs that have not ended lose their priority after the commit, in batches;
    those that are ready keep their order, and come behind what is enqueued meanwhile.
    What a transaction enqueues that was open at the switch keeps its priority: a
    repeat of the call takes it away.

    Args:
        known: names that may get a row besides those of settings and of rows.

    Raises:
        UnknownQueue: nothing names the queue.
        ValueError: the name cannot name a queue, or the policy is none.

    Transaction: one statement; joins the caller's on Django's connection. The batches
    are transactions of their own, after the commit.
    """
    check_queue_name(queue)
    if policy not in ("priority", "fifo"):
        raise ValueError(f"{policy!r} is no policy: give 'priority' or 'fifo'")
    values = {
        "queue": queue,
        "policy": policy,
        "known": queue in known or queue in get_settings().queues,
        "actor": actor,
    }
    rows = fetch_all(SET_POLICY, values, using=using)
    if not rows:
        raise UnknownQueue(
            f"no settings, task or row names the queue {queue!r}: add it to "
            "RELAY['QUEUES'] or correct the name"
        )
    if policy == "fifo":
        transaction.on_commit(partial(_flatten, queue, using), using=using)
    return bool(rows[0][0])


def _flatten(queue: str, using: str) -> None:
    for statement in (FIND_OTHERS, FIND_READY):
        [(found,)] = fetch_all(statement, {"queue": queue}, using=using)
        for start in range(0, len(found), FLATTEN_BATCH * _ID_BYTES):
            part = found[start : start + FLATTEN_BATCH * _ID_BYTES]
            ids = [
                UUID(bytes=bytes(part[at : at + _ID_BYTES]))
                for at in range(0, len(part), _ID_BYTES)
            ]
            _flatten_batch(queue, ids, using=using)


def _flatten_batch(queue: str, ids: Sequence[UUID], *, using: str) -> None:
    [(first,)] = fetch_all(FLATTEN, {"queue": queue, "ids": list(ids)}, using=using)
    if first is not None:
        wakeup.announce(using, queue, 0, first)

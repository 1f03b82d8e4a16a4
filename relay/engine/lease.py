"""Leases of workers: register, renew, give up; and take back the jobs of the lost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal
from uuid import UUID

from relay import counts
from relay.conf import OWN_QUEUE
from relay.engine import rules
from relay.engine.connection import EngineConnection

__all__ = [
    "NEXT_LEASE_END_AT",
    "Ready",
    "WorkerRow",
    "count_and_ready",
    "give_up",
    "orphan_holders",
    "register",
    "renew",
    "set_state",
    "take",
]

# Jobs taken from one lost worker per statement, so that no lock is held for long.
# Source: docs/explanation/leases.md, "Constants".
TAKE_BATCH: Final = 1_000

REGISTER: Final = """
INSERT INTO relay_worker (id, name, supervisor, host, pid, kind, queues, concurrency,
                          version, state, started_at, heartbeat_at, lease_expires_at)
SELECT id, name, supervisor, host, pid, kind,
       ARRAY(SELECT jsonb_array_elements_text(queues)), concurrency, version,
       state, clock_timestamp(), clock_timestamp(),
       clock_timestamp() + %(lease)s::interval
FROM jsonb_to_record(%(worker)s::jsonb) AS worker(
    id uuid, name text, supervisor uuid, host text, pid int, kind text, queues jsonb,
    concurrency int, version text, state text)
ON CONFLICT (id) DO UPDATE
SET lease_expires_at = excluded.lease_expires_at, heartbeat_at = excluded.heartbeat_at
WHERE relay_worker.state NOT IN ('lost', 'stopped')
"""

ENSURE_QUEUES: Final = """
INSERT INTO relay_queue (name) SELECT unnest(%(queues)s::text[]) ORDER BY 1
ON CONFLICT DO NOTHING
"""

# One statement for all children of a worker. A worker whose id does not come back was
# given up: its child must be killed and a new one started under a new id. Locked in the
# order of ids, as whatever takes several rows of workers does.
_LIVE: Final = """
WITH live AS MATERIALIZED (
    SELECT id FROM relay_worker
    WHERE id = ANY(%(workers)s) AND state NOT IN ('lost', 'stopped')
    ORDER BY id
    FOR NO KEY UPDATE
)
"""
RENEW: Final = (
    _LIVE
    + """
UPDATE relay_worker
SET lease_expires_at = clock_timestamp() + %(lease)s::interval,
    heartbeat_at = clock_timestamp()
FROM live WHERE relay_worker.id = live.id
RETURNING relay_worker.id
"""
)

SET_STATE: Final = (
    _LIVE
    + """
UPDATE relay_worker SET state = %(state)s FROM live WHERE relay_worker.id = live.id
"""
)

# The first transaction of the reaper, committed before any job is touched: renewal and
# this fight for the worker's row, finish and TAKE for the job's. An open renewal is
# skipped; one that commits before the lock has the condition looked at again.
GIVE_UP: Final = """
WITH dead AS MATERIALIZED (
    SELECT id FROM relay_worker
    WHERE state NOT IN ('lost', 'stopped') AND lease_expires_at < clock_timestamp()
    FOR UPDATE SKIP LOCKED
)
UPDATE relay_worker SET state = 'lost' FROM dead WHERE relay_worker.id = dead.id
RETURNING relay_worker.id
"""

# A scan of a small table.
NEXT_LEASE_END_AT: Final = """(
    SELECT min(lease_expires_at) FROM relay_worker
    WHERE state NOT IN ('lost', 'stopped')
)"""

# Index: relay_job_held_idx. No ORDER BY: there is no index for one. Lost and stopped
# are final, so whoever was seen there stays there: a live worker loses nothing even
# if its id is passed by mistake.
TAKE: Final = (
    """
WITH taken AS MATERIALIZED (
    SELECT id, losses + 1 >= %(loss_limit)s OR cancel_requested_at IS NOT NULL AS ends
    FROM relay_job
    WHERE state = 'running' AND worker_id = %(worker_id)s
      AND NOT EXISTS (
        SELECT FROM relay_worker
        WHERE id = %(worker_id)s AND state NOT IN ('lost', 'stopped')
      )
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
), moved AS (
    UPDATE relay_job AS job
    SET state = CASE WHEN cancel_requested_at IS NOT NULL THEN 'cancelled'
                WHEN losses + 1 >= %(loss_limit)s THEN 'failed' ELSE 'queued' END,
        ready_seq = CASE WHEN taken.ends THEN ready_seq
                    ELSE nextval('relay_ready_seq') END,
        worker_id = CASE WHEN taken.ends THEN worker_id END,
        finished_at = CASE WHEN taken.ends THEN clock_timestamp() END,
        expires_at = CASE WHEN taken.ends THEN """  # noqa: S608 - constants only
    + rules.expiry(
        "CASE WHEN cancel_requested_at IS NULL THEN 'failed' ELSE 'cancelled' END"
    )
    + """ END,
        unique_key = CASE WHEN NOT taken.ends OR unique_until > clock_timestamp()
                     THEN unique_key END,
        losses = losses + 1,
        error_class = CASE WHEN losses + 1 >= %(loss_limit)s
                                AND cancel_requested_at IS NULL THEN 'PoisonJob'
                      ELSE 'WorkerLost' END,
        error_message = 'the worker was lost: its lease ran out'
    FROM taken WHERE job.id = taken.id
    RETURNING job.id, job.task, job.attempt, job.queue, job.priority, job.ready_seq,
              job.started_at, job.state, job.error_class, job.error_message
), attempts AS (
    INSERT INTO relay_attempt (job_id, attempt, worker_id, outcome, error_class,
                               error_message, started_at, ended_at)
    SELECT id, attempt, %(worker_id)s, 'lost', 'WorkerLost',
           'the worker was lost: its lease ran out', started_at, clock_timestamp()
    FROM moved
), history AS (
    INSERT INTO relay_history (job_id, at, event, attempt, detail)
    SELECT id, clock_timestamp(),
           CASE state WHEN 'cancelled' THEN 'cancel' ELSE 'reclaim' END, attempt,
           jsonb_build_object('worker', %(worker_id)s::uuid)
    FROM moved
)
"""
    + rules.TOLD_HERE
    + """
SELECT queue, priority, min(ready_seq) FILTER (WHERE state = 'queued'), count(*), task,
       state
FROM moved GROUP BY queue, priority, task, state
"""
)

# Who holds running jobs but is lost, stopped or missing: what a crash between the two
# transactions of the reaper leaves, and claims that went astray.
ORPHAN_HOLDERS: Final = """
SELECT holder.worker_id
FROM (SELECT DISTINCT worker_id FROM relay_job WHERE state = 'running') AS holder
LEFT JOIN relay_worker AS worker ON worker.id = holder.worker_id
WHERE worker.id IS NULL OR worker.state IN ('lost', 'stopped')
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """What a child process says of itself when it is registered."""

    id: UUID
    name: str
    supervisor: UUID
    host: str
    pid: int
    queues: Sequence[str]
    concurrency: int
    version: str
    kind: Literal["process", "embedded", "http"] = "process"
    state: Literal["running", "quiet"] = "running"


@dataclass(frozen=True, slots=True)
class Ready:
    """Jobs of one queue and priority that became ready together."""

    queue: str
    priority: int
    ready_seq: int


def register(
    connection: EngineConnection, worker: WorkerRow, *, lease: timedelta
) -> None:
    """Insert a worker's row with a fresh lease, and the rows of queues it serves.

    The row names OWN_QUEUE too, which every worker serves and which has no row.

    A repeat, as after a lost answer, is a renewal: the lease always runs from the
    last call. A row that is lost or stopped stays as it is.

    Transaction: one statement each, in autocommit.
    """
    connection.execute(ENSURE_QUEUES, {"queues": list(worker.queues)})
    document = {
        "id": str(worker.id),
        "name": worker.name,
        "supervisor": str(worker.supervisor),
        "host": worker.host,
        "pid": worker.pid,
        "kind": worker.kind,
        "queues": [*worker.queues, OWN_QUEUE],
        "concurrency": worker.concurrency,
        "version": worker.version,
        "state": worker.state,
    }
    connection.execute(REGISTER, {"worker": json.dumps(document), "lease": lease})


def renew(
    connection: EngineConnection, workers: Iterable[UUID], *, lease: timedelta
) -> set[UUID]:
    """Renew the leases of these workers; return those that still have one."""
    rows = connection.execute(RENEW, {"workers": list(workers), "lease": lease})
    return {row[0] for row in rows}


def set_state(
    connection: EngineConnection,
    workers: Iterable[UUID],
    state: Literal["running", "quiet", "draining", "stopped"],
) -> None:
    """Say what these workers are doing; lost and stopped are final."""
    connection.execute(SET_STATE, {"workers": list(workers), "state": state})


def give_up(connection: EngineConnection) -> list[UUID]:
    """Mark the workers whose lease has run out as lost, and return their ids.

    Call it only when this connection has been sound for one full lease: after an
    outage of the database every lease has run out.

    Transaction: its own, committed before take() touches their jobs.
    """
    return [row[0] for row in connection.execute(GIVE_UP)]


def orphan_holders(connection: EngineConnection) -> list[UUID]:
    """Return who holds running jobs but is lost, stopped or has no row.

    Their jobs are for take(), as those of workers just given up.
    """
    return [row[0] for row in connection.execute(ORPHAN_HOLDERS)]


def take(
    connection: EngineConnection,
    worker_id: UUID,
    *,
    loss_limit: int,
    limit: int = TAKE_BATCH,
) -> tuple[int, list[Ready]]:
    """Take at most limit jobs from a lost worker, ready again at once.

    A job taken loss_limit times fails as poison. Call again while limit come back.
    From a worker that is neither lost, stopped nor without a row, nothing is taken.

    Transaction: its own. Rows that a finish holds are skipped: the finish wins.

    Returns:
        how many were taken, and what became ready.
    """
    cursor = connection.execute(
        rules.told(TAKE),
        {
            "worker_id": worker_id,
            "limit": limit,
            "loss_limit": loss_limit,
            **rules.values(),
        },
    )
    return count_and_ready(rules.parted(cursor, cursor.fetchall()), "lost")


def count_and_ready(
    rows: Sequence[tuple[Any, ...]], reason: str
) -> tuple[int, list[Ready]]:
    """Read what was moved, and count it.

    Args:
        rows: (queue, priority, lowest ready_seq or None, count, task, state).
        reason: of relay_job_errors_total, for what is none of the worker's own acts.
    """
    for queue, _, _, jobs, task, state in rows:
        counts.ended(queue, task, state, reason, jobs)
    ready = [Ready(row[0], row[1], row[2]) for row in rows if row[2] is not None]
    return sum(row[3] for row in rows), ready

"""Leases of workers: register, renew, give up; and whose jobs come back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal
from uuid import UUID

from relay.conf import LONGEST
from relay.engine import rules
from relay.engine.connection import EngineConnection
from relay.engine.finish import Settled

__all__ = [
    "DeadChild",
    "Ready",
    "WorkerRow",
    "cancel_requested",
    "give_up",
    "held",
    "orphan_holders",
    "register",
    "release_held",
    "renew",
    "set_state",
    "settle_dead_child",
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
       'running', clock_timestamp(), clock_timestamp(),
       clock_timestamp() + %(lease)s::interval
FROM jsonb_to_record(%(worker)s::jsonb) AS worker(
    id uuid, name text, supervisor uuid, host text, pid int, kind text, queues jsonb,
    concurrency int, version text)
ON CONFLICT (id) DO UPDATE
SET lease_expires_at = excluded.lease_expires_at, heartbeat_at = excluded.heartbeat_at
WHERE relay_worker.state NOT IN ('lost', 'stopped')
"""

ENSURE_QUEUES: Final = """
INSERT INTO relay_queue (name) SELECT unnest(%(queues)s::text[]) ORDER BY 1
ON CONFLICT DO NOTHING
"""

# One statement for all children of a worker. A worker whose id does not come back was
# given up: its child must be killed and a new one started under a new id.
RENEW: Final = """
UPDATE relay_worker
SET lease_expires_at = clock_timestamp() + %(lease)s::interval,
    heartbeat_at = clock_timestamp()
WHERE id = ANY(%(workers)s) AND state NOT IN ('lost', 'stopped')
RETURNING id
"""

SET_STATE: Final = """
UPDATE relay_worker SET state = %(state)s
WHERE id = ANY(%(workers)s) AND state NOT IN ('lost', 'stopped')
"""

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
SELECT queue, priority, min(ready_seq) FILTER (WHERE state = 'queued'), count(*)
FROM moved GROUP BY queue, priority
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

# Index: relay_job_held_idx, by the queues these workers serve.
CANCEL_REQUESTED: Final = """
SELECT worker_id, id, attempt FROM relay_job
WHERE state = 'running' AND queue = ANY(%(queues)s) AND worker_id = ANY(%(workers)s)
  AND cancel_requested_at IS NOT NULL
"""

# A child that is gone for good, seen by its parent. Attempts it had started are
# charged as crashes unless relay killed it; the rest goes back as it came. Locked in
# the order of ids, as a finish of the child's that is still open in the server does.
# Locked rows need no second look at the worker: it would join all pairs of them.
SETTLE_DEAD_CHILD: Final = (
    """
WITH begun AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(started)s::jsonb)
        AS started(id uuid, attempt int, delay_s float8[])
), held AS MATERIALIZED (
    SELECT id, attempt, crashes, cancel_requested_at FROM relay_job
    WHERE state = 'running' AND worker_id = %(worker_id)s
    ORDER BY id
    FOR NO KEY UPDATE
), judged AS MATERIALIZED (
    SELECT held.id, CASE
        WHEN held.cancel_requested_at IS NOT NULL THEN 'cancel'
        WHEN begun.id IS NULL OR NOT %(is_charged)s THEN 'release'
        WHEN held.crashes + 1 >= %(crash_limit)s THEN 'poison'
        WHEN held.crashes = 0 THEN 'again'
        ELSE 'later' END AS act,
        coalesce(
            begun.delay_s[least(held.crashes + 1, cardinality(begun.delay_s))], 0
        ) AS delay_s
    FROM held LEFT JOIN begun ON begun.id = held.id AND begun.attempt = held.attempt
), moved AS (
    UPDATE relay_job AS job
    SET state = CASE act WHEN 'cancel' THEN 'cancelled' WHEN 'poison' THEN 'failed'
                WHEN 'later' THEN 'retrying' ELSE 'queued' END,
        ready_seq = CASE WHEN act IN ('again', 'release')
                    THEN nextval('relay_ready_seq') ELSE ready_seq END,
        run_at = CASE act WHEN 'later'
                 THEN clock_timestamp() + make_interval(secs => judged.delay_s)
                 ELSE run_at END,
        crashes = crashes + CASE WHEN act IN ('cancel', 'release') THEN 0 ELSE 1 END,
        worker_id = CASE WHEN act IN ('cancel', 'poison') THEN worker_id END,
        started_at = CASE act WHEN 'release' THEN NULL ELSE started_at END,
        finished_at = CASE WHEN act IN ('cancel', 'poison')
                      THEN clock_timestamp() END,
        expires_at = CASE WHEN act IN ('cancel', 'poison') THEN """  # noqa: S608 - constants only
    + rules.expiry("CASE act WHEN 'poison' THEN 'failed' ELSE 'cancelled' END")
    + """ END,
        unique_key = CASE WHEN act NOT IN ('cancel', 'poison')
                               OR unique_until > clock_timestamp()
                     THEN unique_key END,
        error_class = CASE WHEN act IN ('cancel', 'release') THEN error_class
                      WHEN act = 'poison' THEN 'PoisonJob' ELSE 'WorkerDied' END,
        error_message = CASE WHEN act IN ('cancel', 'release') THEN error_message
                        ELSE %(reason)s::text END
    FROM judged WHERE job.id = judged.id
    RETURNING job.id, job.task, job.attempt, job.queue, job.priority, job.ready_seq,
              job.state, job.started_at, job.error_class, job.error_message, judged.act
), attempts AS (
    INSERT INTO relay_attempt (job_id, attempt, worker_id, outcome, error_class,
                               error_message, started_at, ended_at)
    SELECT id, attempt, %(worker_id)s, 'crash', 'WorkerDied', %(reason)s::text,
           started_at, clock_timestamp()
    FROM moved WHERE act NOT IN ('cancel', 'release')
), history AS (
    INSERT INTO relay_history (job_id, at, event, attempt, detail)
    SELECT id, clock_timestamp(), CASE WHEN act IN ('cancel', 'release') THEN act
           ELSE 'crash' END, attempt, jsonb_build_object('reason', %(reason)s::text)
    FROM moved
)
"""
    + rules.TOLD_HERE
    + """
SELECT queue, priority, min(ready_seq) FILTER (WHERE state = 'queued'), count(*)
FROM moved GROUP BY queue, priority
"""
)

# Index: relay_job_held_idx, by the queues this worker serves.
HELD: Final = """
SELECT id, attempt FROM relay_job
WHERE state = 'running' AND queue = ANY(%(queues)s) AND worker_id = %(worker_id)s
"""

# No ORDER BY: the connections of role "hot" cannot sort, and would walk the whole
# primary key for one. The document is in the order of ids, and so are the locks.
RELEASE_HELD: Final = (
    """
WITH unknown AS MATERIALIZED (
    SELECT job.id
    FROM jsonb_to_recordset(%(jobs)s::jsonb) AS held(id uuid, attempt int)
    JOIN relay_job AS job ON job.id = held.id
    WHERE CASE WHEN job.state = 'running' AND job.attempt = held.attempt
          THEN job.worker_id = %(worker_id)s END
    FOR NO KEY UPDATE OF job
), moved AS (
    UPDATE relay_job AS job
    SET state = CASE WHEN cancel_requested_at IS NULL THEN 'queued'
                ELSE 'cancelled' END,
        ready_seq = nextval('relay_ready_seq'), worker_id = NULL, started_at = NULL,
        finished_at = CASE WHEN cancel_requested_at IS NOT NULL
                      THEN clock_timestamp() END,
        expires_at = CASE WHEN cancel_requested_at IS NOT NULL THEN """  # noqa: S608 - constants only
    + rules.expiry("'cancelled'")
    + """ END,
        unique_key = CASE WHEN cancel_requested_at IS NULL
                               OR unique_until > clock_timestamp()
                     THEN unique_key END
    FROM unknown
    WHERE job.id = unknown.id
    RETURNING job.id, job.attempt, job.state
), history AS (
    INSERT INTO relay_history (job_id, at, event, attempt, detail)
    SELECT id, clock_timestamp(),
           CASE state WHEN 'cancelled' THEN 'cancel' ELSE 'release' END, attempt,
           jsonb_build_object('reason', %(reason)s::text)
    FROM moved
)
SELECT id FROM moved
"""
)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadChild:
    """A child process that has ended with jobs in its hands.

    Attributes:
        started: the attempts it had started, by its slot table, each with the delays
            in seconds that the job waits after its first, second … crash.
        timed_out: how those end that were not stopped by their timeouts: written by
            finish.send_settled() before the rest.
        is_charged: False where relay itself killed it.
        reason: how it ended, for people.
    """

    worker_id: UUID
    started: Sequence[tuple[UUID, int, Sequence[float]]]
    is_charged: bool
    reason: str
    timed_out: Sequence[Settled] = ()


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
        "queues": list(worker.queues),
        "concurrency": worker.concurrency,
        "version": worker.version,
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
    rows = connection.execute(
        rules.told(TAKE),
        {
            "worker_id": worker_id,
            "limit": limit,
            "loss_limit": loss_limit,
            **rules.values(),
        },
    ).fetchall()
    return _count_and_ready(rows)


def settle_dead_child(
    connection: EngineConnection,
    child: DeadChild,
    *,
    crash_limit: int,
) -> tuple[int, list[Ready]]:
    """Give back what a dead child held, charging a crash for what it had started.

    The first crash is ready again at once, later ones wait, and the crash_limit-th
    fails the job as poison. A repeat finds nothing left to do.

    Transaction: its own. Call it only after the process was reaped.
    """
    document = [
        {
            "id": str(job_id),
            "attempt": attempt,
            "delay_s": [min(delay, LONGEST.total_seconds()) for delay in delays],
        }
        for job_id, attempt, delays in child.started
    ]
    rows = connection.execute(
        rules.told(SETTLE_DEAD_CHILD),
        {
            "worker_id": child.worker_id,
            "started": json.dumps(document),
            "is_charged": child.is_charged,
            "reason": child.reason,
            "crash_limit": crash_limit,
            **rules.values(),
        },
    ).fetchall()
    return _count_and_ready(rows)


def cancel_requested(
    connection: EngineConnection, workers: Iterable[UUID], queues: Sequence[str]
) -> list[tuple[UUID, UUID, int]]:
    """Return what these workers run that is to stop: (worker, job id, attempt)."""
    rows: list[tuple[UUID, UUID, int]] = connection.execute(
        CANCEL_REQUESTED, {"workers": list(workers), "queues": list(queues)}
    ).fetchall()
    return rows


def held(
    connection: EngineConnection, worker_id: UUID, queues: Sequence[str]
) -> dict[UUID, int]:
    """Return the running rows of a worker: job id to attempt."""
    rows = connection.execute(
        HELD, {"worker_id": worker_id, "queues": list(queues)}
    ).fetchall()
    return dict(rows)


def release_held(
    connection: EngineConnection,
    worker_id: UUID,
    jobs: Iterable[tuple[UUID, int]],
    *,
    reason: str,
) -> set[UUID]:
    """Hand back running rows uncharged, ready at once; fenced by their attempts.

    Those that were asked to stop are cancelled.
    """
    document = [
        {"id": str(job_id), "attempt": attempt} for job_id, attempt in sorted(jobs)
    ]
    rows: Any = connection.execute(
        RELEASE_HELD,
        {
            "jobs": json.dumps(document),
            "worker_id": worker_id,
            "reason": reason,
            **rules.values(),
        },
    )
    return {row[0] for row in rows}


def _count_and_ready(rows: Sequence[tuple[Any, ...]]) -> tuple[int, list[Ready]]:
    ready = [Ready(row[0], row[1], row[2]) for row in rows if row[2] is not None]
    return sum(row[3] for row in rows), ready

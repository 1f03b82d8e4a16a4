"""What a worker holds: found, handed back, settled when its process has died."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from relay.conf import LONGEST
from relay.engine import rules
from relay.engine.connection import EngineConnection
from relay.engine.finish import Settled
from relay.engine.lease import Ready, count_and_ready

__all__ = [
    "DeadChild",
    "cancel_requested",
    "held",
    "release_held",
    "settle_dead_child",
]


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
        AS started(id uuid, attempt int)
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
            waits.delay_s[least(held.crashes + 1, cardinality(waits.delay_s))], 0
        ) AS delay_s
    FROM (SELECT %(delay_s)s::float8[] AS delay_s) AS waits, held
    LEFT JOIN begun ON begun.id = held.id AND begun.attempt = held.attempt
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
SELECT queue, priority, min(ready_seq) FILTER (WHERE state = 'queued'), count(*), task,
       CASE act WHEN 'release' THEN act ELSE state END
FROM moved GROUP BY queue, priority, task, 6
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
class DeadChild:
    """A child process that has ended with jobs in its hands.

    Attributes:
        started: the attempts it had started, by its slot table.
        delays: seconds that a job of them waits after its first, second … crash.
        timed_out: how those end that were not stopped by their timeouts: written by
            finish.send_settled() before the rest.
        is_charged: False where relay itself killed it.
        reason: how it ended, for people.
    """

    worker_id: UUID
    started: Sequence[tuple[UUID, int]]
    is_charged: bool
    reason: str
    delays: Sequence[float] = ()
    timed_out: Sequence[Settled] = ()


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
        {"id": str(job_id), "attempt": attempt} for job_id, attempt in child.started
    ]
    longest = LONGEST.total_seconds()
    cursor = connection.execute(
        rules.told(SETTLE_DEAD_CHILD),
        {
            "worker_id": child.worker_id,
            "started": json.dumps(document),
            "delay_s": [min(float(delay), longest) for delay in child.delays],
            "is_charged": child.is_charged,
            "reason": child.reason,
            "crash_limit": crash_limit,
            **rules.values(),
        },
    )
    return count_and_ready(rules.parted(cursor, cursor.fetchall()), "killed")


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

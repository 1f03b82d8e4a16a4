"""Attempts whose own process has died, while the worker that holds them lives on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from relay.conf import LONGEST
from relay.engine import rules
from relay.engine.connection import EngineConnection
from relay.engine.finish import Settled
from relay.retry import Backoff

__all__ = ["crash_delays", "send_crashed"]

# A later crash waits as long as this one: a limit may be meant as none.
_MOST_DELAYS: Final = 1_000

# The rules of lease.SETTLE_DEAD_CHILD, row by row and fenced as a finish: the first
# crash is ready again at once, later ones wait, the last is poison; a job that was
# asked to stop is cancelled. Index: the primary key. In the order of ids, as the
# document is: the connections of role "hot" cannot sort.
SETTLE_CRASHED: Final = (
    """
WITH crashed AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(crashes)s::jsonb)
        AS crashed(id uuid, attempt int, reason text, delay_s float8[])
), held AS MATERIALIZED (
    SELECT job.id, crashed.reason, CASE
        WHEN job.cancel_requested_at IS NOT NULL THEN 'cancel'
        WHEN job.crashes + 1 >= %(crash_limit)s THEN 'poison'
        WHEN job.crashes = 0 THEN 'again'
        ELSE 'later' END AS act,
        crashed.delay_s[least(job.crashes + 1, cardinality(crashed.delay_s))] AS delay_s
    FROM crashed JOIN relay_job AS job ON job.id = crashed.id
    WHERE CASE WHEN job.state = 'running' AND job.attempt = crashed.attempt
          THEN job.worker_id = %(worker_id)s END
    FOR NO KEY UPDATE OF job
), moved AS (
    UPDATE relay_job AS job
    SET state = CASE act WHEN 'cancel' THEN 'cancelled' WHEN 'poison' THEN 'failed'
                WHEN 'later' THEN 'retrying' ELSE 'queued' END,
        ready_seq = CASE act WHEN 'again' THEN nextval('relay_ready_seq')
                    ELSE ready_seq END,
        run_at = CASE act WHEN 'later'
                 THEN clock_timestamp() + make_interval(secs => held.delay_s)
                 ELSE run_at END,
        crashes = crashes + CASE act WHEN 'cancel' THEN 0 ELSE 1 END,
        worker_id = CASE WHEN act IN ('cancel', 'poison') THEN worker_id END,
        finished_at = CASE WHEN act IN ('cancel', 'poison')
                      THEN clock_timestamp() END,
        expires_at = CASE WHEN act IN ('cancel', 'poison') THEN """  # noqa: S608 - constants only
    + rules.expiry("CASE act WHEN 'poison' THEN 'failed' ELSE 'cancelled' END")
    + """ END,
        unique_key = CASE WHEN act NOT IN ('cancel', 'poison')
                               OR unique_until > clock_timestamp()
                     THEN unique_key END,
        error_class = CASE act WHEN 'cancel' THEN error_class
                      WHEN 'poison' THEN 'PoisonJob' ELSE 'WorkerDied' END,
        error_message = CASE act WHEN 'cancel' THEN error_message
                        ELSE held.reason END
    FROM held WHERE job.id = held.id
    RETURNING job.id, job.task, job.attempt, job.queue, job.state, job.started_at,
              job.error_class, job.error_message, held.act, held.reason
), attempts AS (
    INSERT INTO relay_attempt (job_id, attempt, worker_id, outcome, error_class,
                               error_message, started_at, ended_at)
    SELECT id, attempt, %(worker_id)s, 'crash', 'WorkerDied', reason, started_at,
           clock_timestamp()
    FROM moved WHERE act <> 'cancel'
), history AS (
    INSERT INTO relay_history (job_id, at, event, attempt, detail)
    SELECT id, clock_timestamp(), CASE act WHEN 'cancel' THEN 'cancel' ELSE 'crash' END,
           attempt, jsonb_build_object('reason', reason)
    FROM moved
)
"""
    + rules.TOLD_HERE
    + "SELECT id, state FROM moved"
)


def crash_delays(backoff: Backoff, crash_limit: int) -> list[float]:
    """Return how many seconds a job waits after its first, second … crash."""
    return [
        min(backoff.delay(crashes), LONGEST).total_seconds()
        for crashes in range(min(crash_limit, _MOST_DELAYS))
    ]


def send_crashed(
    connection: EngineConnection,
    outcomes: Sequence[Settled],
    *,
    worker_id: UUID,
    crash_limit: int,
    backoff: Backoff,
) -> list[Any]:
    """Send the attempts whose processes died; finish.read_finished() takes the answer.

    Each is charged a crash: the first is ready again at once, later ones wait, and the
    crash_limit-th fails the job as poison. Writes only rows that are running under
    this worker and the outcome's attempt.

    Args:
        outcomes: of the verb "crash"; their messages say how the processes ended.

    Transaction: that of the enclosing EngineConnection.block(), or its own.
    """
    if not outcomes:
        return []
    document = json.dumps(
        [
            {
                "id": str(outcome.id),
                "attempt": outcome.attempt,
                "reason": outcome.error_message,
                "delay_s": crash_delays(backoff, crash_limit),
            }
            for outcome in sorted(outcomes, key=lambda outcome: outcome.id)
        ]
    )
    return [
        connection.execute(
            rules.told(SETTLE_CRASHED),
            {
                **rules.values(),
                "crashes": document,
                "worker_id": worker_id,
                "crash_limit": crash_limit,
            },
            prepare=False,
        )
    ]

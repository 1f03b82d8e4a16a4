"""running → settled: complete, retry, fail, cancel, release …; all fenced."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal
from uuid import UUID

import psycopg

from relay.conf import LONGEST
from relay.engine import rules
from relay.engine.connection import EngineConnection
from relay.options import LATEST

__all__ = [
    "Completed",
    "Outcome",
    "Settled",
    "Verb",
    "Written",
    "completions",
    "is_bad_row",
    "read_finished",
    "read_states",
    "send_completed",
    "send_settled",
]

_LONGEST_SECONDS: Final = LONGEST.total_seconds()

# The fence is hidden from the planner in one CASE: seen, it draws the plan to the held
# index and compares all pairs. One document: an array of JSON texts is escaped element
# by element. Index: the primary key.
# Source: docs/explanation/speed.md, "The finish stays on the primary key".
# A unique key goes, unless its window has not ended: then it stays, and the row.
COMPLETE: Final = """
UPDATE relay_job AS job
SET state = 'completed', result = done.result, error_class = NULL, error_message = NULL,
    finished_at = clock_timestamp(),
    expires_at = CASE WHEN job.unique_until > clock_timestamp() + done.keep
                 THEN job.unique_until ELSE clock_timestamp() + done.keep END,
    unique_key = CASE WHEN job.unique_until > clock_timestamp() THEN job.unique_key END
FROM (
    SELECT (item->>0)::uuid AS id, (item->>1)::int AS attempt, item->2 AS result,
           make_interval(secs => (item->>3)::float8) AS keep
    FROM jsonb_array_elements(%(results)s::jsonb) AS item
) AS done
WHERE job.id = done.id
  AND CASE WHEN job.state = 'running' AND job.attempt = done.attempt
          THEN job.worker_id = %(worker_id)s END
RETURNING job.id
"""

# As COMPLETE, for results that go before their jobs: expires_at is when the result
# goes, and meta says for how long the row stays, for PRUNE_JOBS to find.
COMPLETE_EXPIRING: Final = """
UPDATE relay_job AS job
SET state = 'completed', error_class = NULL, error_message = NULL,
    result = CASE WHEN done.result_keep > interval '0' THEN done.result END,
    finished_at = clock_timestamp(),
    expires_at = clock_timestamp() + done.result_keep,
    meta = coalesce(job.meta, '{}') || jsonb_build_object('row_keep_s', done.keep_s),
    unique_key = CASE WHEN job.unique_until > clock_timestamp() THEN job.unique_key END
FROM (
    SELECT (item->>0)::uuid AS id, (item->>1)::int AS attempt, item->2 AS result,
           item->3 AS keep_s,
           make_interval(secs => (item->>4)::float8) AS result_keep
    FROM jsonb_array_elements(%(results)s::jsonb) AS item
) AS done
WHERE job.id = done.id
  AND CASE WHEN job.state = 'running' AND job.attempt = done.attempt
          THEN job.worker_id = %(worker_id)s END
RETURNING job.id
"""

# A retention of nothing: the row goes as it finishes, with what hangs on it. One whose
# unique key has a window ahead stays for that; the counts, looked at once, keep others
# from being read again.
COMPLETE_AND_DELETE: Final = """
WITH done AS MATERIALIZED (
    SELECT (item->>0)::uuid AS id, (item->>1)::int AS attempt
    FROM jsonb_array_elements(%(results)s::jsonb) AS item
), gone AS (
    DELETE FROM relay_job AS job USING done
    WHERE job.id = done.id
      AND CASE WHEN job.state = 'running' AND job.attempt = done.attempt
          THEN job.worker_id = %(worker_id)s END
      AND (job.unique_until IS NULL OR job.unique_until <= statement_timestamp())
    RETURNING job.id
), kept AS (
    UPDATE relay_job AS job
    SET state = 'completed', error_class = NULL, error_message = NULL,
        finished_at = clock_timestamp(), expires_at = job.unique_until
    FROM done
    WHERE job.id = done.id
      AND CASE WHEN job.state = 'running' AND job.attempt = done.attempt
          THEN job.worker_id = %(worker_id)s END
      AND job.unique_until > statement_timestamp()
      AND (SELECT count(*) FROM gone) < (SELECT count(*) FROM done)
    RETURNING job.id
), attempts AS (
    DELETE FROM relay_attempt USING gone WHERE job_id = gone.id
), history AS (
    DELETE FROM relay_history USING gone WHERE job_id = gone.id
), outputs AS (
    DELETE FROM relay_output USING gone WHERE job_id = gone.id
), steps AS (
    DELETE FROM relay_step USING gone WHERE job_id = gone.id
)
SELECT id FROM gone UNION ALL SELECT id FROM kept
"""

# retry: charged, due again after the delay, failed where that is later than the task's
# retry_until, which becomes its deadline. hand_back: not charged, due again after the
# delay, failed once the first hand-back since the task last ran is older than the
# limit. snooze: not charged, due again after the delay, failed where a handler has
# asked for it as often as it may since the last manual retry. release: not charged,
# ready again at once. fail and cancel: final. Each leaves its attempt or history row in
# the same statement. A job that somebody asked to stop never runs again: whatever would
# make it due or ready cancels it instead, uncharged.
SETTLE: Final = (
    """
WITH done AS MATERIALIZED (
    SELECT outcome.*, CASE
        WHEN outcome.verb = 'hand_back' AND EXISTS (
            SELECT FROM relay_history AS earlier
            WHERE earlier.job_id = outcome.id AND earlier.event = 'hand_back'
              AND earlier.at < clock_timestamp() - %(hand_back_limit)s::interval
              AND NOT EXISTS (
                SELECT FROM relay_history AS ran
                WHERE ran.job_id = outcome.id AND ran.at > earlier.at
                  AND ran.event IN ('retry', 'snooze', 'crash'))
        ) THEN 'fail'
        WHEN outcome.verb = 'snooze' AND outcome.most IS NOT NULL AND (
            SELECT count(*) FROM relay_history AS earlier
            WHERE earlier.job_id = outcome.id AND earlier.event = 'snooze'
              AND earlier.detail->>'reason' = 'Snooze'
              AND earlier.at > coalesce((
                SELECT max(manual.at) FROM relay_history AS manual
                WHERE manual.job_id = outcome.id AND manual.event = 'retry'
                  AND manual.detail IS NULL), '-infinity')
        ) >= outcome.most THEN 'fail'
        WHEN outcome.is_late THEN 'fail'
        ELSE outcome.verb END AS act,
        CASE WHEN is_late THEN to_char(until AT TIME ZONE 'UTC',
            '" (no retry starts after "YYYY-MM-DD HH24:MI:SS" UTC)"')
        ELSE '' END AS note
    FROM (
        SELECT given.*, until.at AS until, given.verb = 'retry' AND until.at
               < clock_timestamp() + make_interval(secs => given.delay_s) AS is_late
        FROM jsonb_to_recordset(%(outcomes)s::jsonb) AS given(
            id uuid, attempt int, verb text, delay_s float8, until_s float8,
            until_at timestamptz, charge int, most int, error_class text,
            error_message text, traceback text)
        CROSS JOIN LATERAL (
            SELECT CASE
                WHEN given.until_s IS NULL THEN given.until_at
                ELSE (SELECT created_at + make_interval(secs => given.until_s)
                      FROM relay_job WHERE id = given.id) END AS at
        ) AS until
    ) AS outcome
), moved AS (
    UPDATE relay_job AS job
    SET state = CASE WHEN done.act = 'fail' THEN 'failed'
                WHEN done.act = 'cancel' OR job.cancel_requested_at IS NOT NULL
                THEN 'cancelled'
                WHEN done.act = 'release' THEN 'queued' ELSE 'retrying' END,
        ready_seq = CASE WHEN done.act = 'release' AND job.cancel_requested_at IS NULL
                    THEN nextval('relay_ready_seq') ELSE job.ready_seq END,
        run_at = CASE WHEN done.act IN ('retry', 'hand_back', 'snooze')
                           AND job.cancel_requested_at IS NULL
                 THEN clock_timestamp() + make_interval(secs => done.delay_s)
                 ELSE job.run_at END,
        deadline_at = CASE done.act WHEN 'retry' THEN least(job.deadline_at, until)
                      ELSE job.deadline_at END,
        worker_id = CASE WHEN done.act IN ('fail', 'cancel')
                              OR job.cancel_requested_at IS NOT NULL
                    THEN job.worker_id END,
        started_at = CASE done.act WHEN 'release' THEN NULL ELSE job.started_at END,
        finished_at = CASE WHEN done.act IN ('fail', 'cancel')
                                OR job.cancel_requested_at IS NOT NULL
                      THEN clock_timestamp() END,
        expires_at = CASE WHEN done.act NOT IN ('fail', 'cancel')
                               AND job.cancel_requested_at IS NULL THEN NULL
                     ELSE """  # noqa: S608 - constants only
    + rules.expiry("CASE done.act WHEN 'fail' THEN 'failed' ELSE 'cancelled' END")
    + """ END,
        unique_key = CASE WHEN done.act NOT IN ('fail', 'cancel')
                               AND job.cancel_requested_at IS NULL
                               OR job.unique_until > clock_timestamp()
                     THEN job.unique_key END,
        failures = job.failures
            + CASE WHEN done.act = 'fail' OR job.cancel_requested_at IS NULL
              THEN done.charge ELSE 0 END,
        error_class = CASE WHEN done.act = 'snooze' THEN job.error_class
                      ELSE coalesce(done.error_class, job.error_class) END,
        error_message = CASE WHEN done.error_class IS NULL OR done.act = 'snooze'
                        THEN job.error_message
                        ELSE done.error_message || done.note END
    FROM done
    WHERE job.id = done.id
      AND CASE WHEN job.state = 'running' AND job.attempt = done.attempt
          THEN job.worker_id = %(worker_id)s END
    RETURNING job.id, job.task, job.attempt, job.queue, job.priority, job.ready_seq,
              job.state, job.started_at, job.run_at, done.error_class,
              done.error_message || done.note AS error_message, done.traceback,
              CASE job.state WHEN 'cancelled' THEN 'cancel' ELSE done.act END AS act
), attempts AS (
    INSERT INTO relay_attempt (job_id, attempt, worker_id, outcome, error_class,
                               error_message, traceback, started_at, ended_at)
    SELECT id, attempt, %(worker_id)s, act, error_class, error_message, traceback,
           started_at, clock_timestamp()
    FROM moved
    WHERE act IN ('retry', 'fail') OR act = 'cancel' AND error_class IS NOT NULL
), history AS (
    INSERT INTO relay_history (job_id, at, event, attempt, detail)
    SELECT id, clock_timestamp(), act, attempt,
           CASE WHEN act IN ('retry', 'hand_back', 'snooze')
           THEN jsonb_build_object('reason', error_class, 'run_at', run_at)
           WHEN act = 'cancel'
           THEN jsonb_build_object('reason', coalesce(error_message, 'not started'))
           END
    FROM moved WHERE act <> 'fail'
)
"""
    + rules.TOLD_HERE
    + "SELECT id, state FROM moved"
)

Verb = Literal["retry", "fail", "cancel", "hand_back", "snooze", "release", "crash"]


@dataclass(frozen=True, slots=True)
class Completed:
    """An attempt that ended well.

    Attributes:
        result: JSON text, free of what jsonb refuses.
        keep_seconds: retention; None keeps the row for ever, 0 deletes it at once.
        result_seconds: the same of the result alone; None keeps it with the row.
    """

    id: UUID
    attempt: int
    result: str
    keep_seconds: float | None
    result_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """An attempt that ended any other way.

    Attributes:
        verb: what becomes of the job; see SETTLE, and crash.py for "crash".
        delay_seconds: for retry and hand_back, until it is due again.
        until: for retry, the longest time from the job's creation to its start, or the
            instant after which it does not start.
        most: for a handler's snooze, how many a job may have; one more fails it.
        is_charged: whether it counts against max_retries.
    """

    id: UUID
    attempt: int
    verb: Verb
    delay_seconds: float = 0.0
    until: timedelta | datetime | None = None
    is_charged: bool = False
    most: int | None = None
    error_class: str | None = None
    error_message: str | None = None
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """An attempt of which nothing is left to write.

    Attributes:
        result: JSON text of the job that it completed in its own transaction; None if
            the job had been given to another and all of it was rolled back.
    """

    id: UUID
    attempt: int
    result: str | None


Outcome = Completed | Settled | Written


def send_completed(
    connection: EngineConnection, results: Sequence[Completed], *, worker_id: UUID
) -> list[Any]:
    """Send what ended well; read_finished() takes the answers.

    Writes only rows that are running under this worker and the result's attempt, in
    the order of their ids: those of each of completions() by themselves.

    Transaction: that of the enclosing EngineConnection.block(), or its own.

    Raises:
        psycopg.DataError: PostgreSQL refuses a result; nothing was written.
    """
    return [
        connection.execute(statement, values, prepare=connection.prepares)
        for statement, values in completions(results, worker_id=worker_id)
    ]


def completions(
    results: Iterable[Completed], *, worker_id: UUID
) -> list[tuple[str, dict[str, Any]]]:
    """Return the statements of send_completed() with their values, to be executed.

    Each answers with the ids that it wrote.
    """
    kept: list[str] = []
    deleted: list[str] = []
    expiring: list[str] = []
    for done in results:
        # Written by hand: json.dumps() for each would take longer than all the rest.
        token = f'"{done.id.hex}",{done.attempt}'
        if done.keep_seconds == 0:
            deleted.append(f"[{token}]")
        else:
            keep = _capped(done.keep_seconds)
            item = f"{token},{done.result},{'null' if keep is None else keep}"
            first = done.result_seconds
            if first is None or first >= (done.keep_seconds or math.inf):
                kept.append(f"[{item}]")
            else:
                expiring.append(f"[{item},{first}]")
    return [
        (
            statement,
            {"results": f"[{','.join(sorted(items))}]", "worker_id": worker_id},
        )
        for statement, items in (
            (COMPLETE, kept),
            (COMPLETE_EXPIRING, expiring),
            (COMPLETE_AND_DELETE, deleted),
        )
        if items
    ]


def send_settled(
    connection: EngineConnection,
    outcomes: Sequence[Settled],
    *,
    worker_id: UUID,
    hand_back_limit: timedelta,
) -> list[Any]:
    """Send what ended otherwise; read_finished() takes the answers.

    Writes only rows that are running under this worker and the outcome's attempt,
    in the order of their ids, and their attempt and history rows with them.

    Args:
        hand_back_limit: a job handed back that long, with nothing run between, fails
            instead.

    Transaction: that of the enclosing EngineConnection.block(), or its own.
    """
    if not outcomes:
        return []
    document = json.dumps(
        [
            {
                "id": str(outcome.id),
                "attempt": outcome.attempt,
                "verb": outcome.verb,
                "delay_s": _capped(outcome.delay_seconds),
                **_limit(outcome.until),
                "charge": int(outcome.is_charged),
                "most": outcome.most,
                "error_class": outcome.error_class,
                "error_message": outcome.error_message,
                "traceback": outcome.traceback,
            }
            for outcome in sorted(outcomes, key=lambda outcome: outcome.id)
        ]
    )
    return [
        connection.execute(
            rules.told(SETTLE),
            {
                **rules.values(),
                "outcomes": document,
                "worker_id": worker_id,
                "hand_back_limit": hand_back_limit,
            },
            prepare=False,
        )
    ]


def read_finished(cursors: Iterable[Any]) -> set[UUID]:
    """Return the ids that were written; the others are lost to this worker.

    Raises:
        psycopg.Error: nothing of the transaction was written, or, when the connection
            was lost, it is not known whether it was.
    """
    return set(read_states(cursors))


def read_states(cursors: Iterable[Any]) -> dict[UUID, str]:
    """Return the ids that were written, each with the state of its job; see above."""
    states: dict[UUID, str] = {}
    for cursor in cursors:
        rows = cursor.fetchall()
        if rows and len(rows[0]) > 1:
            states.update(rules.parted(cursor, rows))
        else:
            states.update(dict.fromkeys((row[0] for row in rows), "completed"))
    return states


def is_bad_row(error: psycopg.Error) -> bool:
    """Tell whether error blames the data of some row rather than the database.

    Class 54 is a document or value larger or deeper than PostgreSQL takes; psycopg
    has it among the operational errors.
    """
    return isinstance(error, psycopg.DataError | psycopg.IntegrityError) or (
        error.sqlstate is not None and error.sqlstate.startswith("54")
    )


def _limit(until: timedelta | datetime | None) -> dict[str, float | str | None]:
    if isinstance(until, timedelta):
        return {"until_s": _capped(until.total_seconds())}
    return {} if until is None else {"until_at": min(until, LATEST).isoformat()}


def _capped(seconds: float | None) -> float | None:
    return None if seconds is None else min(seconds, _LONGEST_SECONDS)

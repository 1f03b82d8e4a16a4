"""What an operator does to jobs; each act leaves who did it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

import psycopg
from django.db import IntegrityError, transaction

from relay.engine import rules, wakeup
from relay.engine.acts import ActReport, Why, only, written
from relay.engine.connection import fetch_all
from relay.exceptions import StateConflict

__all__ = [
    "cancel",
    "cancel_many",
    "retry",
    "retry_many",
    "run_now",
    "run_now_many",
]

# The frame of cancel, retry and run now. Index: the primary key. The rows are locked in
# the order of their ids, so that two acts over the same jobs never deadlock, and shown
# as they are once locked. The UPDATE has no condition on state of its own on purpose:
# it would be tested on the version the statement's snapshot sees, which may be older
# than the locked one. A retried batch keeps the order it had.
_LOCKED: Final = """
WITH locked AS MATERIALIZED (
    SELECT id, task, state, ready_seq, unique_scope,
           cancel_requested_at IS NOT NULL AS is_asked
    FROM relay_job
    WHERE id = ANY(%(ids)s::uuid[])
    ORDER BY id
    FOR NO KEY UPDATE
), """
_NOTED: Final = """, noted AS (
    INSERT INTO relay_history (job_id, at, event, attempt, actor, detail)
    SELECT id, clock_timestamp(), %(event)s, attempt, %(actor)s, %(why)s::jsonb
    FROM changed
)
SELECT locked.id, locked.state, changed.id IS NOT NULL, changed.queue,
       changed.priority, changed.ready_seq
FROM locked LEFT JOIN changed ON changed.id = locked.id
ORDER BY locked.id
"""

CANCEL: Final = (
    _LOCKED  # noqa: S608 - constants only
    + """changed AS (
    UPDATE relay_job AS job
    SET state = 'cancelled', worker_id = NULL, finished_at = clock_timestamp(),
        expires_at = """
    + rules.expiry("'cancelled'")
    + """,
        unique_key = CASE WHEN job.unique_until > clock_timestamp()
                     THEN job.unique_key END
    FROM locked
    WHERE job.id = locked.id
      AND locked.state IN ('blocked', 'scheduled', 'queued', 'retrying')
    RETURNING job.id, job.attempt, NULL AS queue, NULL AS priority, NULL AS ready_seq
), asked AS (
    UPDATE relay_job AS job SET cancel_requested_at = clock_timestamp()
    FROM locked
    WHERE job.id = locked.id AND locked.state = 'running' AND NOT locked.is_asked
    RETURNING job.id, job.attempt
), noted_asked AS (
    INSERT INTO relay_history (job_id, at, event, attempt, actor, detail)
    SELECT id, clock_timestamp(), 'cancel_request', attempt, %(actor)s, %(why)s::jsonb
    FROM asked
)"""
    + _NOTED
)

# The unique key that went with the end is taken again, unless it went with the start:
# in the order of the keys, as by those who enqueue them, which of all statements only
# an INSERT promises to keep. It inserts nothing: each row is there, and locked.
# A deadline that has passed goes: who retries wants a run.
RETRY: Final = (
    _LOCKED  # noqa: S608 - constants only
    + """numbered AS MATERIALIZED (
    SELECT id, task, nextval('relay_ready_seq') AS ready_seq,
           split_part(unique_scope, ':', 2) AS key
    FROM (
        SELECT * FROM locked WHERE state IN ('failed', 'cancelled') ORDER BY ready_seq
    ) AS ordered
), changed AS (
    INSERT INTO relay_job AS job (id, task, args, ready_seq)
    SELECT id, task, '{}', ready_seq FROM numbered ORDER BY key, ready_seq
    ON CONFLICT (id) DO UPDATE
    SET state = 'queued', ready_seq = excluded.ready_seq, run_at = clock_timestamp(),
        failures = 0, crashes = 0, losses = 0, worker_id = NULL, started_at = NULL,
        finished_at = NULL, expires_at = NULL, cancel_requested_at = NULL,
        deadline_at = CASE WHEN job.deadline_at > clock_timestamp()
                      THEN job.deadline_at END,
        unique_key = CASE
            WHEN job.unique_key IS NOT NULL THEN job.unique_key
            WHEN job.unique_scope LIKE 'started:%%' AND job.attempt > 0 THEN NULL
            ELSE decode(split_part(job.unique_scope, ':', 2), 'hex') END
    RETURNING job.id, job.attempt, job.queue, job.priority, job.ready_seq
)"""
    + _NOTED
)

RUN_NOW: Final = (
    _LOCKED  # noqa: S608 - constants only
    + """numbered AS MATERIALIZED (
    SELECT id, nextval('relay_ready_seq') AS ready_seq
    FROM (
        SELECT id FROM locked WHERE state IN ('scheduled', 'retrying')
        ORDER BY ready_seq
    ) AS ordered
), changed AS (
    UPDATE relay_job AS job
    SET state = 'queued', ready_seq = numbered.ready_seq, run_at = clock_timestamp()
    FROM numbered
    WHERE job.id = numbered.id
    RETURNING job.id, job.attempt, job.queue, job.priority, job.ready_seq
)"""
    + _NOTED
)

# Indexes: the primary key; relay_job_unique_idx. What a retry one by one is going to
# lock, in the order of ids, before it does so in another: the jobs, and those that have
# ended and stand in the way of their keys. By arrays, whatever the statistics say.
LOCK_WITH_KEYS: Final = """
SELECT id, coalesce(split_part(unique_scope, ':', 2), '') FROM relay_job
WHERE id = ANY(ARRAY(
    SELECT unnest(%(ids)s::uuid[])
    UNION
    SELECT id FROM relay_job
    WHERE unique_key = ANY(ARRAY(
        SELECT decode(split_part(unique_scope, ':', 2), 'hex')
        FROM relay_job WHERE id = ANY(%(ids)s::uuid[]) AND unique_scope IS NOT NULL
    ))
      AND CASE WHEN state IN ('completed', 'failed', 'cancelled') THEN true END
))
ORDER BY id
FOR NO KEY UPDATE
"""

# Index: relay_job_unique_idx. Frees the key that the job would take again from one that
# has ended and whose window is over; then tells who holds it. The key is looked up
# first, and the state hidden: joined, or seen, they draw the plan to an index that was
# empty when the statistics were made, and all of it is read.
FREE_KEY: Final = """
UPDATE relay_job AS over SET unique_key = NULL
WHERE over.unique_key = (
    SELECT decode(split_part(unique_scope, ':', 2), 'hex')
    FROM relay_job WHERE id = %(id)s
)
  AND over.id <> %(id)s
  AND CASE WHEN over.state IN ('completed', 'failed', 'cancelled')
      THEN over.unique_until IS NULL OR over.unique_until <= clock_timestamp() END
RETURNING over.id
"""
KEY_HOLDER: Final = """
SELECT job.state, holder.id
FROM relay_job AS job LEFT JOIN relay_job AS holder
    ON holder.unique_key = decode(split_part(job.unique_scope, ':', 2), 'hex')
WHERE job.id = %(id)s
"""


def cancel(job_id: UUID, *, actor: str | None, using: str) -> bool:
    """Cancel the job; tell whether it is cancelled now.

    One that has not started is: blocked, scheduled, queued or retrying. It never
    starts afterwards, whatever worker comes. A running
    one is asked to stop: its worker learns of it by a wake-up after commit, or within
    a second. It ends cancelled, or as it ended before that; it never runs again.

    Raises:
        StateConflict: it has ended or does not exist; nothing was changed.

    Transaction: joins the caller's on Django's connection, or its own.
    """
    report = cancel_many([job_id], actor=actor, using=using)
    only(report)
    return bool(report.done)


def cancel_many(
    job_ids: Iterable[UUID], *, actor: str | None, using: str, why: Why | None = None
) -> ActReport:
    """Cancel the jobs, or ask their workers to stop them; see cancel().

    Transaction: one statement; joins the caller's on Django's connection.
    """
    report = _act(
        CANCEL,
        job_ids,
        using=using,
        event="cancel",
        actor=actor,
        why=written(why),
        **rules.values(),
    )
    asked = tuple(skip.job_id for skip in report.skipped if skip.state == "running")
    if asked:
        wakeup.announce_cancel(using)
    others = tuple(skip for skip in report.skipped if skip.state != "running")
    return ActReport(report.done, others, asked)


def retry(job_id: UUID, *, actor: str | None, using: str) -> None:
    """Make the failed or cancelled job ready again, with its whole retry budget.

    failures, crashes and losses become 0; attempt, max_retries and the attempts on
    record stay. It goes behind what already waits. It takes the unique key again that
    it let go as it ended. A deadline that has passed is taken off.

    Raises:
        StateConflict: it is in another state or does not exist, or another job has
            taken its unique key meanwhile; nothing was changed.

    Transaction: joins the caller's on Django's connection, or its own. The wake-up
    goes out after commit.
    """
    only(retry_many([job_id], actor=actor, using=using))


def retry_many(
    job_ids: Iterable[UUID], *, actor: str | None, using: str, why: Why | None = None
) -> ActReport:
    """Make those of the jobs ready again that failed or were cancelled; see retry().

    They keep the order among themselves in which they were last ready, unless one of
    them has lost its unique key to another job: then they are retried one by one.

    Transaction: one; joins the caller's on Django's connection.
    """
    ids, by = sorted(set(job_ids)), {"actor": actor, "why": written(why)}
    try:
        with transaction.atomic(using=using):
            return _act(RETRY, ids, using=using, event="retry", **by)
    except IntegrityError as error:
        if not _is_key_taken(error):
            raise
    with transaction.atomic(using=using):
        keys = dict(fetch_all(LOCK_WITH_KEYS, {"ids": ids}, using=using))
        # The rows are locked: from here on it is keys that are waited for.
        by_key = sorted(ids, key=lambda job_id: keys.get(job_id, ""))
        reports = {one: _retry_one(one, using=using, **by) for one in by_key}
    return ActReport(
        tuple(job_id for one in ids for job_id in reports[one].done),
        tuple(conflict for one in ids for conflict in reports[one].skipped),
    )


def _retry_one(job_id: UUID, *, using: str, **noted: str | None) -> ActReport:
    try:
        with transaction.atomic(using=using):
            fetch_all(FREE_KEY, {"id": job_id}, using=using)
            return _act(RETRY, [job_id], using=using, event="retry", **noted)
    except IntegrityError as error:
        if not _is_key_taken(error):
            raise
    rows = fetch_all(KEY_HOLDER, {"id": job_id}, using=using)
    if not rows:  # pruned since
        return ActReport((), (StateConflict(job_id, "retry", None),))
    [(state, holder)] = rows
    by = "another job" if holder is None else f"job {holder}"
    reason = f"has lost its unique key to {by}"
    return ActReport((), (StateConflict(job_id, "retry", state, reason=reason),))


def _is_key_taken(error: IntegrityError) -> bool:
    cause = error.__cause__
    return (
        isinstance(cause, psycopg.errors.UniqueViolation)
        and cause.diag.constraint_name == "relay_job_unique_idx"
    )


def run_now(job_id: UUID, *, actor: str | None, using: str) -> None:
    """Make the scheduled or retrying job ready at once; its budgets stay.

    Raises:
        StateConflict: it is in another state or does not exist; nothing was changed.

    Transaction: joins the caller's on Django's connection, or its own. The wake-up
    goes out after commit.
    """
    only(run_now_many([job_id], actor=actor, using=using))


def run_now_many(
    job_ids: Iterable[UUID], *, actor: str | None, using: str, why: Why | None = None
) -> ActReport:
    """Make those of the jobs ready that are due later; see run_now().

    Transaction: one statement; joins the caller's on Django's connection.
    """
    by = {"actor": actor, "why": written(why)}
    return _act(RUN_NOW, job_ids, using=using, event="run_now", **by)


def _act(
    statement: str, job_ids: Iterable[UUID], *, using: str, event: str, **values: Any
) -> ActReport:
    ids = sorted(set(job_ids))
    done: list[UUID] = []
    states: dict[UUID, str] = {}
    ready: list[tuple[str, int, int]] = []
    for job_id, state, is_done, queue, priority, ready_seq in fetch_all(
        statement, {"ids": ids, "event": event, **values}, using=using
    ):
        states[job_id] = state
        if is_done:
            done.append(job_id)
            if ready_seq is not None:
                ready.append((queue, priority, ready_seq))
    for wake_up in wakeup.lowest(ready):
        wakeup.announce(using, *wake_up)
    act = event.replace("_", " ")
    changed = set(done)
    return ActReport(
        tuple(done),
        tuple(
            StateConflict(job_id, act, states.get(job_id))
            for job_id in ids
            if job_id not in changed
        ),
    )

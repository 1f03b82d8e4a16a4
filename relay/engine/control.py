"""What an operator does to jobs and queues; each act leaves who did it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import psycopg
from django.db import IntegrityError, connections, transaction

from relay import sensitive
from relay.conf import check_queue_name, get_settings
from relay.engine import rules, wakeup
from relay.exceptions import StateConflict, UnknownQueue
from relay.ids import uuid7

__all__ = [
    "ActReport",
    "cancel",
    "cancel_many",
    "pause",
    "replay",
    "replay_many",
    "resume",
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
    SELECT id, state, ready_seq, cancel_requested_at IS NOT NULL AS is_asked
    FROM relay_job
    WHERE id = ANY(%(ids)s::uuid[])
    ORDER BY id
    FOR NO KEY UPDATE
), """
_NOTED: Final = """, noted AS (
    INSERT INTO relay_history (job_id, at, event, attempt, actor)
    SELECT id, clock_timestamp(), %(event)s, attempt, %(actor)s FROM changed
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
    INSERT INTO relay_history (job_id, at, event, attempt, actor)
    SELECT id, clock_timestamp(), 'cancel_request', attempt, %(actor)s FROM asked
)"""
    + _NOTED
)

# The unique key that went with the end is taken again, unless it went with the start.
# A deadline that has passed goes: who retries wants a run.
RETRY: Final = (
    _LOCKED  # noqa: S608 - constants only
    + """numbered AS MATERIALIZED (
    SELECT id, nextval('relay_ready_seq') AS ready_seq
    FROM (
        SELECT id FROM locked WHERE state IN ('failed', 'cancelled') ORDER BY ready_seq
    ) AS ordered
), changed AS (
    UPDATE relay_job AS job
    SET state = 'queued', ready_seq = numbered.ready_seq, run_at = clock_timestamp(),
        failures = 0, crashes = 0, losses = 0, worker_id = NULL, started_at = NULL,
        finished_at = NULL, expires_at = NULL, cancel_requested_at = NULL,
        deadline_at = CASE WHEN job.deadline_at > clock_timestamp()
                      THEN job.deadline_at END,
        unique_key = CASE
            WHEN job.unique_key IS NOT NULL THEN job.unique_key
            WHEN job.unique_scope LIKE 'started:%%' AND job.attempt > 0 THEN NULL
            ELSE decode(split_part(job.unique_scope, ':', 2), 'hex') END
    FROM numbered
    WHERE job.id = numbered.id
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

# Index: relay_job_unique_idx. Frees the key that the job would take again from one that
# has ended and whose window is over; then tells who holds it.
FREE_KEY: Final = """
UPDATE relay_job AS over SET unique_key = NULL
FROM relay_job AS job
WHERE job.id = %(id)s AND over.id <> job.id
  AND over.unique_key = decode(split_part(job.unique_scope, ':', 2), 'hex')
  AND over.state IN ('completed', 'failed', 'cancelled')
  AND (over.unique_until IS NULL OR over.unique_until <= clock_timestamp())
RETURNING over.id
"""
KEY_HOLDER: Final = """
SELECT job.state, holder.id
FROM relay_job AS job LEFT JOIN relay_job AS holder
    ON holder.unique_key = decode(split_part(job.unique_scope, ':', 2), 'hex')
WHERE job.id = %(id)s
"""

# Two statements on purpose: the second must see what was committed while the first
# waited for its locks.
LOCK_ORIGINALS: Final = """
SELECT id, state, statement_timestamp() FROM relay_job
WHERE id = ANY(%(ids)s::uuid[])
ORDER BY id
FOR NO KEY UPDATE
"""
# Index: relay_job_replay_idx for the earlier replays. One that ended after this replay
# was asked for was under way at that moment: it counts as well. Not copied: due time
# and deadline, which have passed, the unique key, and the link to a schedule.
REPLAY: Final = """
WITH chosen AS MATERIALIZED (
    SELECT id, replay_id, nextval('relay_ready_seq') AS ready_seq
    FROM (
        SELECT original.id, pair.replay_id
        FROM unnest(%(ids)s::uuid[], %(replay_ids)s::uuid[]) AS pair(id, replay_id)
        JOIN relay_job AS original ON original.id = pair.id
        WHERE original.state IN ('completed', 'failed', 'cancelled')
          AND NOT EXISTS (
            SELECT FROM relay_job AS earlier
            WHERE earlier.replay_of = original.id
              AND (earlier.state NOT IN ('completed', 'failed', 'cancelled')
                   OR earlier.finished_at >= %(asked_at)s)
          )
        ORDER BY original.ready_seq
    ) AS ordered
), made AS (
    INSERT INTO relay_job (
        id, replay_of, created_at, run_at, ready_seq, state, task, queue, priority,
        max_retries, timeout_ms, concurrency_key, tags, meta, args
    )
    SELECT chosen.replay_id, original.id, clock_timestamp(), clock_timestamp(),
           chosen.ready_seq, 'queued', original.task, original.queue,
           CASE WHEN original.priority <> 0 AND EXISTS (
               SELECT FROM relay_queue
               WHERE name = original.queue AND policy = 'fifo'
           ) THEN 0 ELSE original.priority END,
           original.max_retries, original.timeout_ms,
           original.concurrency_key, original.tags, original.meta - 'row_keep_s',
           original.args
    FROM chosen JOIN relay_job AS original ON original.id = chosen.id
    RETURNING id, replay_of, queue, priority, ready_seq,
              CASE WHEN args ? 'sealed' THEN args::text END AS sealed
), noted AS (
    INSERT INTO relay_history (job_id, at, event, attempt, actor, detail)
    SELECT original.id, clock_timestamp(), 'replay', original.attempt, %(actor)s,
           jsonb_build_object('job', made.id)
    FROM made JOIN relay_job AS original ON original.id = made.replay_of
)
SELECT replay_of, id, queue, priority, ready_seq, sealed FROM made
"""
# Arguments that are encrypted are so for one job: the copy is encrypted anew, unseen
# before the commit.
RESEAL: Final = """
UPDATE relay_job SET args = %(args)s::jsonb WHERE id = %(id)s RETURNING id
"""

# A queue without a row is paused only if the caller knows it: an upsert of a mistyped
# name would make a queue that nobody serves.
PAUSE: Final = """
WITH changed AS (
    INSERT INTO relay_queue AS queue (name, paused_at, paused_until)
    SELECT %(queue)s, clock_timestamp(), %(until)s::timestamptz
    WHERE %(known)s OR EXISTS (SELECT FROM relay_queue WHERE name = %(queue)s)
    ON CONFLICT (name) DO UPDATE
    SET paused_at = CASE
            WHEN queue.paused_until <= clock_timestamp() THEN excluded.paused_at
            ELSE coalesce(queue.paused_at, excluded.paused_at) END,
        paused_until = excluded.paused_until
    RETURNING name, paused_until
)
INSERT INTO relay_history (at, event, actor, detail)
SELECT clock_timestamp(), 'pause', %(actor)s,
       jsonb_build_object('queue', name, 'until', paused_until)
FROM changed
RETURNING id
"""

RESUME: Final = """
WITH changed AS (
    UPDATE relay_queue SET paused_at = NULL, paused_until = NULL
    WHERE name = %(queue)s AND paused_at IS NOT NULL
    RETURNING name
)
INSERT INTO relay_history (at, event, actor, detail)
SELECT clock_timestamp(), 'resume', %(actor)s, jsonb_build_object('queue', name)
FROM changed
RETURNING id
"""
# Index: relay_job_ready_idx. What a worker woken for the queue will find first.
FIRST_READY: Final = """
SELECT priority, ready_seq FROM relay_job
WHERE state = 'queued' AND concurrency_key IS NULL AND queue = %(queue)s
ORDER BY priority DESC, ready_seq
LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class ActReport:
    """What an act over many jobs came to.

    Attributes:
        done: the jobs that were changed, in the order of their ids.
        skipped: why each of the others was not: what the act on it alone would raise.
        asked: running jobs whose workers were asked to stop them.
    """

    done: tuple[UUID, ...]
    skipped: tuple[StateConflict, ...]
    asked: tuple[UUID, ...] = ()


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
    _only(report)
    return bool(report.done)


def cancel_many(job_ids: Iterable[UUID], *, actor: str | None, using: str) -> ActReport:
    """Cancel the jobs, or ask their workers to stop them; see cancel().

    Transaction: one statement; joins the caller's on Django's connection.
    """
    report = _act(
        CANCEL,
        job_ids,
        using=using,
        event="cancel",
        actor=actor,
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
    _only(retry_many([job_id], actor=actor, using=using))


def retry_many(job_ids: Iterable[UUID], *, actor: str | None, using: str) -> ActReport:
    """Make those of the jobs ready again that failed or were cancelled; see retry().

    They keep the order among themselves in which they were last ready, unless one of
    them has lost its unique key to another job: then they are retried one by one.

    Transaction: one; joins the caller's on Django's connection.
    """
    ids = sorted(set(job_ids))
    try:
        with transaction.atomic(using=using):
            return _act(RETRY, ids, using=using, event="retry", actor=actor)
    except IntegrityError as error:
        if not _is_key_taken(error):
            raise
    with transaction.atomic(using=using):
        reports = [_retry_one(job_id, actor=actor, using=using) for job_id in ids]
    return ActReport(
        tuple(job_id for report in reports for job_id in report.done),
        tuple(conflict for report in reports for conflict in report.skipped),
    )


def _retry_one(job_id: UUID, *, actor: str | None, using: str) -> ActReport:
    try:
        with transaction.atomic(using=using):
            _rows(FREE_KEY, {"id": job_id}, using=using)
            return _act(RETRY, [job_id], using=using, event="retry", actor=actor)
    except IntegrityError as error:
        if not _is_key_taken(error):
            raise
    [(state, holder)] = _rows(KEY_HOLDER, {"id": job_id}, using=using)
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
    _only(run_now_many([job_id], actor=actor, using=using))


def run_now_many(
    job_ids: Iterable[UUID], *, actor: str | None, using: str
) -> ActReport:
    """Make those of the jobs ready that are due later; see run_now().

    Transaction: one statement; joins the caller's on Django's connection.
    """
    return _act(RUN_NOW, job_ids, using=using, event="run_now", actor=actor)


def replay(job_id: UUID, *, actor: str | None, using: str) -> UUID:
    """Enqueue a new job like this ended one and return its id.

    The new job has the task, arguments and options of the old one, full budgets, and
    replay_of. While it has not ended a second replay of the same job is refused, so
    of several people who ask at once one gets a run.

    Raises:
        StateConflict: the job has not ended, does not exist, or its last replay had
            not ended when this one was asked for; nothing was changed.
        MissingKey: its arguments are encrypted, and their key is not at hand in this
            process; nothing was changed.
        DecodeError: its encrypted arguments were altered; nothing was changed.

    Transaction: joins the caller's on Django's connection, or its own; under READ
    COMMITTED, as a stricter level hides the replays of others. The wake-up goes out
    after commit.
    """
    replays, conflicts = _replay([job_id], actor=actor, using=using)
    if conflicts:
        raise conflicts[0]
    return replays[job_id]


def replay_many(job_ids: Iterable[UUID], *, actor: str | None, using: str) -> ActReport:
    """Enqueue a new job like each of these that has ended; see replay().

    Transaction: one; joins the caller's on Django's connection.
    """
    replays, conflicts = _replay(job_ids, actor=actor, using=using)
    return ActReport(tuple(sorted(replays)), tuple(conflicts))


def pause(
    queue: str,
    *,
    until: datetime | None = None,
    actor: str | None,
    using: str,
    known: Collection[str] = (),
) -> None:
    """Start no more jobs of the queue, until resume() or the given instant.

    Running jobs go on. Pausing a paused queue sets a new end.

    Args:
        until: aware; None is until resumed.
        known: names that may be paused besides those of settings and of rows: what
            registered tasks name, which the engine cannot see.

    Raises:
        UnknownQueue: nothing names the queue.
        ValueError: until has no time zone, or the name cannot name a queue.

    Transaction: one statement; joins the caller's on Django's connection.
    """
    check_queue_name(queue)
    if until is not None and until.utcoffset() is None:
        raise ValueError(f"{until!r} has no time zone: give an aware datetime")
    is_known = queue in known or queue in get_settings().queues
    if not _rows(
        PAUSE,
        {"queue": queue, "until": until, "known": is_known, "actor": actor},
        using=using,
    ):
        raise UnknownQueue(
            f"no settings, task or row names the queue {queue!r}: add it to "
            "RELAY['QUEUES'] or correct the name"
        )


def resume(queue: str, *, actor: str | None, using: str) -> bool:
    """Let the queue's jobs start again; return whether it was paused.

    Transaction: joins the caller's on Django's connection, or its own. The wake-up
    goes out after commit.
    """
    with transaction.atomic(using=using):
        if not _rows(RESUME, {"queue": queue, "actor": actor}, using=using):
            return False
        for priority, ready_seq in _rows(FIRST_READY, {"queue": queue}, using=using):
            wakeup.announce(using, queue, priority, ready_seq)
    return True


def _rows(
    statement: str, values: dict[str, Any], *, using: str
) -> list[tuple[Any, ...]]:
    with connections[using].cursor() as cursor:
        cursor.execute(statement, values)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def _only(report: ActReport) -> None:
    if report.skipped:
        raise report.skipped[0]


def _act(
    statement: str, job_ids: Iterable[UUID], *, using: str, event: str, **values: Any
) -> ActReport:
    ids = sorted(set(job_ids))
    done: list[UUID] = []
    states: dict[UUID, str] = {}
    ready: list[tuple[str, int, int]] = []
    for job_id, state, is_done, queue, priority, ready_seq in _rows(
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


def _reseal(text: str, original: UUID, replay_id: UUID, *, using: str) -> None:
    made = sensitive.reseal_arguments(json.loads(text), original, replay_id)
    if made is not None:
        _rows(RESEAL, {"id": replay_id, "args": json.dumps(made)}, using=using)


def _replay(
    job_ids: Iterable[UUID], *, actor: str | None, using: str
) -> tuple[dict[UUID, UUID], list[StateConflict]]:
    ids = sorted(set(job_ids))
    replays: dict[UUID, UUID] = {}
    ready: list[tuple[str, int, int]] = []
    with transaction.atomic(using=using):
        locked = _rows(LOCK_ORIGINALS, {"ids": ids}, using=using)
        states: dict[UUID, str] = {row[0]: row[1] for row in locked}
        if locked:
            for original, replay_id, queue, priority, ready_seq, sealed in _rows(
                REPLAY,
                {
                    "ids": ids,
                    "replay_ids": [uuid7() for _ in ids],
                    "asked_at": locked[0][2],
                    "actor": actor,
                },
                using=using,
            ):
                replays[original] = replay_id
                if sealed is not None:
                    _reseal(sealed, original, replay_id, using=using)
                ready.append((queue, priority, ready_seq))
        for wake_up in wakeup.lowest(ready):
            wakeup.announce(using, *wake_up)
    return replays, [
        StateConflict(
            job_id,
            "replay",
            states.get(job_id),
            reason=(
                "has a replay that has not ended"
                if states.get(job_id) in ("completed", "failed", "cancelled")
                else None
            ),
        )
        for job_id in ids
        if job_id not in replays
    ]

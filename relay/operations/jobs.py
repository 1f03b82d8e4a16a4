"""What is done to jobs: enqueue, cancel, retry, replay, run now, edit, delete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict, Unpack
from uuid import UUID

import psycopg.errors
from django.db import IntegrityError

from relay.engine import control, delete, edit, replay
from relay.engine.acts import ActReport, Why
from relay.engine.connection import fetch_all
from relay.exceptions import (
    ArgumentError,
    Conflict,
    JobNotFound,
    StateConflict,
    UnknownQueue,
)
from relay.handles import JobHandle
from relay.inserting import enqueue_many, insert
from relay.nearest import unknown
from relay.operations.actor import Actor
from relay.operations.calls import JobCall, check_own, encoder, original_of, request_of
from relay.operations.registry import Act, operation
from relay.operations.rights import parted
from relay.options import EnqueueOptions, check_enqueue_options
from relay.tasks import known_queues

__all__ = [
    "AT_ONCE",
    "EditOptions",
    "JobCall",
    "cancel_job",
    "cancel_jobs",
    "delete_job",
    "delete_jobs",
    "edit_job",
    "enqueue_job",
    "enqueue_jobs",
    "replay_job",
    "replay_jobs",
    "retry_job",
    "retry_jobs",
    "run_job_now",
    "run_jobs_now",
]

# Most jobs that are changed while the caller waits; more are for start_bulk. Source:
# docs/reference/operations.md, "How many at once".
AT_ONCE: Final = 100

# Given up with the transaction. Of two who enqueue under one id, the later one finds
# the job of the first. Taken in the order given, so that no two wait for one another.
_LOCK: Final = """
SELECT pg_advisory_xact_lock_shared(hashtextextended('', 7251))::text
UNION ALL
SELECT pg_advisory_xact_lock(hashtextextended(id, 7251))::text
FROM unnest(%(ids)s::text[]) AS id
"""
_LOCK_ALL: Final = "SELECT pg_advisory_xact_lock(hashtextextended('', 7251))::text"
# Locks of one transaction; more ids than these are waited for as one. The server's
# table of locks, which all share, has room for 64 of each connection.
# Source: PostgreSQL, max_locks_per_transaction.
_MOST_LOCKS: Final = 50
# Primary keys.
_TASK: Final = "SELECT task FROM relay_job WHERE id = %(id)s"
_TAKEN: Final = "SELECT id FROM relay_job WHERE id = ANY(%(ids)s::uuid[]) LIMIT 1"
_HAS_QUEUE: Final = "SELECT 1 FROM relay_queue WHERE name = %(name)s"


_ID_IS_TAKEN: Final = "a job has the id that is given for another: nothing was enqueued"


class EditOptions(TypedDict, total=False):
    """What edit_job may change.

    Attributes:
        args, kwargs: all the arguments anew; the one that is not given is empty.
        run_at: an aware datetime; one that has come makes the job ready.
        queue: one that settings, a task or a row names.
        timeout, deadline: None takes it off. A deadline is an aware datetime.
        tags: all of them anew.
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    queue: str
    priority: int
    run_at: datetime
    max_retries: int
    timeout: timedelta | None
    deadline: datetime | None
    tags: Sequence[str]


@operation("enqueue_job", subject="job")
def enqueue_job(
    act: Act,
    task: str,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    **options: Unpack[EnqueueOptions],
) -> JobHandle[Any]:
    """Enqueue a job by its task's name, as relay.enqueue does.

    Returns:
        its handle; where a job of the id that is given is there already, of that one,
        as of a duplicate.

    Raises:
        NotAllowed: the actor lacks enqueue_job, or what the task or queue asks for.
        ArgumentError, EncodeError: an argument or option cannot be taken.
        DuplicateJob: another job holds the unique key, and unique= says "raise".
    """
    request = request_of(act, JobCall(task, args, kwargs, options))
    found = _there(options.get("id"), act.using)
    handle = insert(request) if found is None else found
    if not handle.is_duplicate:
        act.note(handle.id, task=handle.task)
    return handle


@operation("enqueue_job", subject="job")
def enqueue_jobs(act: Act, calls: Iterable[JobCall]) -> list[JobHandle[Any]]:
    """Enqueue many jobs as enqueue_job does, at once and all of them or none.

    Returns:
        their handles in order; those of duplicates say so.

    Raises:
        NotAllowed, ArgumentError, EncodeError, DuplicateJob: as enqueue_job.
        Conflict: an id that is given is there already.
    """
    requests = [request_of(act, call) for call in calls]
    _check_free([r.rare.id for r in requests if r.rare.id is not None], act.using)
    try:
        handles = enqueue_many(requests)
    except IntegrityError as error:
        if not isinstance(error.__cause__, psycopg.errors.UniqueViolation):
            raise
        raise Conflict(_ID_IS_TAKEN) from error
    for handle in handles:
        if not handle.is_duplicate:
            act.note(handle.id, task=handle.task)
    return handles


def _check_free(ids: Sequence[UUID], using: str) -> None:
    """Refuse ids that jobs have: one with a unique key would be passed over.

    Whoever else asks for one of them waits.
    """
    if not ids:
        return
    if len({*ids}) < len(ids):
        raise Conflict(_ID_IS_TAKEN)
    _lock(ids, using)
    if fetch_all(_TAKEN, {"ids": ids}, using=using):
        raise Conflict(_ID_IS_TAKEN)


def _lock(ids: Sequence[UUID], using: str) -> None:
    if len(ids) > _MOST_LOCKS:
        fetch_all(_LOCK_ALL, {}, using=using)
    else:
        fetch_all(_LOCK, {"ids": sorted(map(str, ids))}, using=using)


def _there(job_id: UUID | None, using: str) -> JobHandle[Any] | None:
    """Return the job of this id; where there is none, whoever else asks waits."""
    if job_id is None:
        return None
    _lock([job_id], using)
    for (task,) in fetch_all(_TASK, {"id": job_id}, using=using):
        return JobHandle(job_id, task, using=using, is_duplicate=True)
    return None


# --- many, up to AT_ONCE -------------------------------------------------------------


@operation("cancel_job", subject="job")
def cancel_jobs(act: Act, job_ids: Iterable[UUID]) -> ActReport:
    """Cancel jobs that wait, and ask the workers of running ones to stop them.

    Raises:
        NotAllowed: the actor lacks cancel_job.
        ArgumentError: they are more than AT_ONCE.
    """
    return change(act, "cancel", _few(job_ids))


@operation("retry_job", subject="job")
def retry_jobs(act: Act, job_ids: Iterable[UUID]) -> ActReport:
    """Run jobs that failed or were cancelled again, with their whole retry budget.

    Raises:
        NotAllowed: the actor lacks retry_job.
        ArgumentError: they are more than AT_ONCE.
    """
    return change(act, "retry", _few(job_ids))


@operation("retry_job", subject="job")
def replay_jobs(act: Act, job_ids: Iterable[UUID]) -> ActReport:
    """Enqueue a new job like each of these that has ended.

    Those of tasks and queues that ask for what the actor lacks are skipped.

    Raises:
        NotAllowed: the actor lacks retry_job.
        ArgumentError: they are more than AT_ONCE.
        MissingKey, DecodeError: encrypted arguments of one cannot be read; no job was
            replayed.
    """
    return change(act, "replay", _few(job_ids))


@operation("retry_job", subject="job")
def run_jobs_now(act: Act, job_ids: Iterable[UUID]) -> ActReport:
    """Make jobs ready at once that are scheduled or retrying.

    Raises:
        NotAllowed: the actor lacks retry_job.
        ArgumentError: they are more than AT_ONCE.
    """
    return change(act, "run_now", _few(job_ids))


@operation("delete_job", subject="job")
def delete_jobs(act: Act, job_ids: Iterable[UUID]) -> ActReport:
    """Delete jobs that do not run, with their attempts, logs, steps and history.

    Raises:
        NotAllowed: the actor lacks delete_job.
        ArgumentError: they are more than AT_ONCE.
    """
    return change(act, "delete", _few(job_ids))


def _few(job_ids: Iterable[UUID]) -> list[UUID]:
    ids = sorted(set(job_ids))
    if len(ids) > AT_ONCE:
        raise ArgumentError(
            f"{len(ids):,} jobs at once: give at most {AT_ONCE}, or start a bulk "
            "operation"
        )
    return ids


def change(act: Act, verb: str, ids: Sequence[UUID]) -> ActReport:
    """Have the engine do it, and note what has changed.

    Args:
        verb: one of VERBS.
    """
    refused: tuple[StateConflict, ...] = ()
    if verb == "replay":
        ids, refused = parted(act.actor.limits, ids, using=act.using)
    report = VERBS[verb](ids, act.actor.name, act.actor.why, act.using)
    report = replace(report, skipped=(*report.skipped, *refused))
    for job_id in report.done:
        act.note(job_id)
    for job_id in report.asked:
        act.note(job_id, asked=True)
        act.log("job.cancel_requested", "cancel requested", job_id=str(job_id))
    return report


# What a bulk operation may do as well, by its name there; by whom, why, and where.
VERBS: Final[Mapping[str, Callable[[Sequence[UUID], str, Why, str], ActReport]]] = {
    "cancel": lambda ids, actor, why, using: control.cancel_many(
        ids, actor=actor, using=using, why=why
    ),
    "retry": lambda ids, actor, why, using: control.retry_many(
        ids, actor=actor, using=using, why=why
    ),
    "replay": lambda ids, actor, why, using: replay.replay_many(
        ids, actor=actor, using=using, why=why
    ),
    "run_now": lambda ids, actor, why, using: control.run_now_many(
        ids, actor=actor, using=using, why=why
    ),
    "delete": lambda ids, actor, why, using: delete.delete_many(ids, using=using),
}

# --- one -----------------------------------------------------------------------------


def cancel_job(actor: Actor, job_id: UUID) -> bool:
    """Cancel one job as cancel_jobs does; tell whether it is cancelled now.

    False: it runs, and its worker was asked to stop it.

    Raises:
        NotAllowed, JobNotFound: also as the others here.
        StateConflict: its state does not allow it.
    """
    return bool(_only(cancel_jobs(actor, [job_id])).done)


def retry_job(actor: Actor, job_id: UUID) -> None:
    """Run one job again as retry_jobs does; raises as cancel_job."""
    _only(retry_jobs(actor, [job_id]))


def run_job_now(actor: Actor, job_id: UUID) -> None:
    """Make one job ready as run_jobs_now does; raises as cancel_job."""
    _only(run_jobs_now(actor, [job_id]))


def delete_job(actor: Actor, job_id: UUID) -> None:
    """Delete one job as delete_jobs does; raises as cancel_job."""
    _only(delete_jobs(actor, [job_id]))


def _only(report: ActReport) -> ActReport:
    if report.skipped:
        raise _raised(report.skipped[0])
    return report


def _raised(conflict: StateConflict) -> Exception:
    if conflict.state is None:
        return JobNotFound(conflict.job_id)
    return conflict


@operation("retry_job", subject="job")
def replay_job(
    act: Act,
    job_id: UUID,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> UUID:
    """Enqueue a new job like an ended one, also with other arguments; return its id.

    Args:
        args, kwargs: all the arguments anew, if either is given.

    Raises:
        NotAllowed: the actor lacks retry_job, what the task or queue asks for, or
            edit_job for other arguments.
        JobNotFound: it is gone.
        StateConflict: it has not ended, or a replay of it has not.
        ArgumentError, EncodeError: an argument cannot be taken.
    """
    original = original_of(job_id, using=act.using)
    act.actor.require_call(original.task, act.operation)
    act.actor.require_fill(original.queue, act.operation)
    arguments: Callable[[UUID], str] | None = None
    if args is not None or kwargs is not None:
        act.actor.require("edit_job", act.operation)
        arguments = encoder(original, args, kwargs)
    try:
        new_id = replay.replay(
            job_id,
            actor=act.actor.name,
            using=act.using,
            why=act.actor.why,
            arguments=arguments,
        )
    except StateConflict as conflict:
        raise _raised(conflict) from None
    act.note(job_id, job=str(new_id), with_changes=arguments is not None)
    return new_id


@operation("edit_job", subject="job")
def edit_job(
    act: Act, job_id: UUID, **options: Unpack[EditOptions]
) -> dict[str, list[Any]]:
    """Change a job that waits; return what has changed, before and after.

    With a new queue, priority or time it goes behind what waits there. It keeps its
    unique key. Of arguments is told only that they were given.

    Raises:
        NotAllowed: the actor lacks edit_job, or what the task asks for and arguments
            are given, or what the new queue does.
        JobNotFound: it is gone.
        StateConflict: it runs or has ended.
        ArgumentError, EncodeError, UnknownQueue: a value cannot be taken.
    """
    change = _edit_of(act, job_id, options)
    try:
        found = edit.edit(
            job_id,
            change,
            actor=act.actor.name,
            using=act.using,
            why=act.actor.why,
        )
    except StateConflict as conflict:
        raise _raised(conflict) from None
    act.note(job_id, **found)
    return found


def _edit_of(act: Act, job_id: UUID, options: EditOptions) -> edit.Edit:
    known = EditOptions.__annotations__
    if none := options.keys() - known:
        raise ArgumentError(f"unknown option of an edit: {unknown(none, known)}")
    if not options:
        raise ArgumentError("nothing is given that shall change")
    rest: dict[str, Any] = {
        name: value for name, value in options.items() if name not in ("args", "kwargs")
    }
    check_enqueue_options(rest)
    if isinstance(rest.get("deadline"), timedelta):
        raise ArgumentError("deadline is a timedelta: give an aware datetime")
    if (queue := rest.get("queue")) is not None:
        check_own(original_of(job_id, using=act.using).task)
        _check_known(queue, act.using)
        act.actor.require_fill(queue, act.operation)
    text = None
    if len(rest) < len(options):
        original = original_of(job_id, using=act.using)
        act.actor.require_call(original.task, act.operation)
        text = encoder(original, options.get("args"), options.get("kwargs"))(job_id)
    cleared = {name for name in ("timeout", "deadline") if rest.get(name, ...) is None}
    if "tags" in rest:
        rest["tags"] = tuple(dict.fromkeys(rest["tags"]))
        cleared |= set() if rest["tags"] else {"tags"}
    return edit.Edit(args=text, cleared=frozenset(cleared), **rest)


def _check_known(queue: str, using: str) -> None:
    if queue in known_queues() or fetch_all(_HAS_QUEUE, {"name": queue}, using=using):
        return
    raise UnknownQueue(
        f"no settings, task or row names the queue {queue!r}: add it to "
        "RELAY['QUEUES'] or correct the name"
    )

"""Requests put into the database: one, or many at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction

from relay import origin, traces
from relay.conf import get_settings
from relay.engine import enqueue as engine
from relay.engine import outside
from relay.engine.connection import check_vendor
from relay.engine.new_job import KeyHolder, NewJob
from relay.exceptions import ArgumentError
from relay.handles import JobHandle
from relay.ids import uuid7, uuid7s
from relay.requests import JobRequest
from relay.signals import job_enqueued

__all__ = ["aenqueue_many", "ainsert", "enqueue_many", "insert"]

R = TypeVar("R")


def insert(request: JobRequest[R]) -> JobHandle[R]:
    if (request_id := origin.request_id()) is not None:
        request = _carrying(request, {origin.REQUEST_ID: request_id})
    if (tracer := traces.tracer()) is None:
        return _insert(request)
    with tracer.send([request]) as sent:
        handle = _insert(_carrying(request, sent.carriers[0]))
        sent.made([handle.id])
    return handle


def _carrying(request: JobRequest[R], carrier: Mapping[str, str]) -> JobRequest[R]:
    if not carrier:
        return request
    meta = traces.with_carrier(request.rare.meta, carrier)
    return request._replace(rare=request.rare._replace(meta=meta))


def _insert(request: JobRequest[R]) -> JobHandle[R]:
    using, rare = get_settings().database, request.rare
    check_vendor(using)
    if request.is_plain and not request.priority and not job_enqueued.receivers:
        return _insert_new(request, using)
    job = request.new_job()
    if rare.is_outside:
        outside.insert(job, using=using)
        handle = _handle(job, None, using)
        _tell_enqueued([(job, handle)])
        return handle
    if rare.on_commit not in (None, using):
        if rare.unique is not None and rare.unique.rule.on_conflict == "raise":
            raise ArgumentError(
                f"using(on_commit={rare.on_commit!r}) with Unique(on_conflict="
                '"raise"): after the commit there is nobody to raise it to; give '
                'on_conflict="return"'
            )
        transaction.on_commit(lambda: _insert_now(job, using), using=rare.on_commit)
        return _handle(job, None, using)
    return _insert_now(job, using)


def _insert_new(request: JobRequest[R], using: str) -> JobHandle[R]:
    job_id = uuid7()
    try:
        engine.insert_new(_ready_row(job_id, request), using=using)
    except SynchronousOnlyOperation as error:
        raise _in_async_code("enqueue", "aenqueue") from error
    return JobHandle(job_id, request.task, using=using)


def _ready_row(job_id: UUID, request: JobRequest[Any]) -> engine.ReadyRow:
    return (
        job_id,
        request.task,
        request.queue,
        request.priority,
        request.max_retries,
        request.args,
    )


def _insert_now(job: NewJob, using: str) -> JobHandle[Any]:
    try:
        holder = engine.insert(job, using=using)
    except SynchronousOnlyOperation as error:
        raise _in_async_code("enqueue", "aenqueue") from error
    handle = _handle(job, holder, using)
    if job_enqueued.receivers:
        _announce([(job, handle)], using)
    return handle


def _in_async_code(called: str, instead: str) -> SynchronousOnlyOperation:
    return SynchronousOnlyOperation(
        f"{called}() in async code would hold up the event loop: await {instead}()"
    )


def _handle(job: NewJob, holder: KeyHolder | None, using: str) -> JobHandle[Any]:
    if holder is None:
        return JobHandle(job.id, job.task, using=using)
    return JobHandle(holder.id, holder.task, using=using, is_duplicate=True)


def _announce(made: Sequence[tuple[NewJob, JobHandle[Any]]], using: str) -> None:
    """Send job_enqueued once the caller's transaction commits."""
    transaction.on_commit(lambda: _tell_enqueued(made), using=using, robust=True)


def _tell_enqueued(made: Sequence[tuple[NewJob, JobHandle[Any]]]) -> None:
    from relay.tasks import all_tasks  # here: it is made of this module

    for job, handle in made if job_enqueued.receivers else ():
        if not handle.is_duplicate:
            sender = all_tasks().get(job.task)
            job_enqueued.send_robust(sender, job=handle, queue=job.queue)


# Django's connections belong to threads: thread_sensitive keeps async code on the one
# that its request's sync code uses.
ainsert: Final = sync_to_async(insert, thread_sensitive=True)


def enqueue_many(requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
    """Enqueue all jobs at once, of any tasks, or none; their handles in order.

    A handle whose is_duplicate is true is that of the job which holds the unique key,
    be it an earlier one of these.

    Raises:
        django.db.IntegrityError: a job without a unique key has an id, given by
            using(id=...), that is there already.
        DuplicateJob: a unique key is held, and its rule says "raise"; none is enqueued.

    Transaction: joins the caller's on the alias RELAY["DATABASE"].
    """
    using = get_settings().database
    check_vendor(using)
    asked = [_checked(request, using) for request in requests]
    if (request_id := origin.request_id()) is not None:
        asked = [_carrying(each, {origin.REQUEST_ID: request_id}) for each in asked]
    if (tracer := traces.tracer()) is None or not asked:
        return _insert_many(asked, using)
    with tracer.send(asked) as sent:
        handles = _insert_many(list(map(_carrying, asked, sent.carriers)), using)
        sent.made([handle.id for handle in handles])
    return handles


def _insert_many(asked: Sequence[JobRequest[R]], using: str) -> list[JobHandle[R]]:
    try:
        if not job_enqueued.receivers and all(request.is_plain for request in asked):
            return _insert_plain(asked, using)
        ids = uuid7s(len(asked))
        jobs = [each.new_job(new_id) for each, new_id in zip(asked, ids, strict=True)]
        holders = engine.insert_many(jobs, using=using)
    except SynchronousOnlyOperation as error:
        raise _in_async_code("enqueue_many", "aenqueue_many") from error
    handles = [
        _handle(job, holders.get(place), using) for place, job in enumerate(jobs)
    ]
    if job_enqueued.receivers:
        _announce(list(zip(jobs, handles, strict=True)), using)
    return handles


def _insert_plain(requests: Sequence[JobRequest[R]], using: str) -> list[JobHandle[R]]:
    handles: list[JobHandle[R]] = []

    def rows() -> Iterator[engine.ReadyRow]:
        # Made while the server takes in those before them.
        for job_id, each in zip(uuid7s(len(requests)), requests, strict=True):
            handles.append(JobHandle(job_id, each.task, using=using))
            yield _ready_row(job_id, each)

    if requests:
        engine.insert_ready(rows(), using=using)
    return handles


def _checked(request: JobRequest[R], using: str) -> JobRequest[R]:
    if not isinstance(request, JobRequest):
        raise ArgumentError(
            f"enqueue_many with {request!r}: give what a task's job(...) returns"
        )
    if request.is_plain:
        return request
    on_commit = request.rare.on_commit
    if on_commit not in (None, using):
        raise ArgumentError(
            f"enqueue_many with a job of using(on_commit={on_commit!r}): give "
            "transaction.on_commit() a function that calls enqueue_many"
        )
    if request.rare.is_outside:
        raise ArgumentError(
            "enqueue_many with a job of using(outside_transaction=True): call its "
            "enqueue() instead"
        )
    return request


async def aenqueue_many(requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
    """As enqueue_many; in a transaction of its own."""
    return await sync_to_async(enqueue_many, thread_sensitive=True)(requests)

"""What is asked for: a call, checked and encoded, and then enqueued."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction

from relay import codec, origin, sensitive, sensitive_places, traces
from relay.conf import DEFAULT_QUEUE, get_settings
from relay.engine import enqueue as engine
from relay.engine import outside
from relay.engine.connection import check_vendor
from relay.engine.new_job import KeyHolder, NewJob
from relay.exceptions import ArgumentError, EncodeError
from relay.handles import JobHandle
from relay.ids import uuid7, uuid7s
from relay.labels import check_tags, encode_meta, joined_tags
from relay.options import check_enqueue_options, check_task_name, split_deadline
from relay.signals import job_enqueued
from relay.unique import Unique, UniqueKey

if TYPE_CHECKING:
    from relay.tasks import Task

__all__ = [
    "NO_OPTIONS",
    "JobRequest",
    "aenqueue_many",
    "ainsert",
    "enqueue_many",
    "insert",
    "request_by_name",
    "request_of",
]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

NO_OPTIONS: Final[Mapping[str, Any]] = MappingProxyType({})


class RareOptions(NamedTuple):
    """What most jobs go without. Give it by name.

    Attributes:
        meta: as JSON, not shown.
        sealed: where in the arguments stands what new_job encrypts.
    """

    run_at: datetime | None = None
    run_in: timedelta | None = None
    id: UUID | None = None
    unique: UniqueKey | None = None
    timeout: timedelta | None = None
    deadline: datetime | timedelta | None = None
    on_commit: str | None = None
    tags: tuple[str, ...] = ()
    meta: str | None = None
    is_outside: bool = False
    sealed: tuple[sensitive_places.Place, ...] = ()

    def __repr__(self) -> str:
        values = (f"{n}={v!r}" for n, v in self._asdict().items() if n != "meta")
        return f"RareOptions({', '.join(values)})"


_NOTHING_RARE: Final = RareOptions()


class JobRequest(NamedTuple, Generic[R_co]):
    """A job that is checked and encoded but not enqueued yet; made by Task.job.

    Attributes:
        args: the arguments as JSON, not shown.
    """

    task: str
    args: str
    queue: str
    priority: int
    max_retries: int
    rare: RareOptions = _NOTHING_RARE

    def __repr__(self) -> str:
        return (
            f"JobRequest(task={self.task!r}, queue={self.queue!r}, "
            f"priority={self.priority}, max_retries={self.max_retries}, "
            f"rare={self.rare!r})"
        )

    @property
    def is_plain(self) -> bool:
        """Whether the job is ready now and says nothing a short statement cannot."""
        return self.rare is _NOTHING_RARE

    def new_job(self, new_id: UUID | None = None) -> NewJob:
        """Return what the engine inserts, with a new id unless one was given.

        Args:
            new_id: taken for the new id, where many are made at once.

        Raises:
            SettingsError: an argument is sensitive, and there is no key.
            MissingKey: as above, and the key cannot be fetched.
        """
        rare = self.rare
        job_id = rare.id or new_id or uuid7()
        deadline, deadline_in = split_deadline(rare.deadline)
        return NewJob(
            id=job_id,
            task=self.task,
            queue=self.queue,
            args=(
                sensitive.seal_arguments(self.args, rare.sealed, job_id)
                if rare.sealed
                else self.args
            ),
            priority=self.priority,
            run_at=rare.run_at,
            run_in=rare.run_in,
            max_retries=self.max_retries,
            unique=rare.unique,
            timeout=rare.timeout,
            deadline=deadline,
            deadline_in=deadline_in,
            tags=rare.tags,
            meta=rare.meta,
        )


def request_of(
    made: Task[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: Mapping[str, Any],
) -> JobRequest[Any]:
    if not made.parameters.surely_take(args, kwargs):
        try:
            made.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"{made.name}{made.signature}: {error}") from None
    rare = _NOTHING_RARE
    if options or made.has_rare_options:
        rare = _rare_options(made.name, made, args, kwargs, options)
    max_retries = options.get("max_retries", made.max_retries)
    return JobRequest(
        made.name,
        _encode(args, kwargs, rare.sealed),
        options.get("queue", made.queue),
        options.get("priority", made.priority),
        get_settings().max_retries if max_retries is None else max_retries,
        rare,
    )


def _rare_options(
    name: str,
    made: Task[..., Any] | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: Mapping[str, Any],
) -> RareOptions:
    """Return what the options of a call, and of its task, say beyond the plain."""
    unique: Unique | None = options.get("unique", made and made.unique)
    sealed: tuple[sensitive_places.Place, ...] = ()
    if options.get("sensitive") or (made is not None and made.sensitive):
        sealed = _sealed(name, made, args, kwargs, options, unique)
    key = None
    if unique is not None:
        parameters = None if made is None else made.parameters
        key = unique.resolve(name, parameters, args, kwargs)
    if made is not None and not options:  # as most calls
        rare = RareOptions(
            timeout=made.timeout, tags=made.tags, sealed=sealed, unique=key
        )
    else:
        rare = RareOptions(
            run_at=options.get("run_at"),
            run_in=options.get("run_in"),
            id=options.get("id"),
            timeout=options.get("timeout", made and made.timeout),
            deadline=options.get("deadline"),
            on_commit=options.get("on_commit"),
            tags=_tags(made, options),
            meta=encode_meta(options.get("meta")),
            is_outside=options.get("outside_transaction", False),
            sealed=sealed,
            unique=key,
        )
    return _NOTHING_RARE if rare == _NOTHING_RARE else rare


def _tags(made: Task[..., Any] | None, options: Mapping[str, Any]) -> tuple[str, ...]:
    own = () if made is None else made.tags
    given = options.get("tags")
    return joined_tags((*own, *check_tags(given))) if given else own


def _sealed(
    name: str,
    made: Task[..., Any] | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: Mapping[str, Any],
    unique: Unique | None,
) -> tuple[sensitive_places.Place, ...]:
    """Return where what is sensitive stands in a call, for a task or a name."""
    sensitive_places.check_library()
    names = sensitive_places.names_of(options.get("sensitive", ()))
    signature = None
    if made is not None:
        signature = made.signature
        sensitive_places.check_names(name, signature, names)
        names = sensitive_places.united(made.sensitive, names)
    sensitive_places.check_unique(name, unique, names)
    return sensitive_places.find_places(name, signature, names, args, kwargs)


def _encode(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    sealed: tuple[sensitive_places.Place, ...],
) -> str:
    settings = get_settings()
    try:
        return codec.encode_arguments(
            args,
            kwargs,
            limit_bytes=settings.max_argument_bytes,
            depth=settings.max_depth,
        )
    except EncodeError as error:
        failure = sensitive_places.veiled(error, sealed)
    raise failure  # here: the first one, which may quote a value, must not follow it


def request_by_name(
    name: object,
    made: Task[..., Any] | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> JobRequest[Any]:
    check_enqueue_options(options)
    keywords = dict(kwargs or {})
    if made is not None:
        return request_of(made, args, keywords, options)
    task_name = check_task_name(name)
    rare = _rare_options(task_name, None, args, keywords, options)
    return JobRequest(
        task=task_name,
        args=_encode(args, keywords, rare.sealed),
        queue=options.get("queue", DEFAULT_QUEUE),
        priority=options.get("priority", 0),
        max_retries=options.get("max_retries", get_settings().max_retries),
        rare=rare,
    )


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

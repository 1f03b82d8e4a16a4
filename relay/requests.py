"""What is asked for: a call, checked and encoded."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from relay import codec, sensitive, sensitive_places
from relay.conf import DEFAULT_QUEUE, get_settings
from relay.engine.new_job import NewJob
from relay.exceptions import ArgumentError, EncodeError
from relay.ids import uuid7
from relay.labels import check_tags, encode_meta, joined_tags
from relay.options import check_enqueue_options, check_task_name, split_deadline
from relay.unique import Unique, UniqueKey

if TYPE_CHECKING:
    from relay.tasks import Task

__all__ = [
    "NO_OPTIONS",
    "JobRequest",
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

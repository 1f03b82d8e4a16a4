"""Tasks, the registry of their names, and enqueueing them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from types import FunctionType, MappingProxyType
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from asgiref.sync import iscoroutinefunction

from relay import codec, redaction, sensitive_places
from relay.conf import DEFAULT_QUEUE, OWN_QUEUE, check_queue_name, get_settings
from relay.dataclass_names import signature
from relay.engine import rules
from relay.exceptions import (
    ArgumentError,
    TaskNameConflict,
    UnknownTask,
)
from relay.failure import Failure
from relay.handles import JobHandle
from relay.inserting import ainsert, insert
from relay.labels import check_tags
from relay.options import (
    DEFAULT,
    MAX_JOBS,
    EnqueueOptions,
    TaskOptions,
    check_enqueue_options,
    check_task_options,
    name_of,
)
from relay.parameters import Parameters
from relay.requests import (
    NO_OPTIONS,
    JobRequest,
    request_by_name,
    request_of,
)
from relay.retention import Retention
from relay.retry import BackoffRule, RetryRules
from relay.unique import Unique

__all__ = [
    "AsyncTask",
    "BoundTask",
    "Task",
    "aenqueue",
    "all_tasks",
    "declare_queues",
    "enqueue",
    "get_task",
    "is_own",
    "known_queues",
    "listed_tasks",
    "register",
    "task",
]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

# --- tasks ---------------------------------------------------------------------------


class Task(Generic[P, R]):
    """A function that can run as a job; made by @task. A plain call just runs it.

    Attributes:
        name: what rows call it.
        function: what a worker calls.
        is_async: whether function is a coroutine function.
        max_retries, backoff: None takes the settings'.
        retries: what it says of its retries, backoff among it.
        retention: of its jobs, by how they end; DEFAULT in it takes the queue's, or
            the settings'.
        on_failure: the task that is enqueued when a job has failed for good, or None.
        unique: what makes its jobs duplicates; None takes no key.
        timeout, soft_timeout: how long one attempt may run, and when it is warned; None
            for ever, and not at all.
        statement_timeout: how long one of its database statements may take.
        has_limits: whether it has one of the last two.
        sensitive: the names of arguments that are encrypted; True for all, and the
            result.
        transactional: whether the handler and the job's finish commit together.
        capture_logs: whether its attempts' logs are kept; None takes the settings'.
        capture_stdout: whether what they print is kept as well.
        isolation: "process" where its jobs run in processes apart, or None.
        memory_limit: bytes a handler may take there; None for no limit.
        max_jobs: how many jobs one such process runs.
        tags: those of its jobs.
        permission: what who asks for its jobs through a surface needs, or None.
        parameters: what its calls may look like.
        has_rare_options: whether its jobs have any of RareOptions.
    """

    def __init__(
        self, function: Callable[P, Any], /, **options: Unpack[TaskOptions]
    ) -> None:
        check_task_options(options)
        # First: it copies the function's own attributes, whatever they are called.
        functools.update_wrapper(self, function)
        self.name: str = options.get("name") or name_of(function)
        self.function = function
        self.is_async: bool = iscoroutinefunction(function)
        self.queue: str = options.get("queue", DEFAULT_QUEUE)
        self.priority: int = options.get("priority", 0)
        self.max_retries: int | None = (
            options["max_attempts"] - 1
            if "max_attempts" in options
            else options.get("max_retries")
        )
        self.retries = RetryRules.of(options)
        self.backoff: BackoffRule | Mapping[type[BaseException], BackoffRule] | None = (
            self.retries.backoff
        )
        self.retention = Retention.of(options.get("retention", DEFAULT))
        self.on_failure: Task[[Failure], Any] | None = options.get("on_failure")
        self.unique: Unique | None = options.get("unique")
        self.transactional: bool = options.get("transactional", False)
        self.timeout: timedelta | None = options.get("timeout")
        self.soft_timeout: timedelta | None = options.get("soft_timeout")
        self.statement_timeout: timedelta | None = options.get("statement_timeout")
        self.has_limits: bool = bool(self.soft_timeout or self.statement_timeout)
        self.isolation: Literal["process"] | None = options.get("isolation")
        self.memory_limit: int | None = options.get("memory_limit")
        self.max_jobs: int = options.get("max_jobs", MAX_JOBS)
        self.signature = signature(function)
        self.parameters = Parameters(self.signature)
        self.capture_stdout: bool = options.get("capture_stdout", False)
        self.capture_logs: bool | Literal["failed"] | None = options.get(
            "capture_logs", True if self.capture_stdout else None
        )
        self.tags: tuple[str, ...] = check_tags(options.get("tags", ()))
        self.permission: str | None = options.get("permission")
        self.sensitive = sensitive_places.names_of(options.get("sensitive", ()))
        self.has_rare_options: bool = bool(
            self.unique or self.timeout or self.tags or self.sensitive
        )
        self._check()
        if "on_failure" in options:
            _check_on_failure(self.name, self.on_failure)

    def _check(self) -> None:
        """Refuse what cannot go together.

        Raises:
            ArgumentError: it cannot.
        """
        if self.transactional and self.is_async:
            raise ArgumentError(
                f"@task(transactional=True) on {self.name}: it is a coroutine "
                "function, and Django has no transactions in async code; make it a "
                "plain one"
            )
        if self.unique is not None:
            self.unique.check(self.name, self.signature)
        if self.sensitive:
            sensitive_places.check_library()
            sensitive_places.check_names(self.name, self.signature, self.sensitive)
            sensitive_places.check_unique(self.name, self.unique, self.sensitive)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast("R", self.function(*args, **kwargs))

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def using(self, **options: Unpack[EnqueueOptions]) -> BoundTask[P, R]:
        """Return the task with options for the jobs enqueued through it.

        Raises:
            ArgumentError: an option is unknown or out of range.
        """
        return BoundTask(self, options)

    def job(self, /, *args: P.args, **kwargs: P.kwargs) -> JobRequest[R]:
        """Return a job to enqueue later, with enqueue_many.

        Raises:
            ArgumentError: the arguments do not fit the task's signature.
            EncodeError: an argument cannot be carried; its path is named.
        """
        return request_of(self, args, kwargs, NO_OPTIONS)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Enqueue a job; it is there once the caller's transaction commits.

        Raises:
            ArgumentError: the arguments do not fit the task's signature.
            EncodeError: an argument cannot be carried; its path is named.
            DuplicateJob: another job holds the task's unique key, which says "raise".

        Transaction: joins the caller's on the alias RELAY["DATABASE"].
        """
        return insert(request_of(self, args, kwargs, NO_OPTIONS))

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """As enqueue; async code has no transaction to join, so in one of its own."""
        return await ainsert(request_of(self, args, kwargs, NO_OPTIONS))


class AsyncTask(Task[P, R]):
    """A task whose function is a coroutine function; R is what awaiting it gives."""

    def __call__(  # type: ignore[override] # a plain call gives the coroutine
        self, /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]:
        return cast("Coroutine[Any, Any, R]", self.function(*args, **kwargs))


class BoundTask(Generic[P, R]):
    """A task with options for the jobs enqueued through it; made by Task.using."""

    __slots__ = ("_options", "task")

    def __init__(self, task: Task[P, R], options: Mapping[str, Any]) -> None:
        check_enqueue_options(options)
        self.task = task
        self._options = options

    def using(self, **options: Unpack[EnqueueOptions]) -> BoundTask[P, R]:
        """Return the task with these options besides, or instead of, its own."""
        return BoundTask(self.task, {**self._options, **options})

    def job(self, /, *args: P.args, **kwargs: P.kwargs) -> JobRequest[R]:
        """As Task.job, with the options."""
        return request_of(self.task, args, kwargs, self._options)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """As Task.enqueue, with the options."""
        return insert(request_of(self.task, args, kwargs, self._options))

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """As Task.aenqueue, with the options."""
        return await ainsert(request_of(self.task, args, kwargs, self._options))


class _Decorator(Protocol):
    """What @task(...) with options returns."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(**options: Unpack[TaskOptions]) -> _Decorator: ...
def task(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a task of a function and register it: @task, or @task(queue="mail", ...).

    The function must stand at the top level of an importable module, as workers find
    tasks by importing each app's tasks.py; with name= it may stand elsewhere, if it
    is made anew at each import.

    Raises:
        ArgumentError: an option is unknown or out of range, or it is no function
            that a worker could find.
        TaskNameConflict: another function has the name.
    """
    if function is None:
        check_task_options(options)
        return lambda function: task(function, **options)
    if not isinstance(function, FunctionType):
        raise ArgumentError(
            f"@task on {function!r}: it is no function; wrap it in one with def"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ArgumentError(
            f"@task on {function!r}: it is a generator, whose body a call does not "
            "run; return a list, or enqueue a job for each item"
        )
    kind = AsyncTask if iscoroutinefunction(function) else Task
    return register(kind(function, **options))


# --- the registry --------------------------------------------------------------------

_tasks: dict[str, Task[..., Any]] = {}
_queues: set[str] = set()
# How the names of relay's own tasks begin, and of the demo's, which are none of those.
_OWN: Final = "relay."
_DEMO: Final = "relay.standalone."


def register(made: Task[..., Any]) -> Task[..., Any]:
    """Let workers find a task by its name; @task does, and adapters of other APIs.

    Raises:
        TaskNameConflict: another function has the name.
    """
    there = _tasks.get(made.name)
    if there is not None and _origin(there) != _origin(made):
        raise TaskNameConflict(
            f"the task name {made.name!r} is taken by {_origin(there)[0]}: give "
            f"{_origin(made)[0]} another with @task(name=...)"
        )
    _tasks[made.name] = made
    codec.register_annotations(made.function)
    redaction.know(made.name, made.signature)
    rules.declare(made.name, made.retention, _follower(made.on_failure))
    return made


def _check_on_failure(name: str, follower: object) -> None:
    if not isinstance(follower, Task):
        raise ArgumentError(
            f"on_failure={follower!r} of {name}: give a task, defined above this one "
            "with @task, that takes a relay.Failure"
        )
    try:
        follower.signature.bind(None)
    except TypeError as error:
        raise ArgumentError(
            f"on_failure={follower!r} of {name} cannot be called with a relay.Failure "
            f"alone ({error}): give it one parameter"
        ) from None
    # It is enqueued by the statement that fails the job, which can do neither.
    for option in ("unique", "sensitive"):
        if getattr(follower, option):
            raise ArgumentError(
                f"on_failure={follower!r} of {name} is declared with {option}=: "
                "name a task without it"
            )


def _follower(made: Task[..., Any] | None) -> rules.Follower | None:
    if made is None:
        return None
    return rules.Follower(
        task=made.name,
        queue=made.queue,
        priority=made.priority,
        max_retries=made.max_retries,
        timeout=made.timeout,
        tags=made.tags,
    )


def _origin(made: Task[..., Any]) -> tuple[str, int]:
    """Where the function was written: equal when its module is imported again."""
    function = made.function
    place = f"{function.__module__}.{function.__qualname__}"
    # Functions made inside others share their names; their lines tell them apart.
    line = function.__code__.co_firstlineno if "<" in place else 0
    return place, line


def get_task(name: str) -> Task[..., Any]:
    """Return the registered task of this name. Nothing is imported to find it.

    Raises:
        UnknownTask: there is none in this process.
    """
    try:
        return _tasks[name]
    except KeyError:
        raise UnknownTask(
            f"no task {name!r} is registered in this process: define it with @task in "
            "the tasks.py of an installed app"
        ) from None


def all_tasks() -> Mapping[str, Task[..., Any]]:
    """Return the registered tasks by name; the mapping follows later registrations."""
    return MappingProxyType(_tasks)


def is_own(name: str) -> bool:
    """Tell whether a task is relay's own; those of `relay demo` are a project's."""
    return name.startswith(_OWN) and not name.startswith(_DEMO)


def listed_tasks() -> list[str]:
    """Return the names of tasks that lists offer, in order: all but relay's own."""
    return sorted(name for name in _tasks if not is_own(name))


def declare_queues(names: Iterable[str]) -> None:
    """Make queues known besides those of settings and tasks; for adapters."""
    _queues.update(map(check_queue_name, names))


def known_queues() -> set[str]:
    """Return the queues that the settings, a registered task or an adapter name."""
    named = {made.queue for made in _tasks.values()}
    return {*get_settings().queues, *_queues, *named} - {OWN_QUEUE}


# --- enqueueing by name --------------------------------------------------------------


def enqueue(
    name: str,
    /,
    *args: object,
    kwargs: Mapping[str, object] | None = None,
    **options: Unpack[EnqueueOptions],
) -> JobHandle[Any]:
    """Enqueue a job by its task's name, also where the task's code is not at hand.

    Where the name is registered, the arguments are checked against its signature and
    its options are the defaults; elsewhere the worker checks them.

    Raises:
        ArgumentError: an option, or an argument, cannot be taken.
        EncodeError: an argument cannot be carried; its path is named.
        DuplicateJob: another job holds the unique key, and unique= says "raise".

    Transaction: joins the caller's on the alias RELAY["DATABASE"].
    """
    return insert(request_by_name(name, _at_hand(name), args, kwargs, options))


async def aenqueue(
    name: str,
    /,
    *args: object,
    kwargs: Mapping[str, object] | None = None,
    **options: Unpack[EnqueueOptions],
) -> JobHandle[Any]:
    """As enqueue; async code has no transaction to join, so in one of its own."""
    return await ainsert(request_by_name(name, _at_hand(name), args, kwargs, options))


def _at_hand(name: object) -> Task[..., Any] | None:
    return _tasks.get(name) if isinstance(name, str) else None

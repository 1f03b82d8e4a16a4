"""Tasks, the registry of their names, enqueueing them, and handles on their jobs."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import math
import re
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from types import FunctionType, MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import connections

from relay import codec
from relay.conf import DEFAULT_QUEUE, check_queue_name, get_settings
from relay.engine import enqueue as engine
from relay.exceptions import (
    ArgumentError,
    JobNotFound,
    ResultTimeout,
    TaskFailed,
    TaskNameConflict,
    UnknownTask,
    WaitRefused,
)
from relay.ids import uuid7
from relay.retry import Backoff

if TYPE_CHECKING:
    from relay.models import JobState

__all__ = [
    "DEFAULT",
    "AsyncTask",
    "BoundTask",
    "Default",
    "EnqueueOptions",
    "JobHandle",
    "JobRequest",
    "Task",
    "TaskOptions",
    "aenqueue",
    "aenqueue_many",
    "all_tasks",
    "enqueue",
    "enqueue_many",
    "get_task",
    "known_queues",
    "task",
]

P = ParamSpec("P")
R = TypeVar("R")

# Source: docs/reference/tasks.md, "Options". The columns hold more; these are what an
# option may mean, and what the table's own checks admit.
PRIORITIES: Final = range(-100, 101)
MAX_RETRIES: Final = range(1_000_001)
EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(9999, 12, 29, tzinfo=UTC)
_TASK_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f]{1,200}")

# How often a waiting handle looks: from the first to the last, doubling.
FIRST_LOOK_SECONDS: Final = 0.02
LAST_LOOK_SECONDS: Final = 0.5
WAIT_SECONDS: Final = 60.0


class Default(Enum):
    """Stands for what the settings say, where None has a meaning of its own."""

    DEFAULT = "default"


DEFAULT: Final = Default.DEFAULT


class TaskOptions(TypedDict, total=False):
    """What @task takes.

    Attributes:
        name: what the task is called in rows and by enqueue(name); its default is
            module.function.
        queue: the queue of its jobs, 'default' unless given.
        priority: -100 to 100, higher first; 0 unless given.
        max_retries: attempts that may raise, less the first; 0 runs a job once.
        backoff: when a job that raised runs again.
        retention: how long completed jobs are kept; None for ever, 0 not at all.
    """

    name: str
    queue: str
    priority: int
    max_retries: int
    backoff: Backoff
    retention: timedelta | None


class EnqueueOptions(TypedDict, total=False):
    """What using() and enqueue(name) take.

    Attributes:
        run_at: an aware datetime before which the job does not start.
        run_in: the same as a delay from now; a negative one means now.
        queue, priority, max_retries: instead of the task's.
        id: the job's id; enqueueing it again while the job is there does nothing.
    """

    run_at: datetime | None
    run_in: timedelta | None
    queue: str
    priority: int
    max_retries: int
    id: UUID


# --- checks: each refusal names the value, the reason and the remedy -----------------


def _check_number(name: str, value: object, allowed: range) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value not in allowed:
        raise ArgumentError(
            f"{name}={value!r}: give a whole number from {allowed[0]} to {allowed[-1]}"
        )


def _check_queue(value: object) -> None:
    try:
        check_queue_name(value)
    except ValueError as error:
        raise ArgumentError(f"queue={error}") from None


def _check_run_at(value: object) -> None:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise ArgumentError(
            f"run_at={value!r}: give a datetime with a time zone, such as "
            "django.utils.timezone.now() + timedelta(hours=1)"
        )
    if not EARLIEST <= value <= LATEST:
        raise ArgumentError(
            f"run_at={value.isoformat()}: give an instant from {EARLIEST:%Y-%m-%d} to "
            f"{LATEST:%Y-%m-%d}"
        )


def _check_run_in(value: object) -> None:
    if not isinstance(value, timedelta):
        raise ArgumentError(
            f"run_in={value!r}: give a timedelta, such as timedelta(minutes=10)"
        )
    try:
        is_in_range = datetime.now(UTC) + max(value, timedelta(0)) <= LATEST
    except OverflowError:
        is_in_range = False
    if not is_in_range:
        raise ArgumentError(
            f"run_in={value}: that is after {LATEST:%Y-%m-%d}; give a shorter delay"
        )


def _check_options(options: Mapping[str, Any], known: frozenset[str]) -> None:
    if not options.keys() <= known:
        unknown = ", ".join(sorted(options.keys() - known))
        raise ArgumentError(
            f"unknown option {unknown}: there are {', '.join(sorted(known))}"
        )
    if "queue" in options:
        _check_queue(options["queue"])
    if "priority" in options:
        _check_number("priority", options["priority"], PRIORITIES)
    if "max_retries" in options:
        _check_number("max_retries", options["max_retries"], MAX_RETRIES)


_TASK_OPTIONS: Final = frozenset(TaskOptions.__annotations__)
_ENQUEUE_OPTIONS: Final = frozenset(EnqueueOptions.__annotations__)


def _check_task_options(options: Mapping[str, Any]) -> None:
    _check_options(options, _TASK_OPTIONS)
    if "name" in options:
        _check_task_name(options["name"])
    if not isinstance(options.get("backoff", Backoff()), Backoff):
        raise ArgumentError(f"backoff={options['backoff']!r}: give a relay.Backoff")
    retention = options.get("retention")
    if retention is not None and not (
        isinstance(retention, timedelta) and retention >= timedelta(0)
    ):
        raise ArgumentError(
            f"retention={retention!r}: give a timedelta of 0 or more, or None to keep "
            "completed jobs for ever"
        )


def _check_enqueue_options(options: Mapping[str, Any]) -> None:
    _check_options(options, _ENQUEUE_OPTIONS)
    run_at, run_in = options.get("run_at"), options.get("run_in")
    if run_at is not None and run_in is not None:
        raise ArgumentError("run_at and run_in are both given: give one of them")
    if run_at is not None:
        _check_run_at(run_at)
    if run_in is not None:
        _check_run_in(run_in)
    if "id" in options and not isinstance(options["id"], UUID):
        raise ArgumentError(f"id={options['id']!r}: give a uuid.UUID")


def _check_task_name(name: object) -> str:
    if isinstance(name, str) and _TASK_NAME.fullmatch(name):
        try:
            name.encode()
        except UnicodeEncodeError:
            pass
        else:
            return name
    raise ArgumentError(
        f"{name!r} cannot name a task: use 1 to 200 characters without spaces"
    )


# --- tasks ---------------------------------------------------------------------------


class Task(Generic[P, R]):
    """A function that can run as a job; made by @task. A plain call just runs it.

    Attributes:
        name: what rows call it.
        function: what a worker calls.
        is_async: whether function is a coroutine function.
        max_retries, backoff: None takes the settings'.
        retention: of completed jobs; DEFAULT takes the settings', None keeps them.
    """

    def __init__(
        self, function: Callable[P, Any], /, **options: Unpack[TaskOptions]
    ) -> None:
        _check_task_options(options)
        self.name: str = options.get("name") or _name_of(function)
        self.function = function
        self.is_async: bool = inspect.iscoroutinefunction(function)
        self.queue: str = options.get("queue", DEFAULT_QUEUE)
        self.priority: int = options.get("priority", 0)
        self.max_retries: int | None = options.get("max_retries")
        self.backoff: Backoff | None = options.get("backoff")
        self.retention: timedelta | Default | None = options.get("retention", DEFAULT)
        self.signature = inspect.signature(function)
        functools.update_wrapper(self, function)

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
        return _request(self, args, kwargs, _NO_OPTIONS)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Enqueue a job; it is there once the caller's transaction commits.

        Raises:
            ArgumentError: the arguments do not fit the task's signature.
            EncodeError: an argument cannot be carried; its path is named.

        Transaction: joins the caller's on the alias RELAY["DATABASE"].
        """
        return _insert(_request(self, args, kwargs, _NO_OPTIONS))

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """As enqueue; async code has no transaction to join, so in one of its own."""
        return await _ainsert(_request(self, args, kwargs, _NO_OPTIONS))


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
        _check_enqueue_options(options)
        self.task = task
        self._options = options

    def using(self, **options: Unpack[EnqueueOptions]) -> BoundTask[P, R]:
        """Return the task with these options besides, or instead of, its own."""
        return BoundTask(self.task, {**self._options, **options})

    def job(self, /, *args: P.args, **kwargs: P.kwargs) -> JobRequest[R]:
        """As Task.job, with the options."""
        return _request(self.task, args, kwargs, self._options)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """As Task.enqueue, with the options."""
        return _insert(_request(self.task, args, kwargs, self._options))

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """As Task.aenqueue, with the options."""
        return await _ainsert(_request(self.task, args, kwargs, self._options))


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
        _check_task_options(options)
        return lambda function: task(function, **options)
    if not isinstance(function, FunctionType):
        raise ArgumentError(
            f"@task on {function!r}: it is no function; wrap it in one with def"
        )
    kind = AsyncTask if inspect.iscoroutinefunction(function) else Task
    return _register(kind(function, **options))


def _name_of(function: Callable[..., Any]) -> str:
    module, name = function.__module__, function.__qualname__
    if name != function.__name__ or name == "<lambda>":
        reason = "it does not stand at the top level of its module"
    elif module == "__main__":
        reason = "it stands in the program's main module, which workers do not import"
    else:
        return _check_task_name(f"{module}.{name}")
    raise ArgumentError(
        f"@task on {module}.{name}: {reason}; move it into an app's tasks.py, or give "
        "it a name with @task(name=...)"
    )


# --- the registry --------------------------------------------------------------------

_tasks: dict[str, Task[..., Any]] = {}


def _register(made: Task[..., Any]) -> Task[..., Any]:
    there = _tasks.get(made.name)
    if there is not None and _origin(there) != _origin(made):
        raise TaskNameConflict(
            f"the task name {made.name!r} is taken by {_origin(there)[0]}: give "
            f"{_origin(made)[0]} another with @task(name=...)"
        )
    _tasks[made.name] = made
    codec.register_annotations(made.function)
    return made


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


def known_queues() -> set[str]:
    """Return the queues that the settings or a registered task name."""
    return {*get_settings().queues, *(made.queue for made in _tasks.values())}


# --- enqueueing ----------------------------------------------------------------------

_NO_OPTIONS: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest(Generic[R]):
    """A job that is checked and encoded but not enqueued yet; made by Task.job."""

    task: str
    args: str
    queue: str
    priority: int
    max_retries: int
    run_at: datetime | None = None
    run_in: timedelta | None = None
    id: UUID | None = None

    def new_job(self) -> engine.NewJob:
        """Return what the engine inserts, with a new id unless one was given."""
        return engine.NewJob(
            id=self.id or uuid7(),
            task=self.task,
            queue=self.queue,
            args=self.args,
            priority=self.priority,
            run_at=self.run_at,
            run_in=self.run_in,
            max_retries=self.max_retries,
        )


def _request(
    made: Task[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: Mapping[str, Any],
) -> JobRequest[Any]:
    try:
        made.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentError(f"{made.name}{made.signature}: {error}") from None
    max_retries = options.get("max_retries", made.max_retries)
    return JobRequest(
        task=made.name,
        args=codec.encode_arguments(args, kwargs),
        queue=options.get("queue", made.queue),
        priority=options.get("priority", made.priority),
        max_retries=(
            get_settings().max_retries if max_retries is None else max_retries
        ),
        run_at=options.get("run_at"),
        run_in=options.get("run_in"),
        id=options.get("id"),
    )


def _request_by_name(
    name: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> JobRequest[Any]:
    _check_enqueue_options(options)
    keywords = dict(kwargs or {})
    made = _tasks.get(name)
    if made is not None:
        return _request(made, args, keywords, options)
    return JobRequest(
        task=_check_task_name(name),
        args=codec.encode_arguments(args, keywords),
        queue=options.get("queue", DEFAULT_QUEUE),
        priority=options.get("priority", 0),
        max_retries=options.get("max_retries", get_settings().max_retries),
        run_at=options.get("run_at"),
        run_in=options.get("run_in"),
        id=options.get("id"),
    )


def _insert(request: JobRequest[R]) -> JobHandle[R]:
    job, using = request.new_job(), get_settings().database
    engine.insert(job, using=using)
    return JobHandle(job.id, job.task, using=using)


# Django's connections belong to threads: thread_sensitive keeps async code on the one
# that its request's sync code uses.
_ainsert: Final = sync_to_async(_insert, thread_sensitive=True)


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

    Transaction: joins the caller's on the alias RELAY["DATABASE"].
    """
    return _insert(_request_by_name(name, args, kwargs, options))


async def aenqueue(
    name: str,
    /,
    *args: object,
    kwargs: Mapping[str, object] | None = None,
    **options: Unpack[EnqueueOptions],
) -> JobHandle[Any]:
    """As enqueue; async code has no transaction to join, so in one of its own."""
    return await _ainsert(_request_by_name(name, args, kwargs, options))


def enqueue_many(requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
    """Enqueue all jobs at once, of any tasks, or none; their handles in order.

    Raises:
        django.db.IntegrityError: a job with an id given by using(id=...) is there.

    Transaction: joins the caller's on the alias RELAY["DATABASE"].
    """
    jobs, using = [request.new_job() for request in requests], get_settings().database
    engine.insert_many(jobs, using=using)
    return [JobHandle(job.id, job.task, using=using) for job in jobs]


async def aenqueue_many(requests: Iterable[JobRequest[R]]) -> list[JobHandle[R]]:
    """As enqueue_many; in a transaction of its own."""
    return await sync_to_async(enqueue_many, thread_sensitive=True)(requests)


# --- handles -------------------------------------------------------------------------

# Primary key. The result is read as text: Django's cursors do not parse jsonb.
_READ_STATE: Final = "SELECT state FROM relay_job WHERE id = %(id)s"
_READ_END: Final = """
SELECT state, result::text, error_class, error_message
FROM relay_job WHERE id = %(id)s
"""
_FINAL: Final = frozenset({"completed", "failed", "cancelled"})


class JobHandle(Generic[R]):
    """One job, as its caller sees it: nothing is kept, each question reads the row.

    Attributes:
        id: the job's id.
        task: its task's name.
        using: the alias of its database.
    """

    __slots__ = ("id", "task", "using")

    def __init__(self, id: UUID, task: str, *, using: str = "default") -> None:
        self.id = id
        self.task = task
        self.using = using

    def __repr__(self) -> str:
        return f"<JobHandle {self.task} {self.id}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, JobHandle):
            return NotImplemented
        return (self.id, self.using) == (other.id, other.using)

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def state(self) -> JobState:
        """Where the job stands now.

        Raises:
            JobNotFound: the row is gone, or was rolled back.
        """
        from relay.models import JobState  # here: import relay loads no models

        return JobState(self._read(_READ_STATE)[0])

    async def astate(self) -> JobState:
        """As state, for async code."""
        return await sync_to_async(lambda: self.state, thread_sensitive=True)()

    def refresh(self) -> JobState:
        """Read the row again and return its state; as the property, for its effect.

        Raises:
            JobNotFound: the row is gone, or was rolled back.
        """
        return self.state

    async def arefresh(self) -> JobState:
        """As refresh, for async code."""
        return await self.astate()

    def wait(self, timeout: float = WAIT_SECONDS) -> JobState:
        """Wait until the job has ended, however, and return its state.

        Args:
            timeout: in seconds.

        Raises:
            JobNotFound: the row is gone, or was rolled back.
            ResultTimeout: the job has not ended in time; it goes on.
            WaitRefused: the caller is inside a transaction, where waiting is useless.
        """
        for pause_seconds in self._looks(timeout):
            if self._has_ended():
                break
            time.sleep(pause_seconds)
        return self.state

    async def await_(self, timeout: float = WAIT_SECONDS) -> JobState:
        """As wait, for async code."""
        look = sync_to_async(self._has_ended, thread_sensitive=True)
        for pause_seconds in self._looks(timeout):
            if await look():
                break
            await asyncio.sleep(pause_seconds)
        return await self.astate()

    def result(self, timeout: float = WAIT_SECONDS) -> R:
        """Wait until the job has completed and return what its function returned.

        Args:
            timeout: in seconds.

        Raises:
            TaskFailed: it ended failed or cancelled.
            JobNotFound: the row is gone, or was rolled back.
            ResultTimeout: the job has not ended in time; it goes on.
            WaitRefused: the caller is inside a transaction, where waiting is useless.
            DecodeError: the result cannot be turned back into a value here.
        """
        self.wait(timeout)
        return self._result()

    async def aresult(self, timeout: float = WAIT_SECONDS) -> R:
        """As result, for async code."""
        await self.await_(timeout)
        return await sync_to_async(self._result, thread_sensitive=True)()

    def cancel(self, *, actor: str | None = None) -> None:
        """Cancel the job while it has not started.

        Raises:
            StateConflict: it is running or has ended, or its row is gone.
        """
        from relay.engine import control  # here: import relay loads no models

        control.cancel(self.id, actor=actor, using=self.using)

    def retry(self, *, actor: str | None = None) -> None:
        """Run the same job again after it ended failed or cancelled.

        Raises:
            StateConflict: it is in another state, or its row is gone.
        """
        from relay.engine import control  # here: import relay loads no models

        control.retry(self.id, actor=actor, using=self.using)

    def replay(self, *, actor: str | None = None) -> JobHandle[R]:
        """Enqueue a new job with the arguments and options of this one, which ended.

        Raises:
            StateConflict: it has not ended, or its row is gone.
        """
        from relay.engine import control  # here: import relay loads no models

        new_id = control.replay(self.id, actor=actor, using=self.using)
        return JobHandle(new_id, self.task, using=self.using)

    def _read(self, statement: str) -> Sequence[Any]:
        with connections[self.using].cursor() as cursor:
            cursor.execute(statement, {"id": self.id})
            row = cursor.fetchone()
        if row is None:
            raise JobNotFound(self.id)
        return cast("Sequence[Any]", row)

    def _has_ended(self) -> bool:
        if self._read(_READ_STATE)[0] in _FINAL:
            return True
        if connections[self.using].in_atomic_block:
            raise WaitRefused(
                f"job {self.id} has not ended, and waiting for it inside a transaction "
                "would hold that open, with its locks; a job enqueued in it cannot "
                "even start: wait after the atomic() block, or let the job itself do "
                "what has to follow"
            )
        return False

    def _looks(self, timeout: float) -> Iterable[float]:
        """Give the pause after each look, until the time is over."""
        if isinstance(timeout, bool) or not (
            isinstance(timeout, (int, float))
            and math.isfinite(timeout)
            and timeout >= 0
        ):
            raise ArgumentError(
                f"timeout={timeout!r}: give the seconds to wait, 0 or more"
            )
        ends_at = time.monotonic() + timeout
        pause_seconds = FIRST_LOOK_SECONDS
        while (left_seconds := ends_at - time.monotonic()) > 0:
            yield min(pause_seconds, left_seconds)
            pause_seconds = min(2 * pause_seconds, LAST_LOOK_SECONDS)
        yield 0.0
        raise ResultTimeout(
            f"job {self.id} has not ended within {timeout} s; it goes on: ask again "
            "later, or wait longer with timeout="
        )

    def _result(self) -> R:
        state, result, error_class, message = self._read(_READ_END)
        if state != "completed":
            raise TaskFailed(self.id, state, error_class, message)
        return cast("R", codec.decode(None if result is None else json.loads(result)))


def _is_seconds(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and value >= 0

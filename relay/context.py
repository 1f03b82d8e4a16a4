"""What a handler can learn of the job it is running."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload
from uuid import UUID
from weakref import WeakValueDictionary

from asgiref.sync import sync_to_async

from relay.conf import get_settings
from relay.exceptions import RelayError
from relay.labels import read_labels
from relay.logs import JobLog
from relay.occurrence import JobOccurrence, read_occurrence
from relay.origin import current_job as running
from relay.progress import Progress, measured
from relay.steps import StepOf, arun_step, run_step

__all__ = ["CurrentJob", "current_job"]

P = ParamSpec("P")
T = TypeVar("T")


class Requests:
    """What somebody has asked of a running attempt.

    Attributes:
        is_cancelled: whether the attempt is to stop.
        is_interrupted: whether it is to stop so that its job can be handed back.
        is_timed_out: whether it is to stop because its timeout has passed.
        steps: of the steps it has met, by name, whether they are over; there from the
            first one on.
    """

    __slots__ = ("is_cancelled", "is_interrupted", "is_timed_out", "steps")
    steps: dict[str, bool]

    def __init__(self) -> None:
        self.is_cancelled = False
        self.is_interrupted = False
        self.is_timed_out = False


class Reports(Protocol):
    """Who takes in what the handlers of one worker tell.

    Attributes:
        has_row: whether their jobs have rows, as all do but for a test's.
    """

    has_row: bool

    def progress(self, job_id: UUID, attempt: int, progress: Progress) -> None:
        """Take in how far a job is, from any thread, without waiting."""


# By worker; an entry goes with its executor. So a job that tells nothing costs nothing.
_reports: WeakValueDictionary[UUID, Reports] = WeakValueDictionary()


def report_to(worker_id: UUID, reports: Reports) -> None:
    """Let the handlers of a worker's jobs tell their news to reports, weakly held."""
    _reports[worker_id] = reports


@dataclass(frozen=True, slots=True)
class CurrentJob:
    """The job that a handler is running.

    Attributes:
        id: the job's.
        task: the name of its task.
        queue: the queue it was claimed from.
        attempt: which start of the job this is, from 1; it never goes back.
        failures: earlier attempts that raised.
        max_retries: how many failures are forgiven.
        worker_id: the worker that holds it; with attempt, the token of every write.
        deadline: when the job had to start at the latest, by the database's clock; None
            without one.
    """

    id: UUID
    task: str
    queue: str
    attempt: int
    failures: int
    max_retries: int
    worker_id: UUID
    deadline: datetime | None = None
    _requests: Requests = field(default_factory=Requests, repr=False, compare=False)

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has cancelled the job: a handler that can, should stop."""
        return self._requests.is_cancelled

    def occurrence(self) -> JobOccurrence | None:
        """Read which due instant of a schedule the job was made for.

        None if it was made otherwise: enqueued, replayed, or run now by a person.

        Transaction: one statement on Django's connection.
        """
        return read_occurrence(self.id, using=get_settings().database)

    async def aoccurrence(self) -> JobOccurrence | None:
        """As occurrence(), from a coroutine."""
        return await sync_to_async(self.occurrence)()

    def tags(self) -> tuple[str, ...]:
        """Read the job's tags.

        Transaction: one statement on Django's connection.
        """
        return read_labels(self.id, using=get_settings().database)[0]

    async def atags(self) -> tuple[str, ...]:
        """As tags(), from a coroutine."""
        return await sync_to_async(self.tags)()

    def meta(self) -> dict[str, Any]:
        """Read what the job carries besides its arguments; empty if nothing.

        Raises:
            DecodeError: it names a row or a class that is not there any more.

        Transaction: one statement on Django's connection.
        """
        return read_labels(self.id, using=get_settings().database)[1]

    async def ameta(self) -> dict[str, Any]:
        """As meta(), from a coroutine."""
        return await sync_to_async(self.meta)()

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """The logger relay.job; its records carry the job's id, task and attempt.

        What a task with capture_logs logs here from INFO on is on its job's page,
        whatever level the project's logging has.
        """
        return JobLog(
            {"job_id": str(self.id), "task": self.task, "attempt": self.attempt}
        )

    def progress(
        self, done: float, total: float | None = None, *, message: str | None = None
    ) -> None:
        """Tell how far the job is; its row shows it within a second.

        Never waits, and joins no transaction: call it as often as you like, from a
        coroutine too. At most two writes a second are made of it, and the last one
        before the job's end.

        Args:
            done: the percentage, or with total a count. Above 100 % it is 100 %.
            total: what done counts towards; of 0, all is done.
            message: what a person may want to know, up to 500 characters.

        Raises:
            ArgumentError: a number is negative or not finite.
        """
        told = measured(done, total, message)
        reports = _reports.get(self.worker_id)
        if reports is not None:
            reports.progress(self.id, self.attempt, told)

    def step(
        self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return function(*args, **kwargs), calling it only if no attempt has done so.

        What it does on relay's database and the record of its value commit together,
        so a step whose record is there has happened once. It is called again if it
        raised, or if its attempt died before the commit. The value travels as a result
        does, so every attempt is given the same; of a task with sensitive arguments it
        is encrypted. Steps are kept as long as the job: a retry goes on behind them, a
        replay begins anew.

        Args:
            name: tells the job's steps apart, up to 200 characters.

        Raises:
            ArgumentError: the name cannot name a step, or this attempt has met it
                already, or function is a coroutine function.
            EncodeError: the value cannot be kept; what the step did is rolled back.
            LeaseLost: another worker holds the job by now; as above.

        Transaction: one around function and record; a part of the caller's atomic(),
        with which both then commit or are rolled back.
        """
        return cast("T", run_step(self._step(name), function, args, kwargs))

    @overload
    async def astep(
        self,
        name: str,
        function: Callable[P, Awaitable[T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T: ...
    @overload
    async def astep(
        self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    async def astep(
        self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """As step, for coroutines.

        A plain function runs in the job's own thread, as step runs it. A coroutine
        function has no transaction: its record is written after it, so it runs again
        if the worker dies between the two.
        """
        return await arun_step(self._step(name), function, args, kwargs)

    def _step(self, name: str) -> StepOf:
        try:
            met = self._requests.steps
        except AttributeError:
            met = self._requests.steps = {}
        reports = _reports.get(self.worker_id)
        return StepOf(
            self.id,
            self.task,
            self.attempt,
            self.worker_id,
            name,
            met,
            has_row=reports is None or reports.has_row,
        )


# What a CurrentJob is made of, in its order: most handlers never ask for one.
Facts = tuple[UUID, str, str, int, int, int, UUID, datetime | None, Requests]

_current: ContextVar[Facts] = running


def current_job() -> CurrentJob:
    """Return the job that the calling handler is running.

    Raises:
        RelayError: no job is running here.
    """
    try:
        return CurrentJob(*_current.get())
    except LookupError:
        raise RelayError(
            "no job is running here: call current_job() from a handler, in the thread "
            "or coroutine that relay started it in"
        ) from None


def current_facts() -> Facts | None:
    """Return the facts of the job that is running here; None if none is. For logs."""
    return _current.get(None)


def enter(facts: Facts) -> None:
    """Make a job the current one for the rest of this context. For the executor."""
    _current.set(facts)

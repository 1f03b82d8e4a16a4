"""A task of django.tasks in the worker: its context, its signals, its log."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.dispatch import Signal
from django.utils import timezone

from relay import tasks
from relay.backends.library import (
    Task,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    task_finished,
    task_started,
)
from relay.backends.results import change, new_result
from relay.backends.values import to_json
from relay.context import CurrentJob, current_job
from relay.exceptions import RelayError
from relay.worker.verdict import verdict

if TYPE_CHECKING:
    from relay.backends.backend import RelayBackend

__all__ = ["Declared", "speaking"]


@dataclass(frozen=True, slots=True)
class Declared:
    """One function as both APIs know it.

    Attributes:
        native: for callers: relay's task of the plain function.
        registered: for workers: the same, with a function that speaks django.tasks.
        is_json: whether results must be JSON; else relay's codec carries them.
    """

    task: Task[..., Any]
    native: tasks.Task[..., Any]
    registered: tasks.Task[..., Any]
    backend: RelayBackend
    is_json: bool


class _Attempt:
    """One attempt, as django.tasks is told of it."""

    def __init__(self, declared: Declared, job: CurrentJob) -> None:
        self._declared = declared
        self._job = job
        self.result: TaskResult[..., Any]

    @property
    def is_watched(self) -> bool:
        """Whether anybody sees more of the result than Django's log does."""
        signals = (task_started, task_finished)
        return self._declared.task.takes_context or any(map(_is_watched, signals))

    def begin(self) -> None:
        backend, job = self._declared.backend, self._job
        if self.is_watched:
            self.result = backend.get_result(str(job.id))
            return
        now = timezone.now()
        self.result = new_result(
            self._declared.task,
            backend.alias,
            job.id,
            enqueued_at=None,
            status=TaskResultStatus.RUNNING,
            started_at=now,
            last_attempted_at=now,
            worker_ids=[str(job.worker_id)],
        )

    @property
    def context(self) -> tuple[Any, ...]:
        """What the function is given before its arguments."""
        if not self._declared.task.takes_context:
            return ()
        return (TaskContext(task_result=self.result),)

    def complete(self, value: Any) -> Any:
        """Take in what the function returned; return what is stored of it."""
        if self._declared.is_json:
            value = to_json(value, "result")
        change(
            self.result,
            status=TaskResultStatus.SUCCESSFUL,
            finished_at=timezone.now(),
            _return_value=value,
        )
        return value

    def fail(self, error: BaseException) -> bool:
        """Take in what it raised; tell whether that ends the job."""
        job = self._job
        verb = verdict(
            error,
            failures=job.failures,
            max_retries=job.max_retries,
            is_cancelled=job.is_cancelled,
            rules=self._declared.native.retries,
        )
        kind = type(error)
        self.result.errors.append(
            TaskError(
                exception_class_path=f"{kind.__module__}.{kind.__qualname__}",
                traceback="".join(format_exception(error)),
            )
        )
        if verb not in ("fail", "cancel"):
            change(self.result, status=TaskResultStatus.READY)
            return False
        change(self.result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
        return True

    def tell(self, signal: Signal) -> None:
        # Robust: a receiver's failure is logged and changes no job.
        signal.send_robust(type(self._declared.backend), task_result=self.result)

    async def atell(self, signal: Signal) -> None:
        if _is_watched(signal):
            await signal.asend_robust(
                type(self._declared.backend), task_result=self.result
            )
        else:
            self.tell(signal)  # Django's own only logs, which needs no thread


def _is_watched(signal: Signal) -> bool:
    """Tell whether there are receivers besides Django's own, which writes its log."""
    return len(signal.receivers) > 1


def _own_job(name: str) -> CurrentJob | None:
    """Return the job that a worker runs here, if it is one of this task."""
    try:
        job = current_job()
    except RelayError:
        return None
    return job if job.task == name else None


def speaking(declared: Declared) -> Callable[..., Any]:
    """Return the task's function for workers, with the signals of django.tasks.

    Called outside of a job of the task it is the plain function.
    """
    return (_speaking_coroutine if declared.native.is_async else _speaking)(declared)


def _speaking(declared: Declared) -> Callable[..., Any]:
    function, name = declared.task.func, declared.native.name

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        job = _own_job(name)
        if job is None:
            return function(*args, **kwargs)
        attempt = _Attempt(declared, job)
        attempt.begin()
        attempt.tell(task_started)
        try:
            value = attempt.complete(function(*attempt.context, *args, **kwargs))
        except BaseException as error:  # an edge: whatever a handler raises ends it
            _hide_caller(error)
            if attempt.fail(error):
                attempt.tell(task_finished)  # within the handler: it logs the error
            raise
        attempt.tell(task_finished)
        return value

    return run


def _speaking_coroutine(declared: Declared) -> Callable[..., Any]:
    function, name = declared.task.func, declared.native.name

    @functools.wraps(function)
    async def run(*args: Any, **kwargs: Any) -> Any:
        job = _own_job(name)
        if job is None:
            return await function(*args, **kwargs)
        attempt = _Attempt(declared, job)
        if attempt.is_watched:
            await sync_to_async(attempt.begin, thread_sensitive=True)()
        else:
            attempt.begin()
        await attempt.atell(task_started)
        try:
            value = attempt.complete(await function(*attempt.context, *args, **kwargs))
        except BaseException as error:  # as above
            _hide_caller(error)
            if attempt.fail(error):
                await attempt.atell(task_finished)
            raise
        await attempt.atell(task_finished)
        return value

    return run


def _hide_caller(error: BaseException) -> None:
    """Begin the traceback at the task's own function."""
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next

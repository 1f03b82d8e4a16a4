"""The backend: declares tasks, enqueues them, reads their results."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast
from uuid import UUID

from asgiref.sync import iscoroutinefunction
from django.apps import apps
from django.conf import settings
from django.core import checks
from django.utils import timezone

from relay import sensitive, sensitive_places, tasks
from relay.backends.library import (
    BaseTaskBackend,
    InvalidTask,
    InvalidTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    task_backends,
    task_enqueued,
)
from relay.backends.results import new_result, result_of, unvalidated, varied
from relay.backends.running import Declared, speaking
from relay.backends.values import to_json
from relay.conf import check_queue_name, get_settings
from relay.exceptions import ArgumentError, TaskNameConflict
from relay.nearest import unknown
from relay.options import TaskOptions, check_enqueue_options, check_task_options
from relay.requests import JobRequest

if TYPE_CHECKING:
    _Task = Task[..., Any]
else:
    _Task = Task

__all__ = ["RelayBackend", "RelayTask", "discover"]

P = ParamSpec("P")
R = TypeVar("R")

# OPTIONS of an alias may say all that @relay.task may, but what @task itself says.
_OPTIONS: Final = frozenset(TaskOptions.__annotations__) - {
    "name",
    "queue",
    "priority",
    "sensitive",
}


# --- tasks ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayTask(_Task):
    """A task of django.tasks that relay runs; made by @task.

    Besides a function it takes what @relay.task made of one, with its options.
    """

    def __post_init__(self) -> None:
        if isinstance(self.func, tasks.Task):
            object.__setattr__(self, "func", self.func.function)
        # Not super(): with slots, the class is made twice.
        Task.__post_init__(self)

    @property
    def relay(self) -> tasks.Task[..., Any]:
        """The same task for relay's own API: using(), job(), enqueue()."""
        backend = self.get_backend()
        if not isinstance(backend, RelayBackend):
            raise ArgumentError(
                f"{self.module_path} is a task of the backend {self.backend!r}, which "
                "is none of relay's"
            )
        return backend.declare(cast("Task[..., Any]", self)).native


# By the function, as a task that using() changed is still the same; by the job's name.
_declared: dict[Callable[..., Any], Declared] = {}
_named: dict[str, Declared] = {}


def _declared_as(name: str) -> Task[..., Any] | None:
    """Return the task of a job's name. Nothing is imported to find it (X12)."""
    registered = tasks.all_tasks().get(name)
    if registered is None:
        return None
    known = _named.get(name)
    if known is not None and known.registered is registered:
        return known.task
    return cast("Task[..., Any]", unvalidated(RelayTask, func=registered.function))


def discover() -> None:
    """Register the tasks of django.tasks in the apps' tasks modules, for workers.

    A task is registered as it is made, or first used, for one of relay's aliases. Left
    are those made for another alias and only sent here by using(backend=...), and
    those whose function @relay.task has taken since.
    """
    ours = [backend for backend in map(_backend, task_backends.settings) if backend]
    for config in apps.get_app_configs() if ours else ():
        module = sys.modules.get(f"{config.name}.tasks")
        for value in list(vars(module).values()) if module else ():
            if isinstance(value, Task):
                (_backend(value.backend) or ours[0]).declare(value)


def _backend(alias: str) -> RelayBackend | None:
    try:
        backend = task_backends[alias]
    except InvalidTaskBackend:  # Django's own check reports it
        return None
    return backend if isinstance(backend, RelayBackend) else None


# --- the backend ---------------------------------------------------------------------


class RelayBackend(BaseTaskBackend):
    """Enqueues as relay's jobs, run by relay's workers.

    OPTIONS: max_retries, backoff and the other options of @relay.task, for every task
    of the alias. QUEUES are served by workers that are given no queues.
    """

    task_class = RelayTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        try:
            if none := self.options.keys() - _OPTIONS:
                raise ArgumentError(f"unknown option {unknown(none, _OPTIONS)}")
            check_task_options(self.options)
            tasks.declare_queues(self.queues)
        except (ArgumentError, ValueError) as error:
            raise InvalidTaskBackend(f"TASKS[{alias!r}]: {error}") from error

    def validate_task(self, task: Task[..., Any]) -> None:
        """Refuse what Django's tasks may not be, and what relay cannot find or store.

        Raises:
            InvalidTask: with the reason.
        """
        run_after: object = task.run_after
        if isinstance(run_after, timedelta):
            super().validate_task(varied(task, run_after=None))
        elif run_after is None or isinstance(run_after, datetime):
            super().validate_task(task)
        else:
            raise InvalidTask(
                f"run_after must be an aware datetime or a timedelta, not {run_after!r}"
            )
        function = task.func
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(
            function
        ):
            raise InvalidTask("Task function must not be a generator.")
        if function.__module__ == "__main__":
            raise InvalidTask(
                f"Task {task.module_path} stands in the program's main module, which "
                "workers do not import: move it into an app's tasks.py."
            )
        try:
            check_queue_name(task.queue_name)
            check_enqueue_options(_when(task))
            self.declare(task)
        except (ArgumentError, TaskNameConflict, ValueError) as error:
            raise InvalidTask(str(error)) from error

    def declare(self, task: Task[..., Any]) -> Declared:
        """Register the task for this process's workers, unless it is; return it.

        Raises:
            TaskNameConflict: another function has the name.
        """
        known = _declared.get(task.func)
        if (
            known is not None
            and known.task.takes_context == task.takes_context
            and tasks.all_tasks().get(known.native.name) is known.registered
        ):
            return known
        made = self._made(task)
        tasks.register(made.registered)
        _declared[task.func] = _named[made.native.name] = made
        return made

    def _made(self, task: Task[..., Any]) -> Declared:
        native = _native_of(task.func)
        is_json = native is None
        if native is None:
            kind = tasks.AsyncTask if iscoroutinefunction(task.func) else tasks.Task
            native = kind(
                task.func,
                name=task.module_path,
                queue=task.queue_name,
                priority=int(task.priority),
                **cast("Any", self.options),
            )
        registered = copy.copy(native)
        if task.takes_context:
            native = copy.copy(native)
            native.signature = registered.signature = _without_context(native.signature)
        declared = Declared(task, native, registered, self, is_json)
        registered.function = speaking(declared)
        return declared

    def enqueue(
        self, task: Task[P, R], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> TaskResult[P, R]:
        """Enqueue a job; it is there once the caller's transaction commits.

        Raises:
            InvalidTask: the task may not be enqueued, or not any more.
            ArgumentError: an argument is no JSON, or does not fit the signature.
            EncodeError: PostgreSQL cannot store an argument; its path is named.

        Transaction: joins the caller's on the alias RELAY["DATABASE"].
        """
        self.validate_task(task)
        native = self.declare(task).native
        job = self._bound(task).enqueue(
            *to_json(args, "args"), **to_json(kwargs, "kwargs")
        )

        from relay.models import Job  # here: tasks are made before models are loaded

        times = Job.objects.using(job.using).values_list("created_at", "run_at")
        # A job that was quick and is not kept is gone by now.
        created_at, run_at = times.filter(pk=job.id).first() or [timezone.now()] * 2
        if isinstance(task.run_after, timedelta):
            task = varied(task, run_after=run_at)
        if native.sensitive:  # a result is shown, logged and handed to receivers
            places = sensitive_places.find_places(
                native.name, native.signature, native.sensitive, args, kwargs
            )
            args, kwargs = sensitive.mask_arguments(places, args, kwargs)
        result: TaskResult[P, R] = new_result(
            task, self.alias, job.id, enqueued_at=created_at, arguments=(args, kwargs)
        )
        task_enqueued.send(type(self), task_result=result)
        return result

    def _bound(self, task: Task[..., Any]) -> tasks.BoundTask[..., Any]:
        native = self.declare(task).native
        return native.using(
            queue=task.queue_name,
            priority=int(task.priority),
            **self._max_retries(native),
            **_when(task),
        )

    def request(
        self, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> JobRequest[Any]:
        """Return what enqueue() would insert.

        Raises:
            ArgumentError, EncodeError: as enqueue().
        """
        return self._bound(task).job(
            *to_json(args, "args"), **to_json(kwargs, "kwargs")
        )

    def _max_retries(self, native: tasks.Task[..., Any]) -> Any:
        given = self.options.get("max_retries")
        declared = _declared[native.function]
        if given is None or not (declared.is_json or native.max_retries is None):
            return {}
        return {"max_retries": given}

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Return the job as it stands now, whichever API enqueued it.

        Raises:
            TaskResultDoesNotExist: there is no such job, or its task is not known in
                this process.
        """
        from relay.models import Job  # here: tasks are made before models are loaded

        try:
            job_id = UUID(str(result_id))
        except ValueError:
            raise TaskResultDoesNotExist(result_id) from None
        using = get_settings().database
        job = Job.objects.using(using).filter(pk=job_id).first()
        task = None if job is None else _declared_as(job.task)
        if job is None or task is None:
            raise TaskResultDoesNotExist(result_id)
        has_attempts = job.attempt > 1 or job.error_class is not None
        attempts = (
            list(job.attempts.using(using).order_by("id")) if has_attempts else []
        )
        return result_of(job, attempts, task, self.alias)

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        """Tell what would keep the backend from working."""
        if apps.is_installed("relay"):
            return []
        return [
            checks.Error(
                f"TASKS[{self.alias!r}] is relay's, but relay is not installed.",
                hint="Add 'relay' to INSTALLED_APPS.",
                id="relay.E009",
            )
        ]


def _native_of(function: Callable[..., Any]) -> tasks.Task[..., Any] | None:
    """Return what @relay.task made of the function, if it did."""
    for task in list(tasks.all_tasks().values()):  # threads may register meanwhile
        if task.function is function:
            return task
    known = _declared.get(function)
    return None if known is None or known.is_json else known.native


def _without_context(signature: inspect.Signature) -> inspect.Signature:
    _, *others = signature.parameters.values()
    return signature.replace(parameters=others)


def _when(task: Task[..., Any]) -> Any:
    run_after: Any = task.run_after
    if run_after is None:
        return {}
    if isinstance(run_after, timedelta):
        return {"run_in": run_after}
    if not settings.USE_TZ and timezone.is_naive(run_after):
        run_after = timezone.make_aware(run_after, timezone.get_default_timezone())
    return {"run_at": run_after}

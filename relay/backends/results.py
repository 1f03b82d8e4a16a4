"""Rows of jobs as the results of django.tasks."""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from relay import backends, codec, exceptions, sensitive
from relay.backends.library import Task, TaskError, TaskResult, TaskResultStatus
from relay.exceptions import DecodeError, RelayError

if TYPE_CHECKING:
    from relay.models import Attempt, Job

__all__ = [
    "JobCancelled",
    "PoisonJob",
    "WorkerDied",
    "WorkerLost",
    "change",
    "new_result",
    "result_of",
    "unvalidated",
    "varied",
]

_STATUS: Final = {
    "running": TaskResultStatus.RUNNING,
    "completed": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}
_FINAL: Final = frozenset({"completed", "failed", "cancelled"})
# A claim that ended before its job started left no row to say whose it was.
_UNKNOWN_WORKER: Final = "unknown"


class JobCancelled(RelayError):
    """In TaskResult.errors: the job was cancelled."""


class WorkerLost(RelayError):
    """In TaskResult.errors: the worker was not heard of until its lease ran out."""


class WorkerDied(RelayError):
    """In TaskResult.errors: the process died while it ran the job."""


class PoisonJob(RelayError):
    """In TaskResult.errors: too many processes died of the job, or were lost."""


def unvalidated(kind: type[Any], **values: Any) -> Any:
    """Make a task as it is on record, whatever the settings allow by now."""
    made = object.__new__(kind)
    for field in fields(kind):
        object.__setattr__(made, field.name, values.get(field.name, field.default))
    return made


def varied(task: Task[..., Any], **changes: Any) -> Any:
    values = {field.name: getattr(task, field.name) for field in fields(task)}
    return unvalidated(type(task), **(values | changes))


def new_result(
    task: Task[..., Any],
    alias: str,
    job_id: UUID,
    *,
    enqueued_at: datetime | None,
    arguments: tuple[Any, Any] = ((), {}),
    **others: Any,
) -> Any:
    values: dict[str, Any] = {
        "status": TaskResultStatus.READY,
        "started_at": None,
        "finished_at": None,
        "last_attempted_at": None,
        "errors": [],
        "worker_ids": [],
    }
    return TaskResult(
        task=task,
        id=str(job_id),
        enqueued_at=enqueued_at,
        args=arguments[0],
        kwargs=arguments[1],
        backend=alias,
        **(values | others),
    )


def change(result: TaskResult[..., Any], **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(result, name, value)


def result_of(
    job: Job, attempts: Sequence[Attempt], task: Task[..., Any], alias: str
) -> TaskResult[..., Any]:
    """Return the result that the rows of a job and of its attempts tell."""
    starts = [row.started_at for row in attempts if row.started_at is not None]
    if job.started_at is not None:
        starts.append(job.started_at)
    result: TaskResult[..., Any] = new_result(
        varied(
            task,
            backend=alias,
            priority=job.priority,
            queue_name=job.queue,
            run_after=None if job.run_at == job.created_at else job.run_at,
        ),
        alias,
        job.id,
        enqueued_at=job.created_at,
        status=_STATUS.get(job.state, TaskResultStatus.READY),
        started_at=min(starts, default=None),
        last_attempted_at=max(starts, default=None),
        finished_at=job.finished_at if job.state in _FINAL else None,
        errors=_errors(job, attempts),
        worker_ids=_worker_ids(job, attempts),
    )
    # Not by the constructor: relay's own API carries more than JSON.
    change(
        result,
        # Encrypted ones are shown by nobody; the handler alone is given them.
        args=[_decoded(item) for item in job.args.get("args", [])],
        kwargs={
            key: _decoded(item) for key, item in job.args.get("kwargs", {}).items()
        },
    )
    if result.status == TaskResultStatus.SUCCESSFUL:
        change(result, _return_value=_value_of(job))
    return result


def _value_of(job: Job) -> Any:
    if sensitive.is_sealed(job.result):
        return sensitive.decode_result(job.result, job.id)
    return _decoded(job.result)


def _decoded(document: Any) -> Any:
    """Return the value, or as it is stored where its class or row is gone."""
    if sensitive.is_sealed(document):
        return sensitive.MASK
    try:
        return codec.decode(document)
    except DecodeError:
        return document


def _errors(job: Job, attempts: Sequence[Attempt]) -> list[TaskError]:
    errors = [
        _error(row.error_class, row.error_message, row.traceback)
        for row in attempts
        if row.error_class is not None
    ]
    if job.state == "cancelled":
        errors.append(_error("JobCancelled", "the job was cancelled", None))
    elif job.state == "failed" and (not errors or job.error_class == "PoisonJob"):
        errors.append(_error(job.error_class or "RelayError", job.error_message, None))
    return errors


def _error(name: str, message: str | None, traceback: str | None) -> TaskError:
    path = _class_path(name, traceback)
    return TaskError(
        exception_class_path=path, traceback=traceback or f"{path}: {message}\n"
    )


def _class_path(name: str, traceback: str | None) -> str:
    """Return where to import the class from; rows have its name and the traceback."""
    # The last error of a chain stands behind its frames, which are indented.
    _, _, last = (traceback or "").rpartition("Traceback (most recent call last):\n")
    line = re.search(r"^\S.*$", last, re.MULTILINE)
    path = line[0].partition(":")[0] if line else ""
    if path.endswith(f".{name}"):
        return path
    for module in (exceptions, backends, builtins):
        kind = getattr(module, name, None)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            return f"{module.__name__}.{name}"
    return name


def _worker_ids(job: Job, attempts: Sequence[Attempt]) -> list[str]:
    """Return one id for each time the job was claimed, in order."""
    holders = {row.attempt: row.worker_id for row in attempts}
    if job.worker_id is not None:
        holders[job.attempt] = job.worker_id
    return [
        str(holders.get(attempt) or _UNKNOWN_WORKER)
        for attempt in range(1, job.attempt + 1)
    ]

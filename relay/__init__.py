"""relay: the job system for Django on the PostgreSQL you already run.

Each name is imported when it is first asked for: `relay --server …` has no use for
Django, and starts without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from relay.context import CurrentJob, current_job
    from relay.exceptions import (
        ArgumentError,
        Cancel,
        Cancelled,
        Conflict,
        DecodeError,
        DuplicateJob,
        EncodeError,
        Interrupted,
        JobNotFound,
        JobTimeout,
        LeaseLost,
        MemoryLimit,
        MissingKey,
        NotAllowed,
        NotFound,
        ReadTimeout,
        RelayError,
        ResultExpired,
        ResultTimeout,
        Retry,
        ScheduleError,
        SettingsError,
        SkipRetry,
        Snooze,
        SoftTimeout,
        StateConflict,
        TaskFailed,
        TaskNameConflict,
        UnknownQueue,
        UnknownTask,
        WaitRefused,
    )
    from relay.failure import Failure
    from relay.handles import JobHandle
    from relay.inserting import aenqueue_many, enqueue_many
    from relay.jobs import (
        JobsReport,
        acancel_jobs,
        aretry_jobs,
        cancel_jobs,
        retry_jobs,
    )
    from relay.occurrence import JobOccurrence
    from relay.progress import Progress
    from relay.requests import JobRequest
    from relay.retention import Retention
    from relay.retry import Backoff
    from relay.scheduler.declare import cron, every, once
    from relay.tasks import Task, aenqueue, enqueue, task
    from relay.unique import Unique

__all__ = [
    "ArgumentError",
    "Backoff",
    "Cancel",
    "Cancelled",
    "Conflict",
    "CurrentJob",
    "DecodeError",
    "DuplicateJob",
    "EncodeError",
    "Failure",
    "Interrupted",
    "JobHandle",
    "JobNotFound",
    "JobOccurrence",
    "JobRequest",
    "JobTimeout",
    "JobsReport",
    "LeaseLost",
    "MemoryLimit",
    "MissingKey",
    "NotAllowed",
    "NotFound",
    "Progress",
    "ReadTimeout",
    "RelayError",
    "ResultExpired",
    "ResultTimeout",
    "Retention",
    "Retry",
    "ScheduleError",
    "SettingsError",
    "SkipRetry",
    "Snooze",
    "SoftTimeout",
    "StateConflict",
    "Task",
    "TaskFailed",
    "TaskNameConflict",
    "Unique",
    "UnknownQueue",
    "UnknownTask",
    "WaitRefused",
    "acancel_jobs",
    "aenqueue",
    "aenqueue_many",
    "aretry_jobs",
    "cancel_jobs",
    "cron",
    "current_job",
    "enqueue",
    "enqueue_many",
    "every",
    "once",
    "retry_jobs",
    "task",
]

# Module -> the names that it gives; as above, for those who do not check types.
_HOMES: Final = {
    "context": "CurrentJob current_job",
    "exceptions": (
        "ArgumentError Cancel Cancelled Conflict DecodeError DuplicateJob EncodeError "
        "Interrupted JobNotFound JobTimeout LeaseLost MemoryLimit MissingKey "
        "NotAllowed NotFound ReadTimeout RelayError ResultExpired ResultTimeout Retry "
        "ScheduleError SettingsError SkipRetry Snooze SoftTimeout StateConflict "
        "TaskFailed TaskNameConflict UnknownQueue UnknownTask WaitRefused"
    ),
    "failure": "Failure",
    "handles": "JobHandle",
    "inserting": "aenqueue_many enqueue_many",
    "jobs": "JobsReport acancel_jobs aretry_jobs cancel_jobs retry_jobs",
    "occurrence": "JobOccurrence",
    "progress": "Progress",
    "requests": "JobRequest",
    "retention": "Retention",
    "retry": "Backoff",
    "scheduler.declare": "cron every once",
    "tasks": "Task aenqueue enqueue task",
    "unique": "Unique",
}
_HOME: Final = {
    name: module for module, names in _HOMES.items() for name in names.split()
}

if not TYPE_CHECKING:  # who checks types is told of names that are not there

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'relay' has no attribute {name!r}")
        found = getattr(import_module(f"relay.{_HOME[name]}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

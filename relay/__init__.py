"""relay: the job system for Django on the PostgreSQL you already run."""

from __future__ import annotations

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
from relay.jobs import (
    JobsReport,
    acancel_jobs,
    aretry_jobs,
    cancel_jobs,
    retry_jobs,
)
from relay.occurrence import JobOccurrence
from relay.progress import Progress
from relay.requests import JobRequest, aenqueue_many, enqueue_many
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

"""Every exception relay raises on purpose."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured

__all__ = [
    "ArgumentError",
    "Cancel",
    "Cancelled",
    "Conflict",
    "DecodeError",
    "DuplicateJob",
    "EncodeError",
    "Interrupted",
    "JobNotFound",
    "JobTimeout",
    "LeaseLost",
    "MemoryLimit",
    "MissingKey",
    "NotAllowed",
    "NotFound",
    "ReadTimeout",
    "RelayError",
    "ResultExpired",
    "ResultTimeout",
    "Retry",
    "ScheduleError",
    "SettingsError",
    "SkipRetry",
    "Snooze",
    "SoftTimeout",
    "StandaloneError",
    "StateConflict",
    "TaskFailed",
    "TaskNameConflict",
    "UnknownQueue",
    "UnknownTask",
    "WaitRefused",
]


class RelayError(Exception):
    """Base of all of relay's exceptions: catch this to catch them all."""


class SettingsError(RelayError, ImproperlyConfigured):
    """settings.RELAY is wrong; the message names the key and the remedy."""


class StandaloneError(RelayError):
    """The embedded PostgreSQL cannot be found, started or used; with the remedy."""


class NotAllowed(RelayError, PermissionError):
    """The actor lacks the permission that the act needs; nothing was changed.

    Attributes:
        actor: who asked.
        operation: what for.
        permission: what is missing, such as cancel_job.
    """

    def __init__(
        self, actor: str, operation: str, permission: str, remedy: str
    ) -> None:
        super().__init__(
            f"{actor} may not {operation}: the permission {permission!r} {remedy}"
        )
        self.actor = actor
        self.operation = operation
        self.permission = permission


class NotFound(RelayError, LookupError):
    """What the act is about does not exist; nothing was changed."""


class Conflict(RelayError):
    """What the act is about does not allow it as it stands; nothing was changed."""


class ArgumentError(RelayError, TypeError):
    """Arguments or options of an enqueue that the task or relay cannot take."""


class EncodeError(RelayError, ValueError):
    """A value that JSON or PostgreSQL cannot carry; path says where it stands.

    Attributes:
        path: the place of the value from the root, such as args[0]['when'].
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class DecodeError(RelayError, ValueError):
    """Stored arguments or a stored result that cannot be turned back into values."""


class MissingKey(RelayError, LookupError):
    """A key that encrypts sensitive arguments is not at hand in this process.

    Attributes:
        key_id: its name in RELAY["ENCRYPTION_KEYS"].
    """

    def __init__(self, key_id: str, reason: str) -> None:
        super().__init__(f"the encryption key {key_id!r} {reason}")
        self.key_id = key_id


class TaskNameConflict(RelayError):
    """Two different functions were registered under one task name."""


class UnknownTask(NotFound):
    """No task of this name is registered in this process."""


class UnknownQueue(NotFound):
    """No settings, task or row names this queue."""


class DuplicateJob(Conflict):
    """Another job holds the unique key, and the enqueue asked to be told so.

    Attributes:
        job_id: the job that holds the key.
        task: its task's name.
    """

    def __init__(self, job_id: UUID, task: str) -> None:
        super().__init__(
            f"job {job_id} of {task} holds the same unique key: use that job, or "
            "enqueue with another on_conflict"
        )
        self.job_id = job_id
        self.task = task


class JobNotFound(NotFound):
    """The job's row is not there: rolled back, pruned, or never made."""

    def __init__(self, job_id: UUID) -> None:
        super().__init__(
            f"job {job_id} does not exist: its transaction was rolled back, or it "
            "has outlived its retention"
        )
        self.job_id = job_id


class StateConflict(Conflict):
    """The job's state does not allow the act; nothing was changed.

    Attributes:
        job_id: the job.
        act: what was asked for.
        state: the state that stood in the way, or None where the row is gone.
        reason: how the message goes on after "it".
    """

    def __init__(
        self, job_id: UUID, act: str, state: str | None, *, reason: str | None = None
    ) -> None:
        found = reason or ("does not exist" if state is None else f"is {state}")
        super().__init__(f"cannot {act} job {job_id}: it {found}")
        self.job_id = job_id
        self.act = act
        self.state = state
        self.reason = found


class ResultExpired(RelayError, LookupError):
    """The job has completed, and its result has outlived its own retention.

    Attributes:
        job_id: the job.
    """

    def __init__(self, job_id: UUID) -> None:
        super().__init__(
            f"the result of job {job_id} is gone: it is kept for less than the job, as "
            "its task's retention or RELAY['RETENTION_RESULT'] says"
        )
        self.job_id = job_id


class ReadTimeout(RelayError, TimeoutError):
    """The database did not answer a question of a list in time.

    Attributes:
        limit_seconds: how long it had.
    """

    def __init__(self, limit_seconds: float) -> None:
        super().__init__(
            f"the database did not answer within {limit_seconds:g} s: narrow the "
            "filter or the search"
        )
        self.limit_seconds = limit_seconds


class ResultTimeout(RelayError, TimeoutError):
    """The job had not finished when the caller's patience ended; it goes on."""


class WaitRefused(RelayError, RuntimeError):
    """Waiting for a job here could never end well; the message says where to wait."""


class TaskFailed(RelayError):
    """The job whose result was asked for ended failed or cancelled.

    Attributes:
        job_id: the job.
        state: failed or cancelled.
        error_class: the name of the last error's class, or None.
    """

    def __init__(
        self, job_id: UUID, state: str, error_class: str | None, message: str | None
    ) -> None:
        cause = f": {error_class}: {message}" if error_class else ""
        super().__init__(f"job {job_id} ended {state}{cause}")
        self.job_id = job_id
        self.state = state
        self.error_class = error_class


class LeaseLost(RelayError):
    """Another worker holds the job now: nothing was written.

    Attributes:
        job_id: the job.
        attempt: the attempt that no longer holds it.
    """

    def __init__(self, job_id: UUID, attempt: int) -> None:
        super().__init__(
            f"attempt {attempt} no longer holds job {job_id}: its result was dropped"
        )
        self.job_id = job_id
        self.attempt = attempt


class MemoryLimit(RelayError, MemoryError):
    """A handler wanted more memory than its task's memory_limit; charged as a failure.

    Attributes:
        limit_bytes: the limit.
    """

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            f"the handler wanted more than its memory_limit of {limit_bytes:,} bytes"
        )
        self.limit_bytes = limit_bytes


class ScheduleError(RelayError, ValueError):
    """A schedule that cannot be kept: bad expression, unknown zone, never due."""


class Retry(RelayError):
    """Raised by a handler: run this job again, charged as a failure.

    Args:
        after: how long to wait; None takes the task's backoff.
    """

    def __init__(self, message: str = "", *, after: timedelta | None = None) -> None:
        super().__init__(message or "the handler asked to be run again")
        if after is not None and not isinstance(after, timedelta):
            raise TypeError(
                f"after={after!r}: give a timedelta, such as timedelta(seconds=30)"
            )
        if after is not None and after < timedelta(0):
            after = timedelta(0)
        self.after = after


class Cancel(RelayError):
    """Raised by a handler: stop here, the job ends cancelled and never runs again."""


class Cancelled(BaseException):
    """Raised in a plain handler's thread: somebody cancelled the job that it runs.

    No Exception, and so no RelayError, on purpose: a handler's `except Exception` must
    not swallow it, as with KeyboardInterrupt and asyncio.CancelledError.
    """


class Interrupted(BaseException):
    """Raised in a plain handler's thread: its worker stops, the job runs elsewhere.

    Nothing is charged: the job is ready again at once. As with Cancelled, no Exception.
    """


class JobTimeout(BaseException):
    """Raised in a plain handler's thread: the job has run longer than its timeout.

    The attempt is charged as a failure, whatever the handler raises then. As Cancelled
    it is no Exception; a coroutine is cancelled instead, and its attempt says this.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "the job ran longer than its timeout")


class SoftTimeout(RelayError):
    """Raised in a handler: its task's soft timeout has passed, so clean up and end.

    A handler that returns after catching it has done its work; one that lets it pass
    has failed, by the ordinary rules.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "the job ran longer than its soft timeout")


class Snooze(RelayError):
    """Raised by a handler: not now; run this job again later, and charge nothing.

    RELAY["SNOOZE_LIMIT"] bounds how often one job may do so.

    Args:
        after: how long to wait.
    """

    def __init__(self, after: timedelta, message: str = "") -> None:
        super().__init__(message or "the handler asked to be run again later")
        if not isinstance(after, timedelta):
            raise TypeError(
                f"{after!r}: give a timedelta, such as timedelta(minutes=5)"
            )
        self.after = max(after, timedelta(0))


class SkipRetry(RelayError):
    """Raised by a handler: give up at once, the job ends failed."""

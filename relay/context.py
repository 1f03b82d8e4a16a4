"""What a handler can learn of the job it is running."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from uuid import UUID

from asgiref.sync import sync_to_async

from relay.conf import get_settings
from relay.exceptions import RelayError
from relay.occurrence import JobOccurrence, read_occurrence

__all__ = ["CurrentJob", "current_job"]


class Requests:
    """What somebody has asked of a running attempt.

    Attributes:
        is_cancelled: whether the attempt is to stop.
        is_interrupted: whether it is to stop so that its job can be handed back.
        is_timed_out: whether it is to stop because its timeout has passed.
    """

    __slots__ = ("is_cancelled", "is_interrupted", "is_timed_out")

    def __init__(self) -> None:
        self.is_cancelled = False
        self.is_interrupted = False
        self.is_timed_out = False


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
    """

    id: UUID
    task: str
    queue: str
    attempt: int
    failures: int
    max_retries: int
    worker_id: UUID
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


_current: ContextVar[CurrentJob] = ContextVar("relay_current_job")


def current_job() -> CurrentJob:
    """Return the job that the calling handler is running.

    Raises:
        RelayError: no job is running here.
    """
    try:
        return _current.get()
    except LookupError:
        raise RelayError(
            "no job is running here: call current_job() from a handler, in the thread "
            "or coroutine that relay started it in"
        ) from None


def enter(job: CurrentJob) -> None:
    """Make job the current one for the rest of this context. For the executor only."""
    _current.set(job)

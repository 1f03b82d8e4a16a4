"""A worker that does nothing but what the test says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

from django.db import DatabaseError

from relay.engine import holdings
from relay.engine.claim import ClaimedJob
from relay.exceptions import RelayError
from relay.tasks import get_task
from relay.testing.running import Outcome, claim_one, finish_one
from relay.testing.session import (
    JobLike,
    alias_of,
    engine_session,
    id_of,
    register,
    stop,
)

__all__ = ["FakeWorker"]

_VANISH: Final = """
UPDATE relay_worker SET lease_expires_at = clock_timestamp() - interval '1 second'
WHERE id = %(id)s
"""


class FakeWorker:
    """A worker for whom the test acts: with FakeWorker("mail") as worker: ...

    To all others it is one: its row has a lease, and what it claims is running. It runs
    no handler. At the end it hands back what it still holds, and its row is stopped.

    Args:
        queues: those that its row says it serves; claim() takes from any.
        name: its label.
        concurrency: the slots that its row says it has.
        using: the alias of the database; RELAY["DATABASE"] unless given.
    """

    def __init__(
        self,
        *queues: str,
        name: str = "fake",
        concurrency: int = 1,
        using: str | None = None,
    ) -> None:
        self._alias = alias_of(using)
        self._row: Mapping[str, Any] = {"name": name, "concurrency": concurrency}
        self._queues = queues or ("default",)
        self._jobs: dict[UUID, ClaimedJob] = {}
        self._id: UUID | None = None

    @property
    def id(self) -> UUID:
        """The id of its row.

        Raises:
            RelayError: its block has not begun, so it has none.
        """
        if self._id is None:
            raise RelayError(
                "this FakeWorker is not at work yet: use it as "
                "with FakeWorker(...) as worker: ..."
            )
        return self._id

    def __enter__(self) -> Self:
        self._id = register(self._alias, *self._queues, **self._row)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            for job_id in list(self._jobs):
                self.release(job_id)
            stop(self._alias, self.id)
        except DatabaseError:
            if error is None:  # else a broken transaction takes its rows with it
                raise

    def claim(self, job: JobLike) -> None:
        """Take the job, whatever is ready before it or however late it is due.

        Raises:
            StateConflict: it does not wait to be run, or its queue is paused.
            JobNotFound: its row is gone.
        """
        claimed = claim_one(self._alias, id_of(job), self.id)
        self._jobs[claimed.id] = claimed

    def is_asked_to_stop(self, job: JobLike) -> bool:
        """Return whether somebody has cancelled the job that it holds."""
        held = self._held(job)
        with engine_session(self._alias) as session:
            asked = holdings.cancel_requested(session, [self.id], [held.queue])
        return held.id in {job_id for _, job_id, _ in asked}

    def complete(self, job: JobLike, result: object = None) -> Outcome[Any]:
        """End the job as if its handler had returned this; return what became of it."""
        return self._end(job, result, None)

    def fail(self, job: JobLike, error: BaseException) -> Outcome[Any]:
        """End the attempt as if its handler had raised this: a retry, or the end."""
        return self._end(job, None, error)

    def release(self, job: JobLike) -> None:
        """Hand the job back uncharged, as at a drain."""
        held = self._held(job)
        with engine_session(self._alias) as session:
            holdings.release_held(
                session, self.id, [(held.id, held.attempt)], reason="drain"
            )
        del self._jobs[held.id]

    def vanish(self) -> None:
        """Let its lease run out: expire_leases() takes its jobs back, or a keeper."""
        with engine_session(self._alias) as session:
            session.execute(_VANISH, {"id": self.id})
        self._jobs.clear()

    def _held(self, job: JobLike) -> ClaimedJob:
        job_id = id_of(job)
        if job_id not in self._jobs:
            raise RelayError(
                f"this FakeWorker does not hold the job {job_id}: claim() it first"
            )
        return self._jobs[job_id]

    def _end(
        self, job: JobLike, result: object, error: BaseException | None
    ) -> Outcome[Any]:
        held = self._held(job)
        with _answering(held.task, result, error):
            outcome = finish_one(self._alias, held, self.id)
        del self._jobs[held.id]
        return outcome


@contextmanager
def _answering(
    name: str, result: object, error: BaseException | None
) -> Iterator[None]:
    """Let the task's handler return or raise this, whatever it is called with."""
    found = get_task(name)
    function = found.function

    def run(*_: object, **__: object) -> object:
        if error is not None:
            raise error
        return result

    async def arun(*_: object, **__: object) -> object:
        return run()

    found.function = arun if found.is_async else run
    try:
        yield
    finally:
        found.function = function

"""Handles: one job as its caller sees it."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import connections

from relay import sensitive
from relay.engine import control, replay
from relay.engine.connection import check_vendor
from relay.engine.watching import watching
from relay.exceptions import (
    ArgumentError,
    JobNotFound,
    ResultExpired,
    ResultTimeout,
    TaskFailed,
    WaitRefused,
)
from relay.progress import Progress, read_progress

if TYPE_CHECKING:
    from relay.models import JobState

__all__ = ["JobHandle"]

R_co = TypeVar("R_co", covariant=True)

WAIT_SECONDS: Final = 60.0
# A waiting handle looks this often itself, should nobody wake it.
OWN_LOOK_SECONDS: Final = 5.0

# Primary key. The result is read as text: Django's cursors do not parse jsonb.
_READ_STATE: Final = "SELECT state FROM relay_job WHERE id = %(id)s"
_READ_PROGRESS: Final = "SELECT progress::text FROM relay_job WHERE id = %(id)s"
_READ_END: Final = """
SELECT state, result::text, error_class, error_message
FROM relay_job WHERE id = %(id)s
"""
_FINAL: Final = frozenset({"completed", "failed", "cancelled"})


class JobHandle(Generic[R_co]):
    """One job, as its caller sees it: nothing is kept, each question reads the row.

    Attributes:
        id: the job's id.
        task: its task's name.
        using: the alias of its database.
        is_duplicate: whether the job was there already, and holds the unique key that
            was asked for.
    """

    __slots__ = ("id", "is_duplicate", "task", "using")

    def __init__(
        self,
        id: UUID,
        task: str,
        *,
        using: str = "default",
        is_duplicate: bool = False,
    ) -> None:
        self.id = id
        self.task = task
        self.using = using
        self.is_duplicate = is_duplicate

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
        return _state(self._read(_READ_STATE)[0])

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

    @property
    def progress(self) -> Progress | None:
        """How far the job is, as its handler last told; None if it has told nothing.

        An earlier attempt's stands until the next one tells something.

        Raises:
            JobNotFound: the row is gone, or was rolled back.
        """
        return read_progress(self._read(_READ_PROGRESS)[0])

    async def aprogress(self) -> Progress | None:
        """As progress, for async code."""
        return await sync_to_async(lambda: self.progress, thread_sensitive=True)()

    def wait(self, timeout: float = WAIT_SECONDS) -> JobState:
        """Wait until the job has ended, however, and return its state.

        Args:
            timeout: in seconds.

        Raises:
            JobNotFound: the row is gone, or was rolled back.
            ResultTimeout: the job has not ended in time; it goes on.
            WaitRefused: the caller is inside a transaction, where waiting is useless.
        """
        return _state(self._wait(timeout)[0])

    async def await_(self, timeout: float = WAIT_SECONDS) -> JobState:
        """As wait, for async code."""
        return _state((await self._await(timeout))[0])

    def result(self, timeout: float = WAIT_SECONDS) -> R_co:
        """Wait until the job has completed and return what its function returned.

        Args:
            timeout: in seconds.

        Raises:
            TaskFailed: it ended failed or cancelled.
            JobNotFound: the row is gone, or was rolled back.
            ResultExpired: the result is gone, and only the job is still kept.
            ResultTimeout: the job has not ended in time; it goes on.
            WaitRefused: the caller is inside a transaction, where waiting is useless.
            DecodeError: the result cannot be turned back into a value here.
            MissingKey: it is encrypted, and its key is not at hand here.
        """
        return cast("R_co", self._result(self._wait(timeout)))

    async def aresult(self, timeout: float = WAIT_SECONDS) -> R_co:
        """As result, for async code."""
        row = await self._await(timeout)
        # In a thread: a model instance in the result is read from its table.
        decoded = await sync_to_async(self._result, thread_sensitive=True)(row)
        return cast("R_co", decoded)

    def cancel(self, *, actor: str | None = None) -> bool:
        """Cancel the job; tell whether it is cancelled now.

        False says that it runs, and that its worker was asked to stop it: wait() tells
        how it ended.

        Raises:
            StateConflict: it has ended, or its row is gone.
        """
        return control.cancel(self.id, actor=actor, using=self.using)

    async def acancel(self, *, actor: str | None = None) -> bool:
        """As cancel, for async code."""
        return await sync_to_async(self.cancel, thread_sensitive=True)(actor=actor)

    def retry(self, *, actor: str | None = None) -> None:
        """Run the same job again after it ended failed or cancelled.

        Raises:
            StateConflict: it is in another state, or its row is gone.
        """
        control.retry(self.id, actor=actor, using=self.using)

    async def aretry(self, *, actor: str | None = None) -> None:
        """As retry, for async code."""
        await sync_to_async(self.retry, thread_sensitive=True)(actor=actor)

    def replay(self, *, actor: str | None = None) -> JobHandle[R_co]:
        """Enqueue a new job with the arguments and options of this one, which ended.

        Raises:
            StateConflict: it has not ended, or its row is gone.
        """
        new_id = replay.replay(self.id, actor=actor, using=self.using)
        return JobHandle(new_id, self.task, using=self.using)

    async def areplay(self, *, actor: str | None = None) -> JobHandle[R_co]:
        """As replay, for async code."""
        return await sync_to_async(self.replay, thread_sensitive=True)(actor=actor)

    def _read(self, statement: str) -> Sequence[Any]:
        check_vendor(self.using)
        with connections[self.using].cursor() as cursor:
            cursor.execute(statement, {"id": self.id})
            row = cursor.fetchone()
        if row is None:
            raise JobNotFound(self.id)
        return cast("Sequence[Any]", row)

    def _wait(self, timeout: float) -> Sequence[Any]:
        ends_at = self._deadline(timeout)
        if (row := self._look()) is not None:
            return row
        woken = threading.Event()
        with watching(self.id, woken.set, using=self.using):
            while (left_seconds := ends_at - time.monotonic()) > 0:
                woken.wait(min(left_seconds, OWN_LOOK_SECONDS))
                woken.clear()
                if (row := self._look()) is not None:
                    return row
        raise self._too_late(timeout)

    async def _await(self, timeout: float) -> Sequence[Any]:
        ends_at = self._deadline(timeout)
        look = sync_to_async(self._look, thread_sensitive=True)
        if (row := await look()) is not None:
            return row
        woken = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(woken.set)

        with watching(self.id, wake, using=self.using):
            while (left_seconds := ends_at - time.monotonic()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left_seconds, OWN_LOOK_SECONDS)):
                        await woken.wait()
                woken.clear()
                if (row := await look()) is not None:
                    return row
        raise self._too_late(timeout)

    def _look(self) -> Sequence[Any] | None:
        """Read the row; None if the job has not ended."""
        row = self._read(_READ_END)
        if row[0] in _FINAL:
            return row
        if connections[self.using].in_atomic_block:
            raise WaitRefused(
                f"job {self.id} has not ended, and waiting for it inside a transaction "
                "would hold that open, with its locks; a job enqueued in it cannot "
                "even start: wait after the atomic() block, or let the job itself do "
                "what has to follow; a test runs it first, by relay.testing.drain()"
            )
        return None

    def _deadline(self, timeout: float) -> float:
        if not _is_seconds(timeout):
            raise ArgumentError(
                f"timeout={timeout!r}: give the seconds to wait, 0 or more"
            )
        return time.monotonic() + timeout

    def _too_late(self, timeout: float) -> ResultTimeout:
        return ResultTimeout(
            f"job {self.id} has not ended within {timeout} s; it goes on: ask again "
            "later, or wait longer with timeout="
        )

    def _result(self, row: Sequence[Any]) -> Any:
        state, result, error_class, message = row
        if state != "completed":
            raise TaskFailed(self.id, state, error_class, message)
        if result is None:
            raise ResultExpired(self.id)
        return sensitive.decode_result(json.loads(result), self.id)


def _state(value: str) -> JobState:
    from relay.models import JobState  # here: import relay loads no models

    return JobState(value)


def _is_seconds(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and value >= 0

"""How a running handler is made to stop: an exception in its thread, or its coroutine.

An exception raised in a thread from outside arrives between two of its bytecodes,
whatever it does by then. It must arrive in the handler, or nowhere.
Source: docs/explanation/cancelling.md.
"""

from __future__ import annotations

import asyncio
import threading
import time
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from relay.context import Requests
from relay.exceptions import Cancelled, Interrupted, JobTimeout, SoftTimeout
from relay.worker.guarded import raise_unless_guarded, take_back

__all__ = ["Interruptible"]

T = TypeVar("T")

# Taken by whoever raises, and by an attempt that ends while somebody does: never on an
# ordinary job's way.
_raising: Final = threading.Lock()

# Before each look whether a handler is where an exception may arrive.
_LOOKS: Final = (0.0,) + 20 * (0.001,)

# How far an attempt has been interrupted; it only goes up.
_SOFTLY: Final = 1
_FINALLY: Final = 2

# In a coroutine it is a cancellation too, so that what waits inside for others, as a
# task group does, takes them down before it lets the exception pass.
_SoftTimeoutInCoroutine: Final = type(
    SoftTimeout.__name__,
    (SoftTimeout, asyncio.CancelledError),
    {"__module__": SoftTimeout.__module__},
)


class Interruptible(Requests):
    """One attempt, as those see it who may have to stop it.

    Whoever interrupts sets the flag before it looks whether the handler runs; the
    handler's end is noted before it looks at the flag. So one of the two always sees
    the other, and an exception that has not arrived by the end of the handler is taken
    back. One attempt is interrupted at most twice: softly once, and then for good.
    """

    __slots__ = (
        "_is_asked",
        "_is_soft_due",
        "_raised",
        "_task",
        "_thread",
        "is_watched",
        "job_id",
    )

    def __init__(self, job_id: UUID) -> None:
        super().__init__()
        self.job_id = job_id
        # Whether somebody is to be told of its end.
        self.is_watched = False
        # The thread or task that is inside the handler now.
        self._thread: int | None = None
        self._task: asyncio.Task[Any] | None = None
        self._is_asked = False
        self._is_soft_due = False
        self._raised = 0

    def call(
        self,
        function: Callable[..., T],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> T:
        """Call a plain handler in this thread.

        Raises:
            Cancelled: interrupt() was called, be it before.
            Interrupted: withdraw() was.
            JobTimeout: time_out() was.
            SoftTimeout: warn() was, and the handler let it pass.
        """
        # An exception may arrive in the first closing, after which at most one more is
        # to come: then the second is whole, or what arrived in it was the last.
        try:
            try:
                self._thread = threading.get_ident()
                if self._is_asked:
                    raise self._reason()
                return function(*args, **kwargs)
            finally:
                self._close()
        finally:
            self._close()

    def _reason(self) -> BaseException:
        if self.is_cancelled:
            return Cancelled()
        if self.is_interrupted:
            return Interrupted()
        return JobTimeout() if self.is_timed_out else SoftTimeout()

    def _close(self) -> None:
        self._thread = None
        if self._is_asked:
            with _raising:
                take_back()

    async def wait(self, handler: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Await a coroutine handler as part of the running task.

        Raises:
            asyncio.CancelledError: interrupt_task(), withdraw_task() or time_out_task()
                was called, be it before.
        """
        self._task = asyncio.current_task()
        try:
            if self.is_cancelled or self.is_interrupted or self.is_timed_out:
                raise asyncio.CancelledError
            return await handler(*args)
        finally:
            self._task = None

    async def wait_warned(
        self, handler: Callable[..., Coroutine[Any, Any, T]], *args: Any
    ) -> T:
        """As wait(), for a handler that warn_task() may reach.

        Raises:
            SoftTimeout: it was called, and the handler let it pass.
        """
        return await self.wait(self._driven, handler, args)

    @types.coroutine
    def _driven(
        self, handler: Callable[..., Coroutine[Any, Any, T]], args: Sequence[Any]
    ) -> Generator[Any, Any, T]:
        """Run a coroutine; where a warning is due, throw that and no cancellation."""
        inner = handler(*args)
        resume: Callable[[Any], Any] = inner.send
        value: Any = None
        while True:
            try:
                awaited = resume(value)
            except StopIteration as stop:
                result: T = stop.value
                return result
            try:
                value, resume = (yield awaited), inner.send
            except BaseException as error:
                value, resume = self._softened(error), inner.throw

    def _softened(self, error: BaseException) -> BaseException:
        if not self._is_soft_due or not isinstance(error, asyncio.CancelledError):
            return error
        self._is_soft_due = False
        if self._task is not None:
            self._task.uncancel()
        softened: BaseException = _SoftTimeoutInCoroutine()
        return softened

    # --- from any thread, for plain handlers -----------------------------------------

    # Each is to be called again while it says False: the handler was where nothing may
    # arrive, as it took a lock of logging's, and was not reached.

    def interrupt(self) -> bool:
        """Ask the attempt to stop, as somebody cancelled its job."""
        self.is_cancelled = True
        return self._raise(Cancelled, _FINALLY)

    def withdraw(self) -> bool:
        """Ask the attempt to stop, to be handed back.

        A job that is cancelled too ends cancelled.
        """
        self.is_interrupted = True
        return self._raise(Interrupted, _FINALLY)

    def time_out(self) -> bool:
        """Stop the attempt, as its timeout has passed."""
        self.is_timed_out = True
        return self._raise(JobTimeout, _FINALLY)

    def warn(self) -> bool:
        """Tell the attempt that its soft timeout has passed."""
        return self._raise(SoftTimeout, _SOFTLY)

    def _raise(self, error: type[BaseException], how: int) -> bool:
        self._is_asked = True
        for seconds in _LOOKS:
            time.sleep(seconds)
            with _raising:
                thread = self._thread  # once: it is None as soon as the handler ends
                if thread is None or self._raised >= how:
                    return True
                if raise_unless_guarded(thread, error):
                    self._raised = how
                    return True
        return False

    # --- in the event loop, for coroutine handlers -----------------------------------

    def interrupt_task(self) -> None:
        """Ask the attempt to stop, as somebody cancelled its job."""
        self.is_cancelled = True
        self._cancel_task()

    def withdraw_task(self) -> None:
        """Ask the attempt to stop, to be handed back."""
        self.is_interrupted = True
        self._cancel_task()

    def time_out_task(self) -> None:
        """Stop the attempt, as its timeout has passed."""
        self.is_timed_out = True
        self._cancel_task()

    def _cancel_task(self) -> None:
        self._is_soft_due = False
        if self._task is not None and self._raised < _FINALLY:
            self._raised = _FINALLY
            self._task.cancel()

    def warn_task(self) -> None:
        """Tell the attempt that its soft timeout has passed."""
        if self._task is not None and self._raised < _SOFTLY:
            self._raised = _SOFTLY
            self._is_soft_due = True
            self._task.cancel()

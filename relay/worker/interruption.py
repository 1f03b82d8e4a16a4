"""How a running handler is made to stop: an exception in its thread, or its coroutine.

An exception raised in a thread from outside arrives between two of its bytecodes,
whatever it does by then. It must arrive in the handler, or nowhere.
Source: docs/explanation/cancelling.md.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from relay.context import Requests
from relay.exceptions import Cancelled, Interrupted

__all__ = ["Interruptible"]

T = TypeVar("T")

_set_async_exc = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_async_exc.argtypes = [ctypes.c_ulong, ctypes.py_object]
_set_async_exc.restype = ctypes.c_int
# In place of an exception: takes one back that has not arrived yet.
_NONE: Final[Any] = ctypes.py_object()

# Taken by whoever raises, and by an attempt that ends while somebody does: never on an
# ordinary job's way.
_raising: Final = threading.Lock()


class Interruptible(Requests):
    """One attempt, as those see it who may have to stop it.

    interrupt() and withdraw() set a flag before they look whether the handler runs; the
    handler's end is noted before it looks at the flags. So one of the two always sees
    the other, and an exception that has not arrived by the end of the handler is taken
    back. One attempt is interrupted at most once.
    """

    __slots__ = ("_is_raised", "_task", "_thread", "job_id")

    def __init__(self, job_id: UUID) -> None:
        super().__init__()
        self.job_id = job_id
        # The thread or task that is inside the handler now.
        self._thread: int | None = None
        self._task: asyncio.Task[Any] | None = None
        self._is_raised = False

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
        """
        # The one exception may arrive in the first closing; then the second is whole.
        try:
            try:
                self._thread = threading.get_ident()
                if self.is_cancelled:
                    raise Cancelled
                if self.is_interrupted:
                    raise Interrupted
                return function(*args, **kwargs)
            finally:
                self._close()
        finally:
            self._close()

    def _close(self) -> None:
        self._thread = None
        if self.is_cancelled or self.is_interrupted:
            with _raising:
                _set_async_exc(threading.get_ident(), _NONE)

    async def wait(self, handler: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Await a coroutine handler as part of the running task.

        Raises:
            asyncio.CancelledError: interrupt() or withdraw() was called, be it before.
        """
        self._task = asyncio.current_task()
        try:
            if self.is_cancelled or self.is_interrupted:
                raise asyncio.CancelledError
            return await handler(*args)
        finally:
            self._task = None

    def interrupt(self) -> None:
        """Ask the attempt to stop. From any thread, for plain handlers."""
        self.is_cancelled = True
        self._raise(Cancelled)

    def withdraw(self) -> None:
        """Ask the attempt to stop, to be handed back. From any thread, as interrupt().

        A job that is cancelled too ends cancelled.
        """
        self.is_interrupted = True
        self._raise(Interrupted)

    def _raise(self, error: type[BaseException]) -> None:
        with _raising:
            if self._thread is not None and not self._is_raised:
                self._is_raised = True
                _set_async_exc(self._thread, error)

    def interrupt_task(self) -> None:
        """Ask the attempt to stop. In the event loop, for coroutine handlers."""
        self.is_cancelled = True
        self._cancel_task()

    def withdraw_task(self) -> None:
        """Ask the attempt to stop, to be handed back. In the event loop."""
        self.is_interrupted = True
        self._cancel_task()

    def _cancel_task(self) -> None:
        if self._task is not None and not self._is_raised:
            self._is_raised = True
            self._task.cancel()

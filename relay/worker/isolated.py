"""An isolated process: runs the handlers of one task, one after another.

It is a fork of the nursery's, with one thread of its own, and does with an attempt what
a child's slot does, by the same executor. A signal interrupts the handler, wherever it
waits; whoever wants it gone kills it.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db import connections

from relay.engine.finish import Outcome
from relay.exceptions import MemoryLimit
from relay.options import can_limit_memory
from relay.worker.eventloop import new_event_loop
from relay.worker.executor import Executor
from relay.worker.frames import (
    Answer,
    Attempt,
    Frames,
    pack_answer,
    unpack_attempt,
)
from relay.worker.interruption import Interruptible
from relay.worker.watch import Watch

__all__ = ["CANCEL", "WITHDRAW", "serve"]

T = TypeVar("T")

# They ask the handler that runs here to stop: for good, or to be handed back.
CANCEL: Final = signal.SIGUSR1
WITHDRAW: Final = signal.SIGUSR2
# Sent by another thread of this process, which has left what is to be raised.
_TELL: Final = signal.SIGURG
_OURS: Final = (CANCEL, WITHDRAW, _TELL, signal.SIGTERM, signal.SIGINT)
# Of its memory limit, what earlier handlers may leave behind: with more, the process
# is replaced, so that the next handler has room.
_LEFTOVER_PART: Final = 1 / 2


def serve(end: socket.socket) -> int:
    """Run the attempts that arrive, until the other end is gone."""
    process = _Process()
    frames = Frames(end)
    process.listen(end)
    while True:
        try:
            attempt = unpack_attempt(frames.read())
        except (EOFError, ConnectionError):
            connections.close_all()
            return 0
        answer = process.run(attempt)
        process.end_if_forked()
        try:
            end.sendall(pack_answer(answer))
        except ConnectionError:
            return 0  # the child is gone, and so is the job


class _Process:
    def __init__(self) -> None:
        self._pid = os.getpid()
        self._memory = _Memory()
        self._watch = Watch()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._interruptible: _Interruptible | None = None

    def listen(self, end: socket.socket) -> None:
        """Set the signals up, here and in what handlers will fork.

        Not ignored, which programs that a handler starts would inherit: whoever ends
        the worker may signal every process of it, and only the drain counts.
        """
        for number in (CANCEL, WITHDRAW, _TELL):
            signal.signal(number, self._on_interrupt)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _pass)
        # None is lost to a handler that the fork is about to lose.
        os.register_at_fork(
            before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, _OURS),
            after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _OURS),
            after_in_child=lambda: _undo(end),
        )

    def _on_interrupt(self, number: int, _: object) -> None:
        attempt = self._interruptible
        if attempt is None:
            return
        if number == _TELL:
            attempt.raise_what_is_due()
        elif not attempt.is_async:
            (attempt.interrupt if number == CANCEL else attempt.withdraw)()
        elif self._loop is not None:
            self._loop.call_soon_threadsafe(
                attempt.interrupt_task if number == CANCEL else attempt.withdraw_task
            )

    def end_if_forked(self) -> None:
        """End here what a handler forked and let run on."""
        if os.getpid() != self._pid:
            os._exit(1)

    def run(self, attempt: Attempt) -> Answer:
        executor = Executor(attempt.worker_id, watch=self._watch)
        self._memory.limit_bytes = attempt.memory_limit
        is_async = executor.is_async(attempt.job)
        if is_async and self._loop is None:
            self._loop = new_event_loop()
        interruptible = _Interruptible(attempt.job.id, self._memory, is_async=is_async)
        self._interruptible = interruptible
        if is_async and self._loop is not None:
            outcome = _run_to_its_end(
                self._loop, executor.run_async, attempt.job, interruptible
            )
        else:
            outcome = executor.run(attempt.job, interruptible)
        self._interruptible = None
        return Answer(outcome=outcome, is_worn=self._memory.is_worn())


def _pass(*_: object) -> None:
    """Let a signal pass."""


def _undo(end: socket.socket) -> None:
    """Make of what a handler forked an ordinary process, that knows no job."""
    signal.set_wakeup_fd(-1)
    for number in _OURS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OURS)
    end.close()


def _run_to_its_end(
    loop: asyncio.AbstractEventLoop,
    run: Callable[..., Any],
    *args: Any,
) -> Outcome:
    """Run the coroutine, in a context of its own, also if it stops the loop."""
    task = loop.create_task(run(*args), context=contextvars.Context())
    while True:
        try:
            loop.run_until_complete(task)
        except BaseException:  # an edge: a handler stopped the loop, or left it
            if not task.done():
                continue
        outcome: Outcome = task.result()
        return outcome


class _Interruptible(Interruptible):
    """An attempt in this process, whose handler a signal interrupts."""

    __slots__ = ("_due", "_is_inside", "_memory", "is_async")

    def __init__(self, job_id: UUID, memory: _Memory, *, is_async: bool) -> None:
        super().__init__(job_id)
        self.is_async = is_async
        self._memory = memory
        self._is_inside = False
        self._due: tuple[type[BaseException], int] | None = None

    def call(
        self,
        function: Callable[..., T],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> T:
        with self._memory:
            try:
                self._is_inside = True
                if self._is_asked:
                    raise self._reason()
                return function(*args, **kwargs)
            finally:
                self._is_inside = False

    async def wait(self, handler: Callable[..., Any], *args: Any) -> Any:
        with self._memory:
            return await super().wait(handler, *args)

    def _raise(self, error: type[BaseException], how: int) -> None:
        self._is_asked = True
        main = threading.main_thread()
        if threading.current_thread() is main:
            self._raise_here(error, how)
        else:
            self._due = error, how
            signal.pthread_kill(main.ident or 0, _TELL)

    def raise_what_is_due(self) -> None:
        """Raise in the handler what another thread has left."""
        due, self._due = self._due, None
        if due is not None:
            self._raise_here(*due)

    def _raise_here(self, error: type[BaseException], how: int) -> None:
        """Raise in the handler, in whose thread a signal has called this."""
        if self._is_inside and self._raised < how:
            self._raised = how
            raise error


class _Memory:
    """What this process may map: so much more than it had when it was forked.

    RLIMIT_DATA and not RLIMIT_AS: it counts what is written to, not the libraries,
    and not what allocators only reserve. Source: docs/explanation/isolation.md.
    """

    def __init__(self) -> None:
        self._at_first = _mapped_bytes()
        self._before: tuple[int, int] | None = None
        self.limit_bytes: int | None = None
        self._was_reached = False

    def __enter__(self) -> None:
        if self.limit_bytes is None or not can_limit_memory():
            return
        self._before = soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = self._at_first + self.limit_bytes
        for known in (soft, hard):
            if known != resource.RLIM_INFINITY:
                limit = min(limit, known)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        if self._before is None:
            return
        resource.setrlimit(resource.RLIMIT_DATA, self._before)
        self._before = None
        if isinstance(error, MemoryError) and self.limit_bytes is not None:
            self._was_reached = True
            raise MemoryLimit(self.limit_bytes) from error

    def is_worn(self) -> bool:
        """Tell whether handlers have left so much that the next may lack room."""
        if self.limit_bytes is None:
            return False
        left = _mapped_bytes() - self._at_first
        return self._was_reached or left > self.limit_bytes * _LEFTOVER_PART


def _mapped_bytes() -> int:
    """Return what RLIMIT_DATA counts of this process; 0 where it cannot be known."""
    try:
        with open("/proc/self/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmData:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0

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
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db import connections

from relay import traces
from relay.engine.finish import Outcome
from relay.exceptions import MemoryLimit
from relay.options import can_limit_memory
from relay.progress import Progress
from relay.worker.eventloop import new_event_loop
from relay.worker.executor import Executor
from relay.worker.frames import (
    Answer,
    Attempt,
    Frames,
    pack_answer,
    pack_progress,
    unpack_attempt,
)
from relay.worker.interruption import Interruptible
from relay.worker.reports import Reports
from relay.worker.watch import Watch

__all__ = ["CANCEL", "WITHDRAW", "serve"]

T = TypeVar("T")

# They ask the handler that runs here to stop: for good, or to be handed back.
CANCEL: Final = signal.SIGUSR1
WITHDRAW: Final = signal.SIGUSR2
# Sent by another thread of this process, which has left what is to be raised.
_TELL: Final = signal.SIGURG
_OURS: Final = (CANCEL, WITHDRAW, _TELL, signal.SIGTERM, signal.SIGINT)
# Between two times that progress is sent. Source: docs/explanation/isolation.md.
_PROGRESS_SECONDS: Final = 0.2
# Of its memory limit, what earlier handlers may leave behind: with more, the process
# is replaced, so that the next handler has room.
_LEFTOVER_PART: Final = 1 / 2


def serve(end: socket.socket) -> int:
    """Run the attempts that arrive, until the other end is gone."""
    process = _Process(end)
    frames = Frames(end)
    process.listen()
    while True:
        try:
            attempt = unpack_attempt(frames.read())
        except (EOFError, ConnectionError):
            connections.close_all()
            return 0
        process.run(attempt)


class _Process:
    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._pid = os.getpid()
        self._reports = _Reports(end)
        self._memory = _Memory()
        self._watch = Watch()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._interruptible: _Interruptible | None = None

    def listen(self) -> None:
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
            after_in_child=lambda: _undo(self._end),
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

    def run(self, attempt: Attempt) -> None:
        """Run an attempt, and answer."""
        outcome = self._run(attempt)
        if os.getpid() != self._pid:
            os._exit(1)  # forked by the handler, which let it run on
        job, tracer = attempt.job, traces.tracer()
        answer = Answer(
            outcome=outcome,
            is_worn=self._memory.is_worn(),
            log=self._reports.end(),
            span=None if tracer is None else tracer.ran(job.id, job.attempt),
        )
        self._reports.send(pack_answer(answer))

    def _run(self, attempt: Attempt) -> Outcome:
        executor = Executor(attempt.worker_id, self._reports, watch=self._watch)
        self._reports.job_id = attempt.job.id
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
        return outcome


class _Reports(Reports):
    """What the handler tells, on its way to the child.

    A thread sends its progress now and then; it starts with the first.
    """

    def __init__(self, end: socket.socket) -> None:
        super().__init__()
        # The job that runs here: what others left running may not speak for it.
        self.job_id: UUID | None = None
        self._end = end
        self._sending = threading.Lock()
        self._news: Progress | None = None
        self._has_news = threading.Event()
        self._thread: threading.Thread | None = None

    def progress(self, job_id: UUID, attempt: int, progress: Progress) -> None:
        """Take in how far the job is; what was told before and not sent is gone."""
        if job_id != self.job_id:
            return
        self._news = progress
        self._has_news.set()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="relay-progress", daemon=True
            )
            self._thread.start()

    def end(self) -> str | None:
        """Send what is left of the attempt that has ended; return what it logged."""
        self.job_id = None
        self._send_news()
        log: str | None = None
        while self._outputs:
            log = self._outputs.popleft().text
        return log

    def _run(self) -> None:
        while self._has_news.wait():
            self._send_news()
            time.sleep(_PROGRESS_SECONDS)

    def _send_news(self) -> None:
        with self._sending:
            self._has_news.clear()
            news, self._news = self._news, None
            if news is not None:
                self._write(pack_progress(news))

    def send(self, frame: bytes) -> None:
        """Send a frame, whole."""
        with self._sending:
            self._write(frame)

    def _write(self, frame: bytes) -> None:
        with suppress(OSError):  # the child is gone, and so is the job
            self._end.sendall(frame)


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

    def _raise(self, error: type[BaseException], how: int) -> bool:
        self._is_asked = True
        main = threading.main_thread()
        if threading.current_thread() is main:
            self._raise_here(error, how)
        else:
            self._due = error, how
            signal.pthread_kill(main.ident or 0, _TELL)
        return True

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

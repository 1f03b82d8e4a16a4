"""Ends attempts whose time is up, from inside their process.

What this cannot end, as a wait in C, the parent does: see stuck.py.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from relay.engine.claim import ClaimedJob
from relay.tasks import Task
from relay.worker import statements
from relay.worker.guarded import let_through_logging, make_conditions_whole
from relay.worker.interruption import Interruptible

__all__ = ["UNWATCHED", "Watch"]

# A handler that could not be reached is struck again so much later.
AGAIN_SECONDS: Final = 0.005


@dataclass(slots=True)
class _Limits:
    """What is to happen to an attempt and has not yet, the earliest last."""

    loop: asyncio.AbstractEventLoop | None
    due: list[tuple[float, Callable[[], object]]] = field(default_factory=list)

    @property
    def next_at(self) -> float:
        return self.due[-1][0] if self.due else math.inf

    def strike(self, now: float) -> None:
        """Do what is due by now."""
        while self.due and self.due[-1][0] <= now:
            _, act = self.due.pop()
            if self.loop is not None:
                self.loop.call_soon_threadsafe(act)
            elif act() is False:
                self.due.append((now + AGAIN_SECONDS, act))
                self.due.sort(key=itemgetter(0), reverse=True)


class Watch:
    """The limited attempts of one process, and a thread that interrupts them.

    The thread starts with the first such attempt. It sleeps until the earliest moment
    known, and an attempt that begins wakes it only for an earlier one: a job that ends
    in time costs an entry in a dict.
    """

    def __init__(self, *, is_on: bool = True) -> None:
        self._is_on = is_on
        self._limits: dict[Interruptible, _Limits] = {}
        self._wake_up = threading.Event()
        self._wakes_at = math.inf
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._is_closed = False

    def begin(
        self,
        attempt: Interruptible,
        job: ClaimedJob,
        task: Task[..., Any],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Interrupt the attempt when its time is up; end() must follow.

        What its statements may take is limited in this context too.

        Args:
            loop: where a coroutine handler runs.
        """
        if not self._is_on:
            return
        statements.limit(task.statement_timeout, job.timeout_ms)
        now = time.monotonic()
        limits = _Limits(loop)
        hard_at = math.inf
        if job.timeout_ms is not None:
            hard_at = now + job.timeout_ms / 1_000
            stop = attempt.time_out if loop is None else attempt.time_out_task
            limits.due.append((hard_at, stop))
        if task.soft_timeout is not None:
            soft_at = now + task.soft_timeout.total_seconds()
            if soft_at < hard_at:
                warn = attempt.warn if loop is None else attempt.warn_task
                limits.due.append((soft_at, warn))
                let_through_logging()
        attempt.is_watched = True
        self._limits[attempt] = limits
        if self._thread is None:
            self._start()
        if limits.next_at < self._wakes_at:
            self._wake_up.set()

    def end(self, attempt: Interruptible) -> None:
        """Forget the attempt."""
        self._limits.pop(attempt, None)

    def close(self) -> None:
        """End the thread, if there is one; nothing is watched any more."""
        self._is_closed = True
        self._wake_up.set()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                make_conditions_whole()
                self._thread = threading.Thread(
                    target=self._run, name="relay-watch", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while not self._is_closed:
            # In this order: who begins now sets the event, or is found by the look.
            self._wakes_at = math.inf
            self._wake_up.clear()
            now, next_at = time.monotonic(), math.inf
            for limits in list(self._limits.values()):
                limits.strike(now)
                next_at = min(next_at, limits.next_at)
            self._wakes_at = next_at
            if self._is_closed:
                return
            seconds = next_at - time.monotonic()
            self._wake_up.wait(None if seconds == math.inf else max(0.0, seconds))


# Interrupts nobody: a test's own thread is not for others to stop.
UNWATCHED: Final = Watch(is_on=False)

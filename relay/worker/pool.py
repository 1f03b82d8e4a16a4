"""The slots of one child: threads for plain handlers, one event loop for coroutines."""

from __future__ import annotations

import asyncio
import contextvars
import math
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final, NamedTuple
from uuid import UUID

from relay.conf import get_settings
from relay.engine.claim import ClaimedJob
from relay.engine.finish import Outcome, Settled
from relay.worker.apart import Nursery
from relay.worker.eventloop import end_event_loop, start_event_loop
from relay.worker.executor import Executor
from relay.worker.interruption import Interruptible
from relay.worker.shared import SlotTable
from relay.worker.stuck import verdict_if_killed
from relay.worker.threads import begin

__all__ = ["NOT_STARTED", "Ended", "Pool"]

# A thread that is awake is given this much of measured work before another is woken:
# threads with nothing to wait for only take the interpreter's lock from each other. Of
# shorter jobs one thread runs all, as long as no job holds up the others.
# Source: docs/explanation/speed.md, "Threads awake".
_SHARE_SECONDS: Final = 0.005
_SHORT_SECONDS: Final = 0.000_25
# In several threads a job's time counts what it waited for the lock: so a pool that
# starts this many jobs in a look tries one thread for that long, and where they prove
# longer there, several again, for so long at least.
_TRIAL_SECONDS: Final = 0.02
_WIDE_SECONDS: Final = 1.0


# In place of an entry in the slot table.
NOT_STARTED: Final = -1


class Ended(NamedTuple):
    """An attempt that has ended in this child and is not yet in the database.

    Attributes:
        entry: where the slot table has it, or NOT_STARTED.
        seconds: how long it ran.
    """

    job: ClaimedJob
    outcome: Outcome
    entry: int
    seconds: float


class Pool:
    """Runs jobs in slots that threads and coroutines share.

    One thread calls submit(), poke(), take() and the like; what ended gathers until
    it calls take(). Jobs start in the order in which they were submitted, plain and
    coroutine handlers each among themselves.

    Args:
        slots: how many jobs run at once.
        on_end: called, from any thread, when something has ended.
        nursery: of the isolated jobs, which run apart.
    """

    def __init__(
        self,
        slots: int,
        executor: Executor,
        table: SlotTable,
        *,
        on_end: Callable[[], None],
        nursery: Nursery | None = None,
    ) -> None:
        self._slots = slots
        self._executor = executor
        self._table = table
        self._on_end = on_end
        self._nursery = nursery
        # deque's append and pop are atomic: no lock is taken for a job.
        self._free = deque(range(slots))
        self._ready: deque[ClaimedJob] = deque()
        self._ready_async: deque[ClaimedJob] = deque()
        self._ended: deque[Ended] = deque()
        self._wakeups: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._is_busy = [False] * slots
        # What each thread runs and since when, and each coroutine by its job's id.
        self._running: list[Interruptible | None] = [None] * slots
        self._running_since = [math.inf] * slots
        self._running_async: dict[UUID, Interruptible] = {}
        self._running_async_since: dict[UUID, float] = {}
        # One count a thread, each its own, and one for the event loop.
        self._starts = [0] * (slots + 1)
        self._starts_seen = 0
        self._thread_starts_seen = 0
        self._looked_at = 0.0
        self._seconds_each = math.inf
        # Whether one thread runs all plain jobs; and until when that stays as it is.
        self._is_narrow = False
        self._change_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        # Each task, with what it is for until it has begun.
        self._tasks: dict[asyncio.Task[None], tuple[ClaimedJob, int] | None] = {}
        self._is_lent = False
        self._pid = os.getpid()
        self._threads: list[threading.Thread] = []

    def submit(self, jobs: Iterable[ClaimedJob], *, seconds_each: float) -> None:
        """Take jobs in; each starts when a slot is free.

        Args:
            seconds_each: how long such a job was measured to take; decides how many
                threads are woken at first.
        """
        self._seconds_each = seconds_each
        has_async = False
        for job in jobs:
            if self._executor.is_async(job):
                if self._loop is None:
                    # Before a thread can see that there is something for it.
                    self._loop = start_event_loop()
                self._ready_async.append(job)
                has_async = True
            else:
                self._ready.append(job)
        if has_async:
            self._pump_soon()
        waiting = len(self._ready)
        if waiting:
            share = (
                1
                if self._is_narrow or seconds_each < _SHORT_SECONDS
                else math.ceil(waiting * seconds_each / _SHARE_SECONDS)
            )
            self._wake(min(waiting, share) - sum(self._is_busy))

    def poke(self) -> bool:
        """Wake one more thread if plain jobs wait and none started since the last call.

        A job that takes longer than was measured must not hold up those behind it.

        Returns:
            whether jobs wait, and none of either kind has started since.
        """
        *plain, asynchronous = self._starts
        threads, starts = sum(plain), sum(plain) + asynchronous
        is_stuck = self.is_waiting and starts == self._starts_seen
        # Apart: while coroutines start, nothing else frees the jobs behind a long one.
        are_threads_stuck = bool(self._ready) and threads == self._thread_starts_seen
        self._set_width(threads - self._thread_starts_seen, is_stuck=are_threads_stuck)
        self._starts_seen, self._thread_starts_seen = starts, threads
        if are_threads_stuck:
            self._wake(1)
        if is_stuck and self._ready_async:
            if self._loop is None:
                self._loop = start_event_loop()
            self._pump_soon()
        return is_stuck

    def _set_width(self, started: int, *, is_stuck: bool) -> None:
        now = time.monotonic()
        seconds, self._looked_at = now - self._looked_at, now
        if is_stuck:
            self._is_narrow, self._change_at = False, now + _WIDE_SECONDS
        elif now < self._change_at:
            return
        elif not self._is_narrow:
            if started * _SHORT_SECONDS > seconds:
                self._is_narrow, self._change_at = True, now + _TRIAL_SECONDS
        elif self._seconds_each >= _SHORT_SECONDS:
            self._is_narrow, self._change_at = False, now + _WIDE_SECONDS

    @property
    def is_waiting(self) -> bool:
        """Whether jobs wait for a slot."""
        return bool(self._ready or self._ready_async)

    def take(self) -> list[Ended]:
        """Return what has ended since the last call."""
        ended: list[Ended] = []
        pop = self._ended.popleft
        try:
            while True:
                ended.append(pop())
        except IndexError:
            return ended

    def oldest_seconds(self) -> float:
        """Return how long the longest of the running jobs has been running."""
        since = min([*self._running_since, *list(self._running_async_since.values())])
        return max(0.0, time.monotonic() - since)

    @property
    def has_ended(self) -> bool:
        """Whether take() would return something."""
        return bool(self._ended)

    def withdraw(self) -> list[ClaimedJob]:
        """Take back the jobs that have not started."""
        jobs: list[ClaimedJob] = []
        for ready in (self._ready, self._ready_async):
            try:
                while True:
                    jobs.append(ready.popleft())
            except IndexError:
                continue
        return jobs

    def drop(self, job: ClaimedJob) -> bool:
        """Take back one job if it has not started; tell whether it had not."""
        return any(_remove(ready, job) for ready in (self._ready, self._ready_async))

    def cancel(self, job_id: UUID) -> None:
        """Make the job stop if it runs; what is between two states is not found."""
        for interruptible in self._running:
            if interruptible is not None and interruptible.job_id == job_id:
                interruptible.interrupt()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel_async, job_id)

    def _cancel_async(self, job_id: UUID) -> None:
        interruptible = self._running_async.get(job_id)
        if interruptible is not None:
            interruptible.interrupt_task()

    @property
    def is_running(self) -> bool:
        """Whether a slot is taken: a handler runs, begins or has just ended."""
        return len(self._free) < self._slots

    def interrupt_all(self) -> None:
        """Make all that runs stop, to be handed back. From any thread, and repeated.

        What is between two states is not found: a later call finds it.
        """
        for interruptible in self._running:
            if interruptible is not None:
                interruptible.withdraw()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._interrupt_all_async)

    def _interrupt_all_async(self) -> None:
        for interruptible in self._running_async.values():
            interruptible.withdraw_task()

    def close(self) -> None:
        """End the threads and the event loop; no handler may run any more."""
        self._executor.close()
        for _ in self._threads:
            self._wakeups.put(False)
        if self._loop is not None:
            end_event_loop(self._loop)

    def _wake(self, count: int) -> None:
        for _ in range(count):
            if len(self._threads) < self._slots:
                self._start_thread()
            if not self._threads:
                return  # until the next poke()
            self._wakeups.put(True)

    def _start_thread(self) -> None:
        number = len(self._threads)
        thread = threading.Thread(
            target=self._work,
            args=(number,),
            name=f"relay-slot-{number}",
            daemon=True,
        )
        if begin(thread):
            self._threads.append(thread)

    def _work(self, number: int) -> None:
        while self._wakeups.get():
            while self._has_work(number) and self._free and self._table.has_lease():
                self._is_busy[number] = True
                while self._has_work(number) and self._run_next(number):
                    pass
                # Looked at again afterwards: submit() may have counted on this one.
                self._is_busy[number] = False
            if self._ready_async:
                self._pump_soon()
        self._executor.close_thread()

    def _has_work(self, number: int) -> bool:
        """Tell whether this thread is to go on: where one is enough, the first is."""
        if self._is_narrow and any(self._is_busy[:number]):
            return False
        return bool(self._ready)

    def _run_next(self, number: int) -> bool:
        """Run the next plain job in this thread; False if none may start now."""
        if not self._table.has_lease():
            return False  # what does not start for long goes back
        try:
            slot = self._free.pop()
        except IndexError:
            return False  # a coroutine holds it and wakes a thread as it ends
        try:
            job = self._ready.popleft()
        except IndexError:
            self._give_back(slot)
            return False
        self._running_since[number] = begun_at = time.monotonic()
        entry = self._table.begin(job.id.bytes, job.attempt)
        if self._nursery is not None and self._nursery.takes(job):
            self._table.note_over(entry)  # it is its own process that is killed
        elif job.timeout_ms is not None:
            self._limit(job, entry, begun_at)
        self._starts[number] += 1
        self._running[number] = interruptible = Interruptible(job.id)
        outcome = self._executor.run(job, interruptible)
        self._end_if_forked()
        if job.timeout_ms is not None or interruptible.is_cancelled:
            self._table.note_over(entry)
        self._running[number] = None
        self._running_since[number] = math.inf
        self._ended.append(Ended(job, outcome, entry, time.monotonic() - begun_at))
        self._give_back(slot)
        self._on_end()
        return True

    def _limit(self, job: ClaimedJob, entry: int, begun_at: float) -> None:
        """Tell the parent from when it may kill this process for the job."""
        timeout = timedelta(milliseconds=job.timeout_ms or 0)
        kill_at = begun_at + (timeout + get_settings().timeout_grace).total_seconds()
        self._table.limit(entry, kill_at, verdict_if_killed(job))

    def _end_if_forked(self) -> None:
        """End here what a handler forked and let run on: it must not run other jobs."""
        if os.getpid() != self._pid:
            os._exit(1)

    def _give_back(self, slot: int) -> None:
        if self._ready_async and self._loop is not None and not self._is_lent:
            # Into its hands: a thread would take it again before the loop has its turn.
            # One at a time: a job that blocks the loop must not block the threads too.
            self._is_lent = True
            self._loop.call_soon_threadsafe(self._pump_lent, slot)
            return
        self._free.append(slot)
        if self._ready_async:  # since then
            self._pump_soon()

    def _pump_soon(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._pump)

    def _pump_lent(self, slot: int) -> None:
        self._is_lent = False
        self._pump(slot)

    def _pump(self, slot: int | None = None) -> None:
        """Start coroutine jobs while there are slots. Runs in the event loop."""
        while slot is not None or self._ready_async:
            if not self._table.has_lease():
                if slot is not None:
                    self._free.append(slot)
                return  # what does not start for long goes back
            try:
                slot = self._free.pop() if slot is None else slot
            except IndexError:
                return  # whoever gives a slot back pumps again
            try:
                job = self._ready_async.popleft()
            except IndexError:
                self._give_back(slot)
                if self._ready:
                    self._wakeups.put(True)
                return
            task = asyncio.get_running_loop().create_task(
                self._run_async(job, slot), context=contextvars.Context()
            )
            self._tasks[task] = job, slot
            slot = None
            task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """Let go of a job whose task was cancelled before it could begin."""
        never_begun = self._tasks.pop(task)
        if never_begun is not None:
            job, slot = never_begun
            released = Settled(id=job.id, attempt=job.attempt, verb="release")
            self._ended.append(Ended(job, released, NOT_STARTED, 0.0))
            self._give_back(slot)
            self._on_end()

    async def _run_async(self, job: ClaimedJob, slot: int) -> None:
        if (task := asyncio.current_task()) is not None:
            self._tasks[task] = None  # begun: it ends below, come what may
        begun_at = time.monotonic()
        self._running_async_since[job.id] = begun_at
        entry = self._table.begin(job.id.bytes, job.attempt)
        if job.timeout_ms is not None:
            self._limit(job, entry, begun_at)
        self._starts[-1] += 1
        self._running_async[job.id] = interruptible = Interruptible(job.id)
        outcome = await self._executor.run_async(job, interruptible)
        self._end_if_forked()
        if job.timeout_ms is not None or interruptible.is_cancelled:
            self._table.note_over(entry)
        del self._running_async[job.id]
        del self._running_async_since[job.id]
        self._ended.append(Ended(job, outcome, entry, time.monotonic() - begun_at))
        if self._ready:
            self._free.append(slot)  # threads and coroutines take turns
            self._wakeups.put(True)
        else:
            self._pump(slot)
        self._on_end()


def _remove(ready: deque[ClaimedJob], job: ClaimedJob) -> bool:
    while True:
        try:
            ready.remove(job)
        except ValueError:
            return False
        except IndexError:
            continue  # a thread took another meanwhile
        return True

"""A pool, and jobs in it that begin and end when a test says so."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any

from relay.engine.claim import ClaimedJob
from relay.engine.finish import Completed, Outcome
from relay.ids import uuid7
from relay.worker.interruption import Interruptible
from relay.worker.pool import Ended, Pool
from relay.worker.shared import SharedState, SlotTable

__all__ = ["Bench", "Gated", "done", "jobs", "make_job"]


class Gated:
    """An executor whose jobs begin and end when the test says so."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running = 0
        self.most = 0
        self.started: deque[str] = deque()
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)

    def is_async(self, job: ClaimedJob) -> bool:
        return job.task.startswith("a")

    def run(self, job: ClaimedJob, _: Interruptible) -> Outcome:
        self.begin(job)
        assert self.may_end.acquire(timeout=60)
        self.end()
        return done(job)

    async def run_async(self, job: ClaimedJob, _: Interruptible) -> Outcome:
        self.begin(job)
        while not self.may_end.acquire(blocking=False):
            await asyncio.sleep(0.001)
        self.end()
        return done(job)

    def begin(self, job: ClaimedJob) -> None:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
            self.started.append(job.task)
        self.begun.release()

    def end(self) -> None:
        with self.lock:
            self.running -= 1

    def wait_for_starts(self, count: int) -> None:
        for _ in range(count):
            assert self.begun.acquire(timeout=60)

    def starts_no_more(self) -> bool:
        return not self.begun.acquire(timeout=0.05)

    def let_end(self, count: int) -> None:
        self.may_end.release(count)


def done(job: ClaimedJob) -> Completed:
    return Completed(job.id, job.attempt, "null", None)


def make_job(task: str) -> ClaimedJob:
    return ClaimedJob(uuid7(), task, "default", 0, 1, 1, {}, 0, 0, 0)


def jobs(*tasks: str) -> list[ClaimedJob]:
    return [make_job(task) for task in tasks]


class Bench:
    """A pool over an executor, and what has ended in it."""

    def __init__(self, slots: int, executor: Any) -> None:
        self.shared = SharedState(1, 4096)
        self.table: SlotTable = self.shared.tables[0]
        self.has_ended = threading.Semaphore(0)
        self.pool = Pool(slots, executor, self.table, on_end=self.has_ended.release)
        self.ended: list[Ended] = []
        self.lets_go = True

    def wait_for_ends(self, count: int) -> list[Ended]:
        while len(self.ended) < count:
            assert self.has_ended.acquire(timeout=60)
            for end in self.pool.take():
                if self.lets_go:
                    self.table.end(end.entry)
                self.ended.append(end)
        return self.ended

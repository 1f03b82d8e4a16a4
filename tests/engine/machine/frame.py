"""The model's rows: what is committed, what is locked, and how time passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from tests.engine.machine.records import (
    KEEP,
    Change,
    Due,
    Event,
    Lease,
    ModelJob,
    Token,
)

__all__ = ["Frame"]


class Frame:
    """The rows as they are committed, and what one open transaction has locked."""

    def __init__(self) -> None:
        self.clock = 0
        self.jobs: dict[UUID, ModelJob] = {}
        self.workers: dict[UUID, Lease] = {}
        self.paused: dict[str, int] = {}
        self.locked: set[UUID] = set()
        self._ticks = 0

    def apply(self, change: Change) -> None:
        for job_id, job in change.jobs.items():
            if job is None:
                del self.jobs[job_id]
            else:
                self.jobs[job_id] = job
        self.workers |= change.workers
        for queue, until in change.queues.items():
            if until is None:
                self.paused.pop(queue, None)
            else:
                self.paused[queue] = until

    def lock(self, change: Change) -> None:
        self.locked = {*change.jobs, *change.workers, *change.locked}

    def unlock(self) -> None:
        self.locked = set()

    def passes(self, minutes: int) -> None:
        self.clock += minutes

    def ready(self, queues: Sequence[str]) -> list[UUID]:
        """Return what a claim over these queues may take, in its order."""
        rank = {
            queue: place
            for place, queue in enumerate(queues)
            if self.paused.get(queue, 0) <= self.clock
        }
        found = [
            job_id
            for job_id, job in self.jobs.items()
            if job.state == "queued" and job.queue in rank and job_id not in self.locked
        ]

        def order(job_id: UUID) -> tuple[int, int, int, UUID]:
            job = self.jobs[job_id]
            return rank[job.queue], -job.priority, job.place, job_id

        return sorted(found, key=order)

    def holds(self, token: Token) -> bool:
        job = self.jobs.get(token.id)
        return (
            job is not None
            and job.state == "running"
            and (job.worker, job.attempt) == (token.worker, token.attempt)
        )

    def _tick(self) -> int:
        self._ticks += 1
        return self._ticks

    def _place(self) -> int:
        return self._tick()

    def _due(self, minutes: int) -> Due:
        return self.clock + minutes, self._tick()

    def _noted(self, job: ModelJob, name: str) -> tuple[Event, ...]:
        return *job.history, Event(name=name, attempt=job.attempt, at=self.clock)

    def _stopped(self, job: ModelJob) -> ModelJob:
        """End a job that was asked to stop: whatever would run it again cancels it."""
        noted = replace(job, history=self._noted(job, "cancel"))
        return self._ended(noted, "cancelled")

    def _ended(self, job: ModelJob, state: str) -> ModelJob:
        return self._kept(job, state, KEEP[state])

    def _kept(self, job: ModelJob, state: str, keep: int | None) -> ModelJob:
        expires = None if keep is None else self.clock + keep
        is_ahead = job.until is not None and job.until > self.clock
        if job.until is not None and expires is not None and job.until > expires:
            expires = job.until
        return replace(
            job, state=state, expires=expires, key=job.key if is_ahead else None
        )

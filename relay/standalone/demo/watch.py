"""What the database says of the run, told as it happens. Only reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import connection

from relay.conf import get_settings
from relay.models import FINAL_STATES, Attempt, Job, JobState, Schedule, Worker
from relay.scheduler.registry import declared
from relay.standalone.demo import tasks
from relay.standalone.demo.terminal import Terminal, seconds

__all__ = ["Strike", "Watch", "clock", "own_schedules"]

# A job that began this long ago at most does not end before the strike reaches it.
YOUNG: Final = timedelta(seconds=tasks.PACE_SECONDS / 2)
_COUNTED: Final = (
    ("completed", "done"),
    ("running", "running"),
    ("queued", "waiting"),
    ("retrying", "to be retried"),
    ("failed", "failed"),
)


def clock() -> datetime:
    """Return the time by the database's clock, which all times here are of."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row: tuple[datetime] = cursor.fetchone()
    return row[0]


def own_schedules() -> set[UUID]:
    """Return the schedules of the demo's code; those a user added are their own."""
    rows = Schedule.objects.filter(source="code", name__in=list(declared()))
    return set(rows.values_list("id", flat=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """The worker that was killed, when, and the jobs it held."""

    at: datetime
    worker_id: UUID
    worker: str
    jobs: frozenset[UUID]

    def since(self, moment: datetime) -> float:
        return (moment - self.at).total_seconds()


class Watch:
    """This run's jobs, as of the last look.

    Args:
        enqueued: the jobs the demo enqueued, with what each works on.
        started_at: what was made earlier is none of this run's business.

    Attributes:
        jobs: by id, those of the schedule too.
        workers: their names by id.
        attempts: by job, those that did not simply succeed.
    """

    def __init__(
        self, terminal: Terminal, enqueued: Mapping[UUID, str], started_at: datetime
    ) -> None:
        self._terminal = terminal
        self._enqueued = enqueued
        self._started_at = started_at
        self._told_attempts: set[int] = set()
        self._told_jobs: set[UUID] = set()
        self.now = started_at
        self.strike: Strike | None = None
        self.jobs: dict[UUID, Job] = {}
        self.workers: dict[UUID, str] = {}
        self.attempts: dict[UUID, list[Attempt]] = {}

    def look(self) -> None:
        """Read the rows and tell what is new."""
        self.now = clock()
        recent = Job.objects.filter(
            queue=tasks.QUEUE, created_at__gte=self._started_at
        ).defer("args", "meta")
        schedules = own_schedules()
        self.jobs = {
            job.id: job
            for job in recent
            if job.schedule_id in schedules or job.id in self._enqueued
        }
        self.workers = dict(Worker.objects.values_list("id", "name"))
        self._read_attempts()
        for job in self.in_order():
            if job.state in FINAL_STATES and job.id not in self._told_jobs:
                self._told_jobs.add(job.id)
                self._tell_end(job)

    def open_jobs(self, *, until: datetime | None = None) -> list[Job]:
        """Return the jobs that have not ended; only those made by a moment."""
        return [
            job
            for job in self.jobs.values()
            if job.state not in FINAL_STATES
            and (until is None or job.created_at <= until)
        ]

    def in_order(self) -> list[Job]:
        """Return all jobs as they were enqueued, those of the schedule last."""
        own = [self.jobs[id_] for id_ in self._enqueued if id_ in self.jobs]
        others = [job for job in self.jobs.values() if job.id not in self._enqueued]
        return own + sorted(others, key=lambda job: job.created_at)

    def own_jobs(self) -> list[Job]:
        """Return the jobs that the demo enqueued itself."""
        return [job for job in self.jobs.values() if job.id in self._enqueued]

    def describe(self, job: Job) -> str:
        """Return what the job is: its task, and what it works on."""
        return f"{task_name(job)} {self.subject(job)}".strip()

    def subject(self, job: Job) -> str:
        if job.id in self._enqueued:
            return self._enqueued[job.id]
        return f"due {job.occurrence_at:%H:%M:%S}" if job.occurrence_at else ""

    def worker_of(self, job: Job) -> str:
        return self.workers.get(job.worker_id, "?") if job.worker_id else ""

    def target(self) -> UUID | None:
        """Return a worker worth killing now.

        That is the one with the most jobs that will not end before the signal arrives,
        once a quarter of all has ended. Where so few jobs ended before there was such
        a moment, one that runs a job of the schedule will do.
        """
        own = self.own_jobs()
        ended = sum(job.state in FINAL_STATES for job in own)
        if ended < len(own) // 4:
            return None
        held: dict[UUID, list[Job]] = {}
        for job in own if ended < len(own) else self.jobs.values():
            if job.state == JobState.RUNNING and job.worker_id is not None:
                held.setdefault(job.worker_id, []).append(job)
        if not held:
            return None
        worker_id = max(held, key=lambda worker: self._count_safe(held[worker]))
        # With little left to do, one job has to be enough.
        if self._count_safe(held[worker_id]) < max(1, min(3, len(own) - ended)):
            return None
        return worker_id

    def held_by(self, worker_id: UUID) -> list[Job]:
        """Return the jobs that are running on the worker, by its row."""
        return [
            job
            for job in self.in_order()
            if job.state == JobState.RUNNING and job.worker_id == worker_id
        ]

    def count_lost(self) -> int:
        """Count the jobs that were taken from the killed worker."""
        return sum(
            any(self._is_of_the_strike(attempt) for attempt in attempts)
            for attempts in self.attempts.values()
        )

    def _is_of_the_strike(self, attempt: Attempt) -> bool:
        return (
            self.strike is not None
            and attempt.worker_id == self.strike.worker_id
            and attempt.outcome == "lost"
        )

    def _count_safe(self, jobs: list[Job]) -> int:
        """Count the jobs of a worker that will not end in a moment."""
        young = sum(
            job.started_at is not None and self.now - job.started_at < YOUNG
            for job in jobs
        )
        return max(young, len(jobs) - get_settings().concurrency)

    def _read_attempts(self) -> None:
        rows = Attempt.objects.filter(job_id__in=list(self.jobs)).order_by("id")
        self.attempts = {}
        fresh: list[Attempt] = []
        for attempt in rows:
            self.attempts.setdefault(attempt.job_id, []).append(attempt)
            if attempt.id not in self._told_attempts:
                self._told_attempts.add(attempt.id)
                fresh.append(attempt)
        for attempt in fresh:
            if attempt.outcome == "retry":
                self._tell_retry(attempt)
        lost = [attempt for attempt in fresh if attempt.outcome == "lost"]
        for worker_id in dict.fromkeys(attempt.worker_id for attempt in lost):
            self._tell_lost([one for one in lost if one.worker_id == worker_id])

    def _tell_retry(self, attempt: Attempt) -> None:
        job = self.jobs[attempt.job_id]
        wait_seconds = (job.run_at - attempt.ended_at).total_seconds()
        again = f"; due again in {seconds(wait_seconds)}" if wait_seconds > 0 else ""
        self._terminal.step(
            f"retry: {self.describe(job)} failed at attempt {attempt.attempt} "
            f"({attempt.error_class}: {attempt.error_message}){again}"
        )

    def _tell_lost(self, attempts: list[Attempt]) -> None:
        worker_id = attempts[0].worker_id
        name = self.workers.get(worker_id, "?") if worker_id else "?"
        when = ""
        if self.strike is not None and worker_id == self.strike.worker_id:
            when = (
                f", {seconds(self.strike.since(attempts[0].ended_at))} after the kill"
            )
        self._terminal.step(
            f"lost: {name} is given up as its lease ran out{when}; "
            f"{plural(len(attempts), 'job')} ready again",
            strong=True,
        )

    def _tell_end(self, job: Job) -> None:
        if job.state != JobState.COMPLETED:
            self._terminal.step(
                f"{job.state}: {self.describe(job)} "
                f"({job.error_class}: {job.error_message})"
            )
        elif self.is_taken_over(job):
            self._tell_takeover(job)
        elif job.id in self.attempts:
            self._terminal.step(
                f"retry: {self.describe(job)} completed at attempt {job.attempt}"
            )
        elif job.schedule_id is not None:
            self._tell_count(job)

    def is_taken_over(self, job: Job) -> bool:
        """Tell whether it completed on another worker than the killed one."""
        return (
            self.strike is not None
            and job.state == JobState.COMPLETED
            and job.worker_id != self.strike.worker_id
            and any(map(self._is_of_the_strike, self.attempts.get(job.id, ())))
        )

    def _tell_takeover(self, job: Job) -> None:
        if self.strike is None or job.started_at is None or job.finished_at is None:
            return
        began = seconds(self.strike.since(job.started_at))
        ended = seconds(self.strike.since(job.finished_at))
        self._terminal.step(
            f"takeover: {self.worker_of(job)} completed {self.describe(job)}, attempt "
            f"{job.attempt}, started {began} and ended {ended} after the kill",
            strong=True,
        )

    def _tell_count(self, job: Job) -> None:
        counts = job.result or {}
        said = [
            f"{counts[state]} {word}" for state, word in _COUNTED if state in counts
        ]
        self._terminal.step(
            f"schedule: {self.subject(job)}, counted {', '.join(said) or 'no jobs yet'}"
        )


def task_name(job: Job) -> str:
    """Return the task's name without its module."""
    return str(job.task).rpartition(".")[2]


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

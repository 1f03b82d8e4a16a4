"""The table of jobs, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from relay.models import FINAL_STATES, Job, JobState, Occurrence
from relay.standalone.demo.terminal import Terminal, printable
from relay.standalone.demo.watch import Watch, own_schedules, plural, task_name

__all__ = ["Verdict", "judge", "show_table"]

# Of a longer table only the jobs with a story are shown.
LONGEST_TABLE: Final = 70
HEAD: Final = ("state", "task", "on", "attempts", "worker", "seconds", "what happened")


def show_table(terminal: Terminal, watch: Watch) -> None:
    """Write one row for each job, in the order of their being enqueued."""
    jobs = watch.in_order()
    shown = jobs
    if len(jobs) > LONGEST_TABLE:
        shown = [
            job for job in jobs if job.state != JobState.COMPLETED or job.attempt > 1
        ]
    rows = [HEAD, *(_row(job, watch) for job in shown)]
    terminal.table(rows, right=(3, 5))
    if len(shown) < len(jobs):
        rest = plural(len(jobs) - len(shown), "job")
        terminal.write(f"... and {rest} that completed at the first attempt")


def _row(job: Job, watch: Watch) -> tuple[str, ...]:
    duration = ""
    if job.started_at is not None and job.finished_at is not None:
        duration = f"{(job.finished_at - job.started_at).total_seconds():.2f}"
    return (
        job.state,
        task_name(job),
        watch.subject(job),
        str(job.attempt),
        watch.worker_of(job),
        duration,
        _story(job, watch),
    )


def _story(job: Job, watch: Watch) -> str:
    said: list[str] = []
    for attempt in watch.attempts.get(job.id, ()):
        name = watch.workers.get(attempt.worker_id, "?") if attempt.worker_id else "?"
        said.append(
            {
                "lost": f"lost with {name}",
                "crash": f"crashed with {name}",
                "retry": f"failed with {attempt.error_class}, retried",
                "fail": printable(f"{attempt.error_message}", limit=60),
            }.get(attempt.outcome, attempt.outcome)
        )
    if job.schedule_id is not None:
        said.insert(0, "by the schedule")
    return ", ".join(said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How the run ended.

    Attributes:
        enqueued: by the demo and by its schedule.
        lost: whose row is gone though nobody removed it.
        unfinished: still there, but not ended in time.
    """

    enqueued: int
    scheduled: int
    completed: int
    failed: int
    lost: int
    unfinished: int
    taken_over: int

    @property
    def is_good(self) -> bool:
        return not self.lost and not self.unfinished and self.taken_over > 0

    def sentence(self) -> str:
        """Return the verdict in one line, beginning with the three numbers."""
        parts = [
            f"{plural(self.enqueued, 'job')} enqueued",
            f"{self.completed} completed",
            f"{self.lost} lost",
        ]
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.unfinished:
            parts.append(f"{self.unfinished} not finished in time")
        return ", ".join(parts)


def judge(
    watch: Watch, enqueued: set[UUID], *, started_at: datetime, until: datetime
) -> Verdict:
    """Compare what was enqueued with the rows that are there.

    Args:
        enqueued: by the demo; its schedule's jobs are read from the occurrences.
        until: later jobs of the schedule do not count.
    """
    scheduled = set(
        Occurrence.objects.filter(
            schedule__in=own_schedules(),
            created_at__gte=started_at,
            created_at__lte=until,
            job__isnull=False,
        ).values_list("job_id", flat=True)
    )
    ledger = enqueued | scheduled
    there = [job for job in watch.jobs.values() if job.id in ledger]
    return Verdict(
        enqueued=len(ledger),
        scheduled=len(scheduled),
        completed=sum(job.state == JobState.COMPLETED for job in there),
        failed=sum(job.state in ("failed", "cancelled") for job in there),
        lost=len(ledger) - len(there),
        unfinished=sum(job.state not in FINAL_STATES for job in there),
        taken_over=sum(watch.is_taken_over(job) for job in there),
    )

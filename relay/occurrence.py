"""The due instant that a job was made for, as its handler learns of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from django.db import connections

__all__ = ["JobOccurrence", "read_occurrence"]

# Primary keys and relay_occurrence_once, but for the successes since the last note of
# them: relay_occurrence_open_idx. The success on the schedule's row is not the one
# before where this is an old occurrence that runs again: then the noted ones are read.
# Without time zones: where USE_TZ is off, Django takes them away anyway.
READ: Final = """
SELECT schedule.name, job.occurrence_at AT TIME ZONE 'UTC',
       occurrence.window_start AT TIME ZONE 'UTC',
       greatest(
           CASE WHEN schedule.last_success_due_at < job.occurrence_at
           THEN schedule.last_success_due_at
           ELSE (
               SELECT noted.due_at FROM relay_occurrence AS noted
               WHERE noted.schedule_id = job.schedule_id
                 AND noted.due_at < job.occurrence_at AND noted.outcome = 'completed'
                 AND schedule.last_success_due_at IS NOT NULL
               ORDER BY noted.due_at DESC LIMIT 1
           ) END,
           (
               SELECT max(latest.due_at) FROM (
                   SELECT due_at, job_id FROM relay_occurrence
                   WHERE schedule_id = job.schedule_id AND due_at < job.occurrence_at
                     AND job_id IS NOT NULL AND outcome IS NULL
                   ORDER BY due_at DESC LIMIT 1000
               ) AS latest
               JOIN relay_job AS earlier ON earlier.id = latest.job_id
               WHERE earlier.state = 'completed'
           )
       ) AT TIME ZONE 'UTC'
FROM relay_job AS job
LEFT JOIN relay_schedule AS schedule ON schedule.id = job.schedule_id
LEFT JOIN relay_occurrence AS occurrence
    ON occurrence.schedule_id = job.schedule_id
   AND occurrence.due_at = job.occurrence_at
WHERE job.id = %(id)s AND job.occurrence_at IS NOT NULL
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOccurrence:
    """The due instant that a job was made for. All times are UTC.

    Attributes:
        schedule: the schedule's name; None if it has been deleted.
        scheduled_for: the planned time, whenever the job runs.
        window_start: the occurrence before it that became a job, or else the planned
            time before; None if there was none. The windows of those that were run
            leave no gap, whatever was missed or skipped between.
        previous_success: the latest planned time before it whose job has completed;
            None if none has, as far as relay remembers.
    """

    schedule: str | None
    scheduled_for: datetime
    window_start: datetime | None
    previous_success: datetime | None

    @property
    def window_end(self) -> datetime:
        """Where the window ends, and the next one begins: the planned time."""
        return self.scheduled_for


def read_occurrence(job_id: UUID, *, using: str) -> JobOccurrence | None:
    """Return the job's occurrence; None if no schedule made it, or a person did."""
    with connections[using].cursor() as cursor:
        cursor.execute(READ, {"id": job_id})
        row = cursor.fetchone()
    if row is None:
        return None
    name, planned, window_start, success = row
    return JobOccurrence(
        schedule=name,
        scheduled_for=planned.replace(tzinfo=UTC),
        window_start=window_start and window_start.replace(tzinfo=UTC),
        previous_success=success and success.replace(tzinfo=UTC),
    )

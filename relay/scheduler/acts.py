"""What an operator does to schedules; each act leaves who did it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db import connections, transaction

from relay import origin, traces
from relay.engine import enqueue
from relay.engine.acts import Why, written
from relay.engine.new_job import NewJob
from relay.exceptions import ScheduleError
from relay.scheduler.job import make_job
from relay.scheduler.overlap import OPEN_JOBS

__all__ = ["run_now", "set_enabled"]

# Primary key.
READ_DEFINITION: Final = """
SELECT id, task, args::text, queue, priority FROM relay_schedule WHERE id = %(id)s::uuid
"""

NOTE_RUN: Final = """
INSERT INTO relay_history (job_id, at, event, actor, detail)
SELECT %(job_id)s::uuid, clock_timestamp(), 'run_schedule', %(actor)s,
       jsonb_build_object('schedule', name) || coalesce(%(why)s::jsonb, '{}')
FROM relay_schedule WHERE id = %(schedule_id)s::uuid
"""

# What a person starts counts as a run that later ones may have to wait for. The row is
# locked to the end of the transaction: no scheduler decides meanwhile. Locked by a
# statement before: the jobs that NOTE_OPEN sees are those of every run before it.
LOCK_OPEN: Final = """
SELECT FROM relay_schedule WHERE id = %(schedule_id)s::uuid AND overlap <> 'allow'
FOR NO KEY UPDATE
"""

# Those that have ended are left out, or the row would grow with each run.
NOTE_OPEN: Final = f"""
UPDATE relay_schedule SET open_jobs = ARRAY(
    SELECT job.id FROM relay_job AS job
    WHERE job.id = ANY({OPEN_JOBS})
      AND job.state NOT IN ('completed', 'failed', 'cancelled')
) || %(job_id)s::uuid
WHERE id = %(schedule_id)s::uuid AND overlap <> 'allow'
"""  # noqa: S608 - joins a constant, no value

# enabled is compared as it is once locked: that of the statement's snapshot may be
# older.
SET_ENABLED: Final = """
WITH locked AS MATERIALIZED (
    SELECT id, enabled FROM relay_schedule
    WHERE id = ANY(%(ids)s::uuid[])
    ORDER BY id
    FOR NO KEY UPDATE
), changed AS (
    UPDATE relay_schedule AS schedule SET enabled = %(enabled)s
    FROM locked
    WHERE schedule.id = locked.id AND locked.enabled <> %(enabled)s
    RETURNING schedule.id, schedule.name
), noted AS (
    INSERT INTO relay_history (at, event, actor, detail)
    SELECT clock_timestamp(), %(event)s, %(actor)s,
           jsonb_build_object('schedule', name)
    FROM changed
)
SELECT id FROM changed ORDER BY id
"""


@dataclass(slots=True)
class _Row:
    """A schedule's row as READ_DEFINITION reads it."""

    id: UUID
    task: str
    args: str
    queue: str | None
    priority: int | None


def run_now(
    schedule_id: UUID, *, actor: str | None, using: str, why: Why | None = None
) -> UUID:
    """Enqueue the schedule's job at once, apart from its due instants; return its id.

    A run that a person asked for is no occurrence: the plan stays as it is, and it
    starts whatever the schedule's overlap policy says.

    Raises:
        ScheduleError: the schedule is gone or cannot be kept; nothing was enqueued.

    Transaction: joins the caller's on Django's connection, or its own. The wake-up
    goes out after commit.
    """
    with transaction.atomic(using=using):
        with connections[using].cursor() as cursor:
            cursor.execute(READ_DEFINITION, {"id": schedule_id})
            found = cursor.fetchone()
            if found is None:
                raise ScheduleError(f"schedule {schedule_id} does not exist")
            job = make_job(_Row(*found))
            values = {"job_id": job.id, "schedule_id": schedule_id, "actor": actor}
            cursor.execute(LOCK_OPEN, values)
            cursor.execute(NOTE_OPEN, values)
            cursor.execute(NOTE_RUN, {**values, "why": written(why)})
        _insert(job, using=using)
    return job.id


def _insert(job: NewJob, *, using: str) -> None:
    """Insert a job that goes on with the request and the trace of who asks for it."""
    if (request_id := origin.request_id()) is not None:
        job = _carrying(job, {origin.REQUEST_ID: request_id})
    if (tracer := traces.tracer()) is None:
        enqueue.insert(job, using=using)
        return
    with tracer.send([job]) as sent:
        enqueue.insert(_carrying(job, sent.carriers[0]), using=using)
        sent.made([job.id])


def _carrying(job: NewJob, carrier: Mapping[str, str]) -> NewJob:
    return job._replace(meta=traces.with_carrier(job.meta, carrier)) if carrier else job


def set_enabled(
    schedule_ids: Iterable[UUID], enabled: bool, *, actor: str | None, using: str
) -> list[UUID]:
    """Enable or disable the schedules; return those that were the other way.

    Transaction: one statement; joins the caller's on Django's connection.
    """
    with connections[using].cursor() as cursor:
        cursor.execute(
            SET_ENABLED,
            {
                "ids": list(schedule_ids),
                "enabled": enabled,
                "event": "enable" if enabled else "disable",
                "actor": actor,
            },
        )
        return [row[0] for row in cursor.fetchall()]

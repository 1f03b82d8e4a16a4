"""Schedules, and the plain connections that duties work on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection as django_connection

from relay.engine.connection import EngineConnection, connect
from relay.models import Job, Occurrence, Schedule
from relay.scheduler.duty import ScheduleDuty

__all__ = ["database_now", "duty_connection", "fired", "make", "set_back", "tick"]

_numbers = itertools.count()


def make(cron: str = "* * * * *", **fields: Any) -> Schedule:
    fields = {"name": f"schedule-{next(_numbers)}", "task": "elsewhere.run"} | fields
    return Schedule.objects.create(cron=cron, **fields)


@contextmanager
def duty_connection() -> Iterator[EngineConnection]:
    connection = connect("default", role="duty", name="test")
    try:
        yield connection
    finally:
        connection.close()


def tick(duty: ScheduleDuty | None = None) -> ScheduleDuty:
    """Tick once; a duty made anew is a scheduler that was just started."""
    duty = duty or ScheduleDuty()
    with duty_connection() as connection:
        duty.tick(connection)
    return duty


def database_now() -> datetime:
    with django_connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]


def set_back(schedule: Schedule, by: timedelta) -> datetime:
    """Let the schedule look as if none had run it for this long."""
    due_at = database_now() - by
    Schedule.objects.filter(pk=schedule.pk).update(next_due_at=due_at)
    return due_at


def _due_by_job(schedule: Schedule) -> dict[UUID, datetime | None]:
    jobs = Job.objects.filter(schedule_id=schedule.pk)
    return dict(jobs.values_list("id", "occurrence_at"))


def fired(schedule: Schedule) -> list[datetime]:
    """Return the occurrences that have a job, having checked that each has its own."""
    before = _due_by_job(schedule)
    occurrences = Occurrence.objects.filter(schedule=schedule, state="fired")
    due = {row.job_id: row.due_at for row in occurrences}
    # A scheduler may commit between two looks, but never one without the other.
    assert before.items() <= due.items() <= _due_by_job(schedule).items()
    return sorted(due.values())

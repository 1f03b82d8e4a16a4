"""What a handler learns of the due instant that its job was made for."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest

from relay import JobOccurrence, current_job, task
from relay.models import Job, Occurrence, Schedule
from relay.scheduler import acts
from relay.testing import drain, fire_due_schedules, travel

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)

told: list[JobOccurrence | None] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    told.clear()


@task(name="tests.occurrence.sync")
def tell() -> None:
    told.append(current_job().occurrence())


@task(name="tests.occurrence.async")
async def atell() -> None:
    told.append(await current_job().aoccurrence())


@task(name="tests.occurrence.broken", max_retries=0)
def broken() -> None:
    told.append(current_job().occurrence())
    raise ValueError("broken")


def daily(name: str = "tests.occurrence.sync", **fields: object) -> Schedule:
    return Schedule.objects.create(
        **{"name": "daily", "task": name, "cron": "0 7 * * *", **fields}
    )


def a_day(days: int) -> JobOccurrence:
    """Let it be so many days from now, fire and run; return what was told."""
    with travel(days=days):
        assert fire_due_schedules() == 1
        drain()
    found = told.pop()
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["tests.occurrence.sync", "tests.occurrence.async"])
def test_a_job_learns_its_planned_time(name: str) -> None:
    schedule = daily(name)

    found = a_day(1)

    assert found.schedule == "daily"
    assert found.scheduled_for == Occurrence.objects.get(schedule=schedule).due_at
    assert (found.scheduled_for.hour, found.scheduled_for.minute) == (7, 0)


def test_the_first_window_begins_at_the_planned_time_before() -> None:
    daily()

    found = a_day(1)

    assert found.window_start == found.scheduled_for - DAY
    assert found.window_end == found.scheduled_for
    assert found.previous_success is None


def test_windows_leave_no_gap_where_instants_were_missed() -> None:
    daily(catch_up="latest", catch_up_window_ms=3 * 86_400_000)

    first, later = a_day(1), a_day(4)

    assert later.window_start == first.scheduled_for
    assert later.scheduled_for == first.scheduled_for + 3 * DAY
    assert later.previous_success == first.scheduled_for


def test_the_first_window_of_a_schedule_that_just_started_is_open() -> None:
    starts_at = datetime.now().astimezone() + timedelta(hours=1)
    daily(cron="", every_ms=86_400_000, starts_at=starts_at)

    found = a_day(1)

    assert (found.scheduled_for, found.window_start) == (starts_at, None)


def test_the_previous_success_passes_over_runs_that_failed() -> None:
    schedule = daily()
    first = a_day(1)
    Schedule.objects.update(task="tests.occurrence.broken")
    failed = a_day(2)
    Schedule.objects.update(task=tell.name)

    later = a_day(3)

    assert failed.previous_success == first.scheduled_for
    assert later.previous_success == first.scheduled_for
    assert later.window_start == failed.scheduled_for
    assert Occurrence.objects.filter(schedule=schedule).count() == 3


def test_the_previous_success_is_known_when_its_job_is_gone() -> None:
    daily()
    first = a_day(1)
    Schedule.objects.update(last_success_due_at=first.scheduled_for)
    Occurrence.objects.update(outcome="completed")
    Job.objects.all().delete()

    assert a_day(2).previous_success == first.scheduled_for


def test_an_old_occurrence_that_runs_late_knows_only_what_was_before_it() -> None:
    daily()
    first, second = a_day(1), a_day(2)
    Occurrence.objects.update(outcome="completed")
    Schedule.objects.update(last_success_due_at=second.scheduled_for)
    Job.objects.filter(occurrence_at=second.scheduled_for).update(
        state="queued", worker_id=None, finished_at=None, expires_at=None
    )

    drain()

    [found] = told
    assert found is not None
    assert found.previous_success == first.scheduled_for


def test_what_no_schedule_made_has_no_occurrence() -> None:
    schedule = daily()
    tell.enqueue()
    run: UUID = acts.run_now(schedule.pk, actor="ada", using="default")

    drain()

    assert told == [None, None]
    assert Job.objects.get(pk=run).occurrence_at is None


def test_the_occurrence_outlives_its_schedule() -> None:
    daily()
    with travel(days=1):
        fire_due_schedules()
        due_at = Job.objects.get().occurrence_at
        Schedule.objects.all().delete()
        drain()

    [found] = told
    assert found is not None
    assert (found.schedule, found.scheduled_for) == (None, due_at)

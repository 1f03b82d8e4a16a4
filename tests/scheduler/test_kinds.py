"""Intervals, single instants, bounds, exclusions and spread, as rows that fire."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from relay.models import Job, Schedule
from relay.scheduler import timetable
from relay.scheduler.preview import preview
from relay.testing import assert_schedule, fire_due_schedules, travel
from tests.scheduler.factory import database_now, fired, make, set_back, tick

pytestmark = pytest.mark.django_db(transaction=True)

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
HOUR_MS = 3_600_000


def next_due_at(schedule: Schedule) -> datetime | None:
    schedule.refresh_from_db()
    return schedule.next_due_at


def test_an_interval_fires_at_its_own_instants() -> None:
    schedule = make("", every_ms=2 * HOUR_MS)
    tick()
    due_at = next_due_at(schedule)
    assert due_at is not None
    assert (due_at.hour % 2, due_at.minute, due_at.second) == (0, 0, 0)

    set_back(schedule, 2 * HOUR)
    tick()

    [instant] = fired(schedule)
    assert next_due_at(schedule) == instant + 2 * HOUR


def test_one_instant_fires_once_and_is_over() -> None:
    once_at = database_now() + HOUR
    schedule = make("", once_at=once_at)
    tick()
    assert next_due_at(schedule) == once_at

    Schedule.objects.update(once_at=once_at - HOUR - SECOND)
    tick()
    tick()

    assert fired(schedule) == [once_at - HOUR - SECOND]
    schedule.refresh_from_db()
    assert schedule.next_due_at is None
    assert schedule.finished_at is not None


def test_an_instant_that_had_passed_is_not_run() -> None:
    schedule = make("", once_at=database_now() - HOUR)

    tick()

    schedule.refresh_from_db()
    assert fired(schedule) == []
    assert schedule.finished_at is not None


def test_a_schedule_that_is_over_is_planned_again_when_it_changes() -> None:
    schedule = make("0 * * * *", ends_at=database_now() - DAY)
    duty = tick()
    schedule.refresh_from_db()
    assert schedule.finished_at is not None

    Schedule.objects.update(ends_at=database_now() + DAY)
    tick(duty)

    schedule.refresh_from_db()
    assert schedule.finished_at is None
    assert schedule.next_due_at is not None


def test_the_last_instant_before_the_end_is_run() -> None:
    schedule = make("0 * * * *")
    tick()
    due_at = next_due_at(schedule)
    assert due_at is not None
    Schedule.objects.update(ends_at=due_at)
    tick()

    with travel(hours=1):
        assert fire_due_schedules() == 1
        assert fire_due_schedules() == 0
        assert_schedule(schedule.name, next=None)


def test_a_start_ahead_is_waited_for() -> None:
    starts_at = (database_now() + 3 * DAY).replace(microsecond=250_000)
    schedule = make("", every_ms=HOUR_MS, starts_at=starts_at)

    tick()

    assert next_due_at(schedule) == starts_at


def test_an_excluded_day_is_not_run() -> None:
    tomorrow = (database_now() + DAY).date()
    schedule = make("0 12 * * *", excluded=tomorrow.isoformat())
    make("0 12 * * *", name="plain")
    tick()

    with travel(days=3):
        fire_due_schedules()

    due = set(Job.objects.exclude(schedule_id=schedule.pk).values_list("occurrence_at"))
    mine = set(Job.objects.filter(schedule_id=schedule.pk).values_list("occurrence_at"))
    assert tomorrow not in {at.date() for (at,) in mine}
    assert mine <= due


def test_a_spread_puts_a_run_off_and_keeps_its_planned_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = make("0 * * * *", name="nightly", spread_ms=600_000)
    spread = timetable.spread_of("nightly", 600_000)
    assert spread == timedelta(seconds=526)
    tick()
    planned = next_due_at(schedule)
    assert planned is not None
    until_planned = planned - database_now()

    with travel(until_planned + spread - MINUTE):
        assert fire_due_schedules() == 0
    with travel(until_planned + spread + SECOND):
        assert fire_due_schedules() == 1

    assert fired(schedule) == [planned]
    assert next_due_at(schedule) == planned + HOUR


def test_a_month_of_a_schedule_passes_in_a_test() -> None:
    schedule = make("30 7 * * 1-5", timezone="Europe/Berlin", excluded="* * * * FRI")
    now = database_now()
    runs = [run.planned_at for run in preview(schedule, now=now, limit=40)]
    tick()

    for day in range(1, 32):
        with travel(days=day):
            fire_due_schedules()

    month = [at for at in runs if at <= now + 31 * DAY]
    assert fired(schedule) == month
    assert 14 <= len(month) <= 20
    assert {at.weekday() for at in month} <= {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"every_ms": HOUR_MS}, "cron"),
        ({"cron": "", "every_ms": None}, "cron"),
        ({"cron": "", "every_ms": 500}, "every_ms"),
        ({"cron": "", "every_ms": 1_500}, "every_ms"),
        ({"cron": "", "every_ms": 10**15}, "every_ms"),
        ({"spread_ms": 0}, "spread_ms"),
        ({"spread_ms": 90_000_000}, "spread_ms"),
        ({"overlap": "maybe"}, "overlap"),
        ({"excluded": "someday"}, "excluded"),
        ({"excluded": 7}, "excluded"),
        ({"success_within_ms": -1}, "success_within_ms"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_its_field(
    fields: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(ValidationError) as raised:
        make(**{"cron": "0 * * * *", **fields})

    assert wrong in raised.value.message_dict


def test_an_end_before_the_start_is_refused() -> None:
    now = database_now()

    with pytest.raises(ValidationError, match="ends before it starts"):
        make("0 * * * *", starts_at=now, ends_at=now - DAY)

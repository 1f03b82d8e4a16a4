"""Travelling in relay's time, and firing schedules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection
from django.utils import timezone

from relay.models import Job, Occurrence, Queue, Schedule, Worker
from relay.testing import (
    approx,
    assert_schedule,
    drain,
    fire_due_schedules,
    simulate_crash,
    travel,
)
from tests.testing import tasks

pytestmark = pytest.mark.django_db


def make(cron: str = "0 7 * * *", **fields: Any) -> Schedule:
    return Schedule.objects.create(
        **{"name": "report", "task": "testing.note", "cron": cron, **fields},
        args={"args": ["report"]},
    )


def next_at(hour: int) -> datetime:
    now = datetime.now(UTC)
    at = now.replace(hour=hour, minute=0, second=0, microsecond=0)
    return at if at > now else at + timedelta(days=1)


def test_what_is_due_later_is_due_after_the_travel(ran: list[object]) -> None:
    tasks.note.using(run_in=timedelta(hours=2)).enqueue("later")

    with travel(hours=1):
        assert drain().ran == 0
        with travel(timedelta(hours=1, seconds=1)):
            assert drain().completed == 1

    assert ran == ["later"]


def test_what_has_not_started_by_its_deadline_never_runs(ran: list[object]) -> None:
    in_time = tasks.note.using(deadline=timedelta(hours=1)).enqueue("in time")
    late = tasks.note.using(deadline=timedelta(minutes=1)).enqueue("late")

    with travel(minutes=30):
        drain()

    assert ran == ["in time"]
    assert in_time.state == "completed"
    row = Job.objects.get(pk=late.id)
    assert (row.state, row.error_class) == ("failed", "DeadlineExceeded")
    assert row.failures == 0


def test_all_of_a_row_s_times_go_and_come_back() -> None:
    job = tasks.note.enqueue(1)
    simulate_crash(job)
    Queue.objects.create(name="mail", paused_until=timezone.now(), paused_at=None)
    rows = [Job.objects.get(), Worker.objects.last(), Queue.objects.get(name="mail")]
    before = [row.__dict__ | {"_state": None} for row in rows if row is not None]

    with travel(days=1):
        moved = Job.objects.get()
        assert moved.created_at == rows[0].created_at - timedelta(days=1)
        assert moved.started_at == Job.objects.get().started_at
        worker = Worker.objects.last()
        assert worker is not None
        assert worker.lease_expires_at < timezone.now()

    after = [Job.objects.get(), Worker.objects.last(), Queue.objects.get(name="mail")]
    assert [row.__dict__ | {"_state": None} for row in after if row] == before


def test_a_failure_inside_comes_out_as_it_is() -> None:
    User.objects.create(username="her")

    with pytest.raises(IntegrityError), travel(hours=1):
        User.objects.create(username="her")

    connection.needs_rollback = True  # for whoever looks: the transaction is broken


def test_a_travel_that_is_not_entered_is_told() -> None:
    with pytest.warns(RuntimeWarning, match=r"with travel\(...\)"):
        travel(hours=1)  # collected at once


def test_a_schedule_fires_at_its_own_instant_wherever_the_travel_goes(
    ran: list[object],
) -> None:
    schedule = make()
    due_at = next_at(7)

    assert fire_due_schedules() == 0
    with travel(days=1, minutes=1):
        assert fire_due_schedules() == 1
        assert fire_due_schedules() == 0
        drain()

    assert ran == ["report"]
    assert Occurrence.objects.get(schedule=schedule).due_at in (
        due_at,
        due_at + timedelta(days=1),
    )


def test_a_schedule_made_before_the_travel_was_planned_by_then() -> None:
    make("* * * * *", catch_up="all")

    with travel(minutes=10):
        assert fire_due_schedules() in (10, 11)  # a minute may begin meanwhile


def test_a_long_catch_up_fires_to_its_end() -> None:
    make("* * * * *", catch_up="all")

    with travel(hours=12):
        assert fire_due_schedules() in (720, 721)


def test_a_disabled_schedule_does_not_fire() -> None:
    make("* * * * *", enabled=False)

    with travel(hours=1):
        assert fire_due_schedules() == 0


class TestAssertSchedule:
    def test_it_knows_the_next_instant(self) -> None:
        make()

        assert_schedule("report", next=next_at(7), task="testing.note")
        with travel(days=3):
            assert_schedule("report", next=next_at(7) + timedelta(days=3))

    def test_it_takes_an_instant_that_is_near(self) -> None:
        make("* * * * *")

        assert_schedule(
            "report", next=approx(timedelta(seconds=30), within=timedelta(seconds=35))
        )

    def test_it_says_what_is_wrong(self) -> None:
        make()

        with pytest.raises(AssertionError, match=r"is due next at .*T07:00:00"):
            assert_schedule("report", next=next_at(8))
        with pytest.raises(AssertionError, match=r"runs testing\.note, not testing\.s"):
            assert_schedule("report", next=next_at(7), task="testing.send")
        with pytest.raises(AssertionError, match="there is no schedule 'repport', on"):
            assert_schedule("repport", next=next_at(7))
        Schedule.objects.update(enabled=False)
        with pytest.raises(AssertionError, match="is disabled"):
            assert_schedule("report", next=next_at(7))

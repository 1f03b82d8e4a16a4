"""How jobs of occurrences ended, and which schedules are late or do not succeed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from relay.models import Job, Occurrence, Schedule
from relay.scheduler import outcomes
from relay.scheduler.lateness import Lateness, read_lateness
from relay.scheduler.outcomes import FIRST, Place, note_outcomes
from tests.scheduler.factory import database_now, duty_connection, make, set_back, tick

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
HOUR_MS = 3_600_000


def ran(hours: int = 1, **fields: Any) -> Schedule:
    """Return a schedule that has been due so often."""
    minute = (database_now().minute + 30) % 60
    schedule = make(f"{minute} * * * *", catch_up="all", **fields)
    tick()
    set_back(schedule, hours * HOUR)
    tick()
    return schedule


def end(state: str, *, latest: bool = False) -> None:
    jobs = Job.objects.filter(state="queued").order_by("-occurrence_at")
    chosen = list(jobs.values_list("pk", flat=True)[: 1 if latest else None])
    Job.objects.filter(pk__in=chosen).update(state=state, finished_at=database_now())


def note(place: Place = FIRST) -> Place:
    with duty_connection() as connection:
        return note_outcomes(connection, place)[0]


def outcomes_of(schedule: Schedule) -> list[str | None]:
    rows = Occurrence.objects.filter(schedule=schedule).order_by("due_at")
    return list(rows.values_list("outcome", flat=True))


def lateness_of(schedule: Schedule) -> Lateness:
    [found] = [row for row in read_lateness(using="default") if row.id == schedule.pk]
    return found


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
def test_the_end_of_a_job_is_noted_on_its_occurrence(state: str) -> None:
    schedule = ran(2)
    end(state, latest=True)

    note()

    assert outcomes_of(schedule) == [None, state]
    schedule.refresh_from_db()
    latest = Occurrence.objects.filter(schedule=schedule).latest("due_at")
    succeeded = latest.due_at if state == "completed" else None
    assert schedule.last_success_due_at == succeeded
    assert (schedule.last_success_at is not None) is (state == "completed")


def test_a_job_that_was_deleted_is_no_success() -> None:
    schedule = ran()
    Job.objects.all().delete()

    note()

    assert outcomes_of(schedule) == ["deleted"]
    schedule.refresh_from_db()
    assert schedule.last_success_at is None


def test_an_older_success_noted_later_takes_nothing_back() -> None:
    schedule = ran(3)
    end("completed", latest=True)
    note()
    schedule.refresh_from_db()
    latest = schedule.last_success_due_at

    end("completed")
    note()

    schedule.refresh_from_db()
    assert schedule.last_success_due_at == latest
    assert outcomes_of(schedule) == ["completed"] * 3


def test_a_long_backlog_is_looked_through_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = ran(5)
    monkeypatch.setattr(outcomes, "BATCH", 2)
    end("completed", latest=True)

    place = note(note(note()))

    assert place == FIRST
    assert outcomes_of(schedule) == [None] * 4 + ["completed"]


def test_a_scheduler_notes_outcomes_by_itself() -> None:
    schedule = ran()
    end("completed")

    tick()

    assert outcomes_of(schedule) == ["completed"]


def test_a_schedule_of_somebody_who_holds_its_row_is_noted_later() -> None:
    schedule = ran()
    end("completed")

    with duty_connection() as other, other.transaction():
        other.execute("SELECT FROM relay_schedule FOR NO KEY UPDATE")
        note()
        assert outcomes_of(schedule) == [None]
    note()

    assert outcomes_of(schedule) == ["completed"]


def test_a_schedule_nobody_fires_is_late() -> None:
    schedule = ran()
    assert not lateness_of(schedule).is_late

    set_back(schedule, HOUR)

    lateness = lateness_of(schedule)
    assert lateness.is_late
    assert HOUR <= lateness.late_by < 2 * HOUR


def test_the_time_that_a_spread_puts_off_is_not_late() -> None:
    schedule = ran(name="nightly", spread_ms=600_000)

    set_back(schedule, timedelta(seconds=500))

    assert lateness_of(schedule).late_by == timedelta(0)


def test_a_schedule_without_a_success_for_too_long_is_told() -> None:
    schedule = ran(success_within_ms=HOUR_MS)
    assert not lateness_of(schedule).is_unsuccessful

    Schedule.objects.update(created_at=database_now() - 2 * HOUR)
    assert lateness_of(schedule).is_unsuccessful
    end("failed")
    note()
    assert lateness_of(schedule).is_unsuccessful

    ran_again = Job.objects.get()
    Job.objects.update(state="completed", finished_at=database_now())
    Occurrence.objects.update(outcome=None, job=ran_again)
    note()

    assert not lateness_of(schedule).is_unsuccessful


def test_what_is_disabled_or_over_is_neither_late_nor_unsuccessful() -> None:
    make("0 * * * *", enabled=False)
    make("", once_at=database_now() - HOUR)
    tick()

    assert read_lateness(using="default") == []

"""What is logged of a schedule's occurrences, and how late they were."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relay.models import Job, Occurrence
from tests.log_page import read_log_page
from tests.scheduler.factory import make, set_back, tick
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
PAGE = read_log_page()


@pytest.fixture(autouse=True)
def within_one_minute() -> None:
    """Begin far from the next minute: its occurrence would be another one."""
    until(lambda: datetime.now(UTC).second < 50, what="the next minute")


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "relay.scheduler")
    caplog.set_level(logging.DEBUG, "relay.engine")
    return caplog


def read(heard: pytest.LogCaptureFixture) -> dict[str, dict[str, Any]]:
    found = {vars(one)["event"]: vars(one) for one in heard.records}
    for event, values in found.items():
        level, fields = PAGE[event]
        assert values["levelname"] == level
        assert fields <= set(values)
    return found


def test_an_occurrence_on_time_is_fired_and_its_job_enqueued(
    heard: pytest.LogCaptureFixture,
) -> None:
    schedule = make("* * * * *")
    tick()
    set_back(schedule, timedelta(minutes=1))

    tick()

    told = read(heard)
    job = Job.objects.get()
    assert told.keys() == {"schedule.planned", "schedule.fired", "job.enqueued"}
    assert told["schedule.fired"]["job_id"] == str(job.id)
    assert 0 <= told["schedule.fired"]["late_s"] <= 61
    assert told["job.enqueued"]["job_id"] == str(job.id)
    assert told["job.enqueued"]["source"] == "schedule"


def test_one_that_no_scheduler_was_there_for_is_caught_up(
    heard: pytest.LogCaptureFixture,
) -> None:
    schedule = make("*/2 * * * *", catch_up="all")
    tick()
    set_back(schedule, HOUR)

    tick()

    told = read(heard)
    assert told["schedule.caught_up"]["late_s"] > 60


@pytest.mark.parametrize("overlap", ["allow", "skip"])
def test_one_that_has_been_dealt_with_is_told_as_a_duplicate(
    overlap: str, heard: pytest.LogCaptureFixture
) -> None:
    schedule = make("* * * * *", overlap=overlap)
    tick()
    set_back(schedule, timedelta(minutes=1))
    tick()
    Job.objects.update(state="completed")
    [first] = Occurrence.objects.all()
    set_back(schedule, timedelta(minutes=1))
    heard.clear()

    tick()

    assert first.due_at is not None
    assert read(heard)["schedule.duplicate"]["due_at"] == first.due_at.isoformat()

"""What the overview shows: the schedules to look at, and all workers."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from relay import queries
from relay.exceptions import ArgumentError
from relay.models import Schedule
from relay.queries import documents
from relay.scheduler.timetable import spread_of
from tests.operations.factory import actor, make_job
from tests.queries.documents import check
from tests.queries.factory import make_schedule, make_worker

pytestmark = pytest.mark.django_db

ME = actor("view_worker", "view_schedule", "view_payload")
HOUR = timedelta(hours=1)
DAY_MS = 86_400_000


def test_what_is_late_and_what_is_due_next_is_found_among_many() -> None:
    now = timezone.now()
    many = [
        Schedule(name=f"a{number:03}", task="t", cron="0 3 * * *")
        for number in range(600)
    ]
    for number, each in enumerate(many):
        each.next_due_at = now + timedelta(days=30, minutes=number)
    Schedule.objects.bulk_create(many)
    make_schedule("z-late", next_due_at=now - HOUR)
    make_schedule("z-wrong", last_error="no such zone")
    make_schedule("z-idle", next_due_at=now + HOUR, success_within_ms=1)
    spread = spread_of("z-spread", DAY_MS)
    make_schedule("z-spread", next_due_at=now - spread / 2, spread_ms=DAY_MS)
    make_schedule("z-soon", next_due_at=now + HOUR)
    make_schedule("z-paused", enabled=False, next_due_at=now - HOUR)
    make_schedule("z-over", finished_at=now, last_error="was")
    make_schedule("z-new")

    found = queries.get_upcoming(ME, limit=4)

    check(found, documents.UpcomingDocument)
    assert [each["name"] for each in found["late"]] == ["z-wrong", "z-late", "z-idle"]
    expected = ["z-spread", "z-soon", "a000", "a001"]
    assert [each["name"] for each in found["next"]] == expected
    with pytest.raises(ArgumentError, match="from 1 to 100"):
        queries.get_upcoming(ME, limit=101)


def test_all_workers_are_counted_in_one_statement() -> None:
    now = timezone.now()
    gone = {"lease_expires_at": now - HOUR}
    old = make_worker(queues=["mail"], concurrency=3)
    many = [make_worker(name=f"s{number}", state="stopped") for number in range(3)]
    make_worker(state="quiet", concurrency=4)
    make_worker(state="draining")
    make_worker(state="lost", **gone)
    make_worker(state="lost", heartbeat_at=now - 2 * HOUR, **gone)
    make_worker(**gone)  # nobody has taken its jobs back yet
    make_job("running", queue="mail", worker_id=old.pk)

    with CaptureQueriesContext(connection) as captured:
        found = queries.count_workers(ME)

    check(found, documents.WorkerCounts)
    states = {"running": 2, "quiet": 1, "draining": 1, "stopped": len(many), "lost": 2}
    assert found == {
        **{"states": states, "alive": 3, "lost_lately": 2},
        **{"slots": 3 + 4 + 2, "busy": 1},
    }
    assert sum("relay_" in each["sql"] for each in captured) == 1

"""0004_schedule_timetables: rows outlive it, and the release before goes on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import connection

from relay.models import Schedule
from tests.scheduler.factory import fired, set_back, tick

pytestmark = [
    pytest.mark.django_db(transaction=True, available_apps=["relay"]),
    pytest.mark.slow,
]

# As the release before makes a row.
INSERT = """
INSERT INTO relay_schedule (id, name, task, args, cron, seconds, timezone, catch_up,
                            catch_up_window_ms, enabled, source, created_at)
VALUES (gen_random_uuid(), %s, 'elsewhere.run', '{}', '0 * * * *', false, 'UTC',
        'latest', 86400000, true, 'database', now())
"""


def insert(name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(INSERT, [name])


@pytest.fixture(autouse=True)
def _latest() -> Iterator[None]:
    yield
    call_command("migrate", "relay", verbosity=0)


def test_schedules_of_the_release_before_fire_after_it_and_may_go_back() -> None:
    call_command("migrate", "relay", "0003", verbosity=0)
    insert("of before")

    call_command("migrate", "relay", verbosity=0)
    insert("of then")
    tick()
    schedules = list(Schedule.objects.filter(name__startswith="of "))
    for schedule in schedules:
        set_back(schedule, timedelta(hours=1))
    tick()

    assert [schedule.overlap for schedule in schedules] == ["allow", "allow"]
    assert [len(fired(schedule)) for schedule in schedules] == [1, 1]
    call_command("migrate", "relay", "0003", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("SELECT cron FROM relay_schedule WHERE name LIKE 'of %'")
        assert cursor.fetchall() == [("0 * * * *",), ("0 * * * *",)]

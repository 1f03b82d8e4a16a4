"""Schedules in the database: planned, fired once, edited, broken and mended."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.core.exceptions import ValidationError
from django.db import connection as django_connection
from django.db.models import F
from pytest_django import Settings

from relay import Unique, task
from relay.engine import wakeup
from relay.models import Job, Occurrence, Schedule
from relay.scheduler import duty as duty_module
from relay.scheduler import timetable
from relay.scheduler.due import SPREAD
from relay.scheduler.duty import ScheduleDuty
from relay.scheduler.timetable import spread_of
from relay.worker.rota import upcoming
from tests.scheduler.factory import (
    database_now,
    duty_connection,
    fired,
    make,
    set_back,
    tick,
)

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
FIRED = re.compile("schedule (?:fired|caught up)")


def missed(schedule: Schedule) -> list[int]:
    rows = Occurrence.objects.filter(schedule=schedule, state="missed")
    return list(rows.order_by("due_at").values_list("count", flat=True))


def at_once(schedulers: int, rounds: int = 1) -> None:
    """Tick with as many schedulers, each with its own connection, at the same time."""
    barrier = threading.Barrier(schedulers)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with duty_connection() as connection:
                duty = ScheduleDuty()
                for _ in range(rounds):
                    barrier.wait(timeout=60)
                    duty.tick(connection)
        except BaseException as error:
            barrier.abort()
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(schedulers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=90)
    assert not errors


def test_a_new_schedule_is_planned_and_not_run() -> None:
    schedule = make("*/5 * * * *")
    began = database_now()

    tick()

    schedule.refresh_from_db()
    assert schedule.next_due_at is not None
    assert schedule.next_due_at > began
    assert schedule.next_due_at.minute % 5 == 0
    assert fired(schedule) == []


def test_a_due_schedule_makes_a_job_as_its_row_says() -> None:
    schedule = make(
        "0 * * * *",
        task="elsewhere.run",
        queue="mail",
        priority=7,
        args={"args": [1], "kwargs": {"to": "ä"}},
    )
    tick()
    set_back(schedule, HOUR)

    tick()

    job = Job.objects.get(schedule_id=schedule.pk)
    assert (job.task, job.queue, job.priority) == ("elsewhere.run", "mail", 7)
    assert job.args == {"args": [1], "kwargs": {"to": "ä"}}
    assert job.state == "queued"
    assert fired(schedule) == [job.occurrence_at]
    schedule.refresh_from_db()
    assert schedule.last_due_at == job.occurrence_at
    assert schedule.next_due_at == job.occurrence_at + HOUR


@task(
    name="tests.duty.known",
    queue="ops",
    priority=7,
    max_retries=2,
    timeout=timedelta(minutes=2),
    tags=("nightly",),
    unique=Unique(),
)
def known(first: int, second: int) -> None: ...


def test_a_known_task_gives_what_the_row_leaves_open() -> None:
    schedule = make("0 * * * *", task=known.name, args={"args": [1, 2]})
    tick()
    set_back(schedule, HOUR)

    tick()

    job = Job.objects.get(schedule_id=schedule.pk)
    assert (job.queue, job.priority, job.max_retries) == ("ops", 7, 2)
    assert (job.timeout_ms, job.tags) == (120_000, ["nightly"])
    assert job.args == {"args": [1, 2], "kwargs": {}}
    assert job.unique_key is None


def test_workers_are_woken_after_the_commit() -> None:
    schedule = make("0 * * * *", queue="mail")
    tick()
    set_back(schedule, HOUR)

    with duty_connection() as listener:
        listener.execute(f"LISTEN {wakeup.CHANNEL}")
        tick()
        # What earlier tests enqueued into other queues may be heard as well.
        texts = (note.payload for note in listener.notifies(timeout=60))
        heard = next(text for text in texts if text.startswith("mail "))

    wake_up = wakeup.parse(heard)
    assert wake_up is not None
    assert wake_up[:2] == ("mail", 0)
    assert wake_up[2] == Job.objects.get(schedule_id=schedule.pk).ready_seq


def test_schedulers_that_race_fire_each_occurrence_once() -> None:
    schedule = make("* * * * * *", seconds=True, catch_up="all")
    tick()
    began = set_back(schedule, timedelta(seconds=300))

    at_once(6, rounds=8)

    instants = fired(schedule)
    assert len(instants) >= 300
    assert instants[0] - began <= SECOND
    assert instants == [instants[0] + n * SECOND for n in range(len(instants))]
    assert missed(schedule) == []


def test_a_plan_set_back_by_hand_repeats_nothing() -> None:
    schedule = make("* * * * * *", seconds=True, catch_up="all")
    tick()
    set_back(schedule, timedelta(seconds=60))
    tick()
    before = fired(schedule)

    set_back(schedule, timedelta(seconds=30))
    tick()

    assert fired(schedule)[: len(before)] == before
    assert len(set(fired(schedule))) == len(fired(schedule))


def test_a_long_catch_up_is_cut_per_tick_and_keeps_no_other_waiting() -> None:
    long = make("* * * * * *", seconds=True, catch_up="all")
    short = make("0 * * * *")
    duty = tick()
    set_back(long, timedelta(seconds=1200))
    set_back(short, HOUR)

    tick(duty)

    assert len(fired(long)) == 500
    assert len(fired(short)) == 1
    tick(duty)
    tick(duty)
    assert len(fired(long)) >= 1200


def test_a_tick_ends_with_its_budget_and_the_next_one_goes_on_with_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedules = [make("0 * * * *") for _ in range(3)]
    tick()
    for schedule in schedules:
        set_back(schedule, HOUR)
    monkeypatch.setattr(duty_module, "BUDGET_SECONDS", 1.0)
    clock = iter(range(0, 1000, 10))
    duty = ScheduleDuty(monotonic=lambda: next(clock))

    for _ in range(3):
        tick(duty)

    assert [len(fired(schedule)) for schedule in schedules] == [1, 1, 1]


def test_failure_010_three_hours_down_give_one_run() -> None:
    # Twice an hour, and not about now: the schedulers tick within one interval.
    now = database_now()
    minutes = ",".join(str((now.minute + away) % 60) for away in (20, 40))
    schedule = make(f"{minutes} * * * *")
    tick()
    set_back(schedule, 3 * HOUR)

    at_once(3)

    assert len(fired(schedule)) == 1
    assert missed(schedule) == [5]


@pytest.mark.parametrize(
    ("catch_up", "least", "most"), [("none", 0, 1), ("all", 180, 181)]
)
def test_failure_010_the_policy_is_the_schedules(
    catch_up: str, least: int, most: int
) -> None:
    schedule = make("* * * * *", catch_up=catch_up)
    tick()
    set_back(schedule, 3 * HOUR)

    at_once(3)

    assert least <= len(fired(schedule)) <= most
    assert len(fired(schedule)) + sum(missed(schedule)) in (180, 181)


def test_missed_occurrences_are_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    schedule = make("0 * * * *", catch_up_window_ms=0, catch_up="all")
    tick()
    # Ends half an hour before now at the latest, so that nothing is on time.
    minute = (database_now().minute + 30) % 60
    Schedule.objects.filter(pk=schedule.pk).update(cron=f"{minute} * * * *")
    tick()
    set_back(schedule, 5 * HOUR)

    with caplog.at_level(logging.WARNING, "relay.scheduler"):
        tick()

    row = Occurrence.objects.get(schedule=schedule)
    assert (row.state, row.count, row.job_id) == ("missed", 5, None)
    assert row.until_at == row.due_at + 4 * HOUR
    (record,) = caplog.records
    assert record.message == "occurrences missed"
    assert record.__dict__["missed"] == 5


def test_what_is_rolled_back_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    schedule = make("0 * * * *")
    tick()
    set_back(schedule, HOUR)
    with django_connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE relay_job ADD CONSTRAINT no CHECK (false) NOT VALID"
        )
    try:
        with caplog.at_level(logging.INFO, "relay.scheduler"):
            tick()
    finally:
        with django_connection.cursor() as cursor:
            cursor.execute("ALTER TABLE relay_job DROP CONSTRAINT no")

    assert fired(schedule) == []
    assert not FIRED.search(caplog.text)
    with caplog.at_level(logging.INFO, "relay.scheduler"):
        tick()
    assert len(FIRED.findall(caplog.text)) == 1


def test_failure_011_a_gap_of_seven_seconds_loses_no_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    be_slow(monkeypatch, least=7 * SECOND)
    due_at = (database_now() - 7 * SECOND).replace(microsecond=0)
    schedule = make(
        f"{due_at:%S %M %H} * * *", seconds=True, catch_up="none", catch_up_window_ms=0
    )
    tick()
    Schedule.objects.filter(pk=schedule.pk).update(next_due_at=due_at)

    tick()
    tick()

    assert fired(schedule) == [due_at]


def be_slow(monkeypatch: pytest.MonkeyPatch, *, least: timedelta) -> None:
    """Let what is due stay on time though this machine takes long over the test."""
    assert least < timetable.ON_TIME_IF_FREQUENT
    monkeypatch.setattr(timetable, "ON_TIME_IF_FREQUENT", HOUR)


def test_failure_041_an_edit_holds_within_one_tick_and_runs_nothing_at_once() -> None:
    past, future = database_now() - 2 * HOUR, database_now() + 2 * HOUR
    moved = make(f"{future:%M %H} * * *")
    duty = tick()

    Schedule.objects.filter(pk=moved.pk).update(cron=f"{past:%M %H} * * *")
    tick(duty)

    moved.refresh_from_db()
    assert fired(moved) == []
    assert (moved.next_due_at.hour, moved.next_due_at.minute) == (
        past.hour,
        past.minute,
    )
    assert moved.next_due_at > database_now()


def test_failure_041_what_was_disabled_is_not_made_up_for() -> None:
    schedules = [make("* * * * *", catch_up="all") for _ in range(3)]
    duty = tick()
    for schedule in schedules:
        set_back(schedule, 72 * HOUR)

    Schedule.objects.update(enabled=False)
    tick(duty)
    began = database_now()
    Schedule.objects.update(enabled=True)
    tick(duty)

    for schedule in schedules:
        schedule.refresh_from_db()
        assert schedule.next_due_at > began
        assert fired(schedule) == []
        assert missed(schedule) == []


def test_failure_041_a_row_deleted_while_due_harms_nobody() -> None:
    schedule, other = make("0 * * * *"), make("0 * * * *")
    tick()
    set_back(schedule, HOUR)
    set_back(other, HOUR)
    deleted: list[bool] = []

    class Deleting(ScheduleDuty):
        def _is_left_alone(self, schedule_id: Any, xmin: str) -> bool:
            if not deleted:
                deleted.append(True)
                Schedule.objects.filter(pk=schedule.pk).delete()
            return super()._is_left_alone(schedule_id, xmin)

    tick(Deleting())

    assert deleted
    assert not Schedule.objects.filter(pk=schedule.pk).exists()
    assert len(fired(other)) == 1


def test_an_edit_that_keeps_a_due_instant_does_not_lose_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    be_slow(monkeypatch, least=2 * SECOND)
    due_at = database_now().replace(microsecond=0) - 2 * SECOND
    schedule = make(f"{due_at:%S %M %H} * * *", seconds=True)
    tick()
    Schedule.objects.filter(pk=schedule.pk).update(
        next_due_at=due_at, cron=f"{due_at:%S %M} * * * *"
    )

    tick()

    assert fired(schedule) == [due_at]


def test_an_edit_of_arguments_does_not_move_the_plan() -> None:
    schedule = make("0 * * * *")
    tick()
    due_at = set_back(schedule, HOUR)
    Schedule.objects.filter(pk=schedule.pk).update(args={"args": [5]}, queue="mail")

    tick()

    assert len(fired(schedule)) == 1
    assert fired(schedule)[0] >= due_at
    assert Job.objects.get(schedule_id=schedule.pk).args["args"] == [5]


@pytest.mark.parametrize("project", ["Asia/Almaty", "America/Anchorage", "UTC"])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/Bogota"])
def test_failure_064_zones_of_project_and_schedule_do_not_mix(
    settings: Settings, project: str, zone: str
) -> None:
    settings.TIME_ZONE = project
    past = database_now() - timedelta(minutes=20)
    schedule = make(timezone=zone)
    with django_connection.cursor() as cursor:
        cursor.execute(
            "SELECT to_char(%s::timestamptz AT TIME ZONE %s, 'FMMI FMHH24')",
            [past, zone],
        )
        (fields,) = cursor.fetchone()
    Schedule.objects.filter(pk=schedule.pk).update(cron=f"{fields} * * *")

    duty = tick()
    for _ in range(5):
        tick(duty)

    schedule.refresh_from_db()
    assert fired(schedule) == []
    wait = schedule.next_due_at - database_now()
    assert 23 * HOUR < wait < 24 * HOUR


def test_failure_066_a_run_still_queued_stops_no_other() -> None:
    schedules = [make("0 * * * *") for _ in range(11)]
    duty = tick()
    for schedule in schedules:
        set_back(schedule, HOUR)
    tick(duty)
    # The first one's occurrence is there already, its job still queued.
    for schedule in schedules:
        set_back(schedule, HOUR)
    Occurrence.objects.exclude(schedule=schedules[0]).delete()
    Job.objects.exclude(schedule_id=schedules[0].pk).delete()

    tick(duty)

    assert [len(fired(schedule)) for schedule in schedules] == [1] * 11
    assert not Schedule.objects.filter(last_error__isnull=False).exists()
    assert not Schedule.objects.filter(next_due_at__lte=database_now()).exists()


def test_failure_067_a_failed_run_blocks_no_later_one() -> None:
    schedule = make("0 * * * *", catch_up="all")
    tick()
    set_back(schedule, 2 * HOUR)
    tick()
    Job.objects.update(state="failed", finished_at=database_now())
    Occurrence.objects.filter(due_at=max(fired(schedule))).delete()
    Job.objects.filter(occurrence_at=max(fired_jobs(schedule))).delete()
    set_back(schedule, HOUR)

    tick()

    states = Job.objects.order_by("occurrence_at").values_list("state", flat=True)
    assert list(states) == ["failed", "queued"]


def fired_jobs(schedule: Schedule) -> list[Any]:
    return list(
        Job.objects.filter(schedule_id=schedule.pk).values_list(
            "occurrence_at", flat=True
        )
    )


def test_failure_140_a_host_clock_that_jumps_fires_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = make("30 * * * *")
    duty = tick()
    schedule.refresh_from_db()
    planned = schedule.next_due_at
    ahead = HOUR.total_seconds()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + ahead)
    monkeypatch.setattr(time, "time_ns", lambda: int((real() + ahead) * 1e9))
    monkeypatch.setenv("TZ", "Asia/Almaty")
    time.tzset()
    try:
        tick(duty)
        tick()
    finally:
        monkeypatch.undo()
        time.tzset()
    tick(duty)

    schedule.refresh_from_db()
    assert schedule.next_due_at == planned
    assert fired(schedule) == []


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"cron": "61 * * * *"}, "0-59"),
        ({"cron": ""}, "empty"),
        ({"cron": "0 0 30 2 *"}, "never comes"),
        ({"cron": "x" * 100_000}, "at most"),
        ({"timezone": "Mars/Olympus"}, "no IANA time zone"),
        ({"args": ["no", "dict"]}, "form"),
        ({"queue": "no queue"}, "cannot name a queue"),
        ({"catch_up": "some"}, "not known"),
        ({"priority": 1000}, "-100 to 100"),
        ({"task": "x", "catch_up_window_ms": 2**62}, "OverflowError"),
    ],
)
def test_a_broken_row_says_why_and_stops_no_other(
    broken: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    schedule, other = make("0 * * * *"), make("0 * * * *")
    duty = tick()
    Schedule.objects.filter(pk=schedule.pk).update(**broken)
    set_back(schedule, HOUR)
    set_back(other, HOUR)

    tick(duty)
    tick(duty)
    tick()

    schedule.refresh_from_db()
    assert reason in (schedule.last_error or "")
    assert len(fired(other)) == 1
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.message for record in errors] == ["schedule cannot be kept"]


def test_a_mended_row_goes_on_with_the_next_tick() -> None:
    bad_cron, bad_args = make("0 * * * *"), make("0 * * * *")
    duty = tick()
    Schedule.objects.filter(pk=bad_cron.pk).update(cron="nothing")
    Schedule.objects.filter(pk=bad_args.pk).update(args=[])
    set_back(bad_args, HOUR)
    tick(duty)
    assert Schedule.objects.filter(last_error__isnull=False).count() == 2

    Schedule.objects.filter(pk=bad_cron.pk).update(cron="30 * * * *")
    Schedule.objects.filter(pk=bad_args.pk).update(args={})
    tick(duty)

    assert not Schedule.objects.filter(last_error__isnull=False).exists()
    bad_cron.refresh_from_db()
    assert bad_cron.next_due_at.minute == 30
    assert len(fired(bad_args)) == 1


def test_what_failed_for_a_cause_outside_its_row_is_tried_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = make("0 * * * *", timezone="Europe/Berlin")
    now = [0.0]
    duty = ScheduleDuty(monotonic=lambda: now[0])
    load_zone = timetable.load_zone
    monkeypatch.setattr(timetable, "load_zone", lambda name: load_zone("Not/Installed"))
    tick(duty)
    monkeypatch.undo()

    tick(duty)
    schedule.refresh_from_db()
    assert schedule.last_error is not None

    now[0] = 61.0
    tick(duty)
    schedule.refresh_from_db()
    assert schedule.last_error is None
    assert schedule.next_due_at is not None


def test_b17_a_row_that_another_holds_is_left_and_stops_no_other() -> None:
    held, other = make("0 * * * *"), make("0 * * * *")
    tick()
    set_back(held, HOUR)
    set_back(other, HOUR)

    with duty_connection() as editor, editor.transaction():
        editor.execute(
            "UPDATE relay_schedule SET queue = 'mail' WHERE id = %s", (held.pk,)
        )
        tick()
        assert len(fired(other)) == 1
        assert fired(held) == []
    tick()

    assert len(fired(held)) == 1
    assert Job.objects.get(schedule_id=held.pk).queue == "mail"


def test_a_connection_that_ends_raises_and_loses_nothing() -> None:
    schedule = make("0 * * * *")
    duty = tick()
    set_back(schedule, HOUR)
    with duty_connection() as connection:
        with duty_connection() as other:
            other.execute(
                "SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,)
            )
        with pytest.raises(psycopg.OperationalError):
            duty.tick(connection)

    tick(duty)

    assert len(fired(schedule)) == 1


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "* * * * * *"}, "cron"),
        ({"cron": "* * * * *", "seconds": True}, "cron"),
        ({"cron": "R * * * *"}, "cron"),
        ({"timezone": "Europe/Berln"}, "timezone"),
        ({"args": {"a": 1}}, "args"),
        ({"args": {"args": {}}}, "args"),
        ({"queue": "no queue"}, "queue"),
        ({"priority": 101}, "priority"),
        ({"catch_up": "some"}, "catch_up"),
        ({"catch_up_window_ms": -1}, "catch_up_window_ms"),
        ({"catch_up_window_ms": 32 * 86_400_000}, "catch_up_window_ms"),
        ({"catch_up_window_ms": None}, "catch_up_window_ms"),
        ({"name": ""}, "name"),
        ({"task": "a\nb"}, "task"),
    ],
)
def test_what_cannot_be_kept_is_refused_when_saved(
    fields: dict[str, Any], field: str
) -> None:
    schedule = Schedule(
        **{"name": "nightly", "task": "elsewhere.run", "cron": "0 0 * * *"} | fields
    )

    for refuse in (schedule.clean, schedule.save):
        with pytest.raises(ValidationError) as caught:
            refuse()
        assert list(caught.value.message_dict) == [field]
    assert not Schedule.objects.exists()


def test_a_broken_schedule_can_still_be_disabled() -> None:
    schedule = make()
    Schedule.objects.update(cron="nothing")
    schedule.refresh_from_db()

    schedule.enabled = False
    schedule.save(update_fields=["enabled"])
    tick()

    schedule.refresh_from_db()
    assert (schedule.enabled, schedule.next_due_at) == (False, None)


def test_the_plan_is_shown_in_the_database_clock_not_the_sessions() -> None:
    schedule = make("0 12 * * *", timezone="Asia/Tokyo")
    with duty_connection() as connection:
        connection.execute("SET TIME ZONE 'America/Bogota'")
        ScheduleDuty().tick(connection)

    schedule.refresh_from_db()
    assert (schedule.next_due_at.hour, schedule.next_due_at.minute) == (3, 0)


def test_arguments_past_a_float_reach_the_job_unchanged() -> None:
    schedule = make("0 * * * *")
    tick()
    set_back(schedule, HOUR)
    text = '{"args": [12345678901234567890.25], "kwargs": {}}'
    with django_connection.cursor() as cursor:
        cursor.execute("UPDATE relay_schedule SET args = %s::jsonb", [text])

    tick()

    with django_connection.cursor() as cursor:
        cursor.execute("SELECT args::text FROM relay_job")
        assert cursor.fetchone()[0] == text
    assert json.loads(text)["args"]


def test_a_tick_with_nothing_due_writes_nothing() -> None:
    make("0 0 1 1 *")
    make("0 0 1 1 *", enabled=False)
    duty = tick()
    with django_connection.cursor() as cursor:
        cursor.execute("SELECT id, xmin::text FROM relay_schedule ORDER BY id")
        before = cursor.fetchall()

        tick(duty)

        cursor.execute("SELECT id, xmin::text FROM relay_schedule ORDER BY id")
        assert cursor.fetchall() == before
    assert not Schedule.objects.filter(next_due_at__lt=F("created_at")).exists()


# --- when somebody has to look --------------------------------------------------------


def seconds_to_go() -> float | None:
    with duty_connection() as connection:
        [seconds] = upcoming(connection, [ScheduleDuty()])
    return seconds


def test_a_look_knows_when_the_next_schedule_is_due() -> None:
    assert seconds_to_go() is None
    schedule, other = make("0 * * * *"), make("0 * * * *")
    assert seconds_to_go() == 0  # they are new
    tick()
    set_back(schedule, timedelta(seconds=-100))
    set_back(other, timedelta(seconds=-200))

    assert 90 < (seconds_to_go() or 0) < 101


@pytest.mark.parametrize(
    "change", [{"enabled": False}, {"cron": "5 * * * *"}, {"timezone": "Europe/Rome"}]
)
def test_a_look_finds_what_was_edited_and_then_what_comes(
    change: dict[str, object],
) -> None:
    schedule = make("0 0 1 1 *")
    tick()
    assert (seconds_to_go() or 0) > 1

    Schedule.objects.filter(pk=schedule.pk).update(**change)
    assert seconds_to_go() == 0
    tick()

    assert seconds_to_go() != 0


def test_a_look_adds_the_spread_of_each_name_as_firing_does() -> None:
    for number in range(50):
        make("0 * * * *", name=f"nächtlich-{number}", spread_ms=37_000 * number + 1_000)
    make("0 * * * *", name="none")

    with duty_connection() as connection:
        rows = connection.execute(
            f"SELECT name, spread_ms, {SPREAD} FROM relay_schedule"
        ).fetchall()

    assert len(rows) == 51
    assert all(spread == spread_of(name, ms) for name, ms, spread in rows)


def test_a_scheduler_rests_longer_where_no_job_of_a_schedule_is_open() -> None:
    duty = tick()
    assert duty.rest == timedelta(seconds=60)
    schedule = make("0 * * * *")
    tick(duty)
    set_back(schedule, HOUR)

    tick(duty)

    assert duty.rest == timedelta(seconds=5)

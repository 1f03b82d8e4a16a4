"""The relay_scheduler process: stops on signals, outlives outages and kills."""

from __future__ import annotations

import itertools
import logging
import os
import queue
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection as django_connection

from relay.management.commands import relay_scheduler
from relay.models import Occurrence, Schedule
from relay.scheduler import process as module
from relay.scheduler.duty import ScheduleDuty
from relay.scheduler.process import RECONNECT, SchedulerHealth, StopSignal, run
from tests.scale import scaled
from tests.scheduler.factory import (
    database_now,
    duty_connection,
    fired,
    make,
    set_back,
    tick,
)
from tests.waiting import WAIT_SECONDS

SECOND = timedelta(seconds=1)


class CountedStop:
    """Is set after so many waits; remembers them."""

    def __init__(self, waits: int) -> None:
        self.waits = waits
        self.waited: list[float] = []

    @property
    def is_set(self) -> bool:
        return len(self.waited) >= self.waits

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)


def refuse() -> psycopg.Connection[Any]:
    raise psycopg.OperationalError("connection refused")


def test_failure_063_waits_for_the_database_never_pass_their_cap() -> None:
    stop = CountedStop(2_100)

    run("default", stop, connecting=refuse)

    assert all(0 <= seconds <= 4 for seconds in stop.waited)
    assert max(stop.waited[60:]) > 2
    assert RECONNECT.limit(2_000) == timedelta(seconds=4)


def test_b11_a_long_outage_is_reported_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = itertools.count(0, 5)

    with caplog.at_level(logging.WARNING, "relay.scheduler"):
        run(
            "default",
            CountedStop(240),
            connecting=refuse,
            monotonic=lambda: float(next(clock)),
        )

    reports = [record for record in caplog.records if "trying again" in record.message]
    assert 15 <= len(reports) <= 22


@pytest.mark.parametrize(
    ("error", "said", "is_traced"),
    [
        (psycopg.OperationalError("connection refused"), "connection refused", False),
        (
            psycopg.errors.UndefinedTable("no relay_schedule"),
            "manage.py migrate",
            False,
        ),
        (ValueError("a mistake"), "a mistake", True),
    ],
)
def test_a_report_has_the_reason_and_a_traceback_for_mistakes_only(
    caplog: pytest.LogCaptureFixture, error: Exception, said: str, is_traced: bool
) -> None:
    def failing() -> psycopg.Connection[Any]:
        raise error

    run("default", CountedStop(1), connecting=failing)

    (report,) = [r for r in caplog.records if "trying again" in r.message]
    assert said in report.message
    assert bool(report.exc_info) is is_traced


@pytest.mark.django_db(transaction=True)
def test_the_loop_connects_anew_when_its_connection_ends() -> None:
    schedule = make("0 * * * *")
    tick()
    set_back(schedule, timedelta(hours=1))
    made: list[psycopg.Connection[Any]] = []

    with duty_connection() as first, duty_connection() as second:
        first.close()
        both = iter([first, second])

        def connecting() -> psycopg.Connection[Any]:
            made.append(next(both))
            return made[-1]

        run("default", CountedStop(2), connecting=connecting)

    assert made == [first, second]
    assert len(fired(schedule)) == 1


def test_the_signal_of_somebody_else_ends_one_wait_and_no_later_one() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        with StopSignal() as stop:
            os.kill(os.getpid(), signal.SIGUSR1)
            stop.wait(30)
            left, _, _ = select.select([stop._reader], [], [], 0)
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert heard == [signal.SIGUSR1]
    assert left == []
    assert not stop.is_set


def test_an_error_of_the_duty_ends_no_loop() -> None:
    class Failing(ScheduleDuty):
        ticks = 0

        def tick(self, connection: psycopg.Connection[Any]) -> None:
            Failing.ticks += 1
            raise ValueError("a mistake")

    class Unused:
        def close(self) -> None:
            pass

    run("default", CountedStop(3), duty=Failing(), connecting=lambda: Unused())  # type: ignore[arg-type, return-value] # closed, and no more

    assert Failing.ticks == 3


@contextmanager
def scheduler(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a real relay_scheduler on the tests' database, and wait until it runs."""
    name = django_connection.settings_dict["NAME"]
    process = subprocess.Popen(
        [sys.executable, "-m", "testproject", "relay_scheduler", *arguments],
        env=os.environ | {"RELAY_TEST_DATABASE": name, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=WAIT_SECONDS)
        process.stdout.close()


def wait_until_it_runs(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        if "firing the schedules" in line:
            return
        said.append(line)
    raise AssertionError(f"the scheduler has ended: {''.join(said)}")


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Look until the condition holds; the process's own pace is the pause."""
    ends_at = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < ends_at, "did not come true"
        assert process.poll() is None, f"it has ended with {process.returncode}"
        beat(process, 0.05)


def beat(process: subprocess.Popen[str], seconds: float) -> None:
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_with_0(number: signal.Signals) -> None:
    schedule = make("* * * * * *", seconds=True)
    with scheduler() as process:
        wait_until_it_runs(process)
        wait_for(lambda: len(fired(schedule)) >= 2, process)

        process.send_signal(number)

        assert process.wait(timeout=WAIT_SECONDS) == 0


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_the_process_outlives_the_end_of_its_connection() -> None:
    schedule = make("* * * * * *", seconds=True, catch_up="all")
    with scheduler() as process:
        wait_until_it_runs(process)
        for _ in range(3):
            before = len(fired(schedule))
            with django_connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'relay scheduler' "
                    "AND datname = current_database()"
                )
            wait_for(lambda: len(fired(schedule)) >= before + 2, process)  # noqa: B023 - called at once

        process.terminate()
        assert process.wait(timeout=WAIT_SECONDS) == 0

    check_every_second(schedule)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_an_edit_takes_effect_on_whichever_scheduler_is_left() -> None:
    schedule = make("0 0 1 1 *")

    def is_planned_for(minute: int) -> bool:
        schedule.refresh_from_db()
        due_at = schedule.next_due_at
        return due_at is not None and due_at.minute == minute

    with scheduler() as first, scheduler() as second:
        wait_until_it_runs(first)
        wait_until_it_runs(second)
        wait_for(lambda: is_planned_for(0), first)
        # Each way of editing, each seen by the other scheduler as well.
        Schedule.objects.filter(pk=schedule.pk).update(cron="17 0 1 1 *")
        wait_for(lambda: is_planned_for(17), first)
        first.kill()
        schedule.cron = "29 0 1 1 *"
        schedule.save(update_fields=["cron"])
        wait_for(lambda: is_planned_for(29), second)

        Schedule.objects.filter(pk=schedule.pk).update(enabled=False)
        wait_for(lambda: not is_planned_for(29), second)

    assert fired(schedule) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.django_db(transaction=True)
def test_two_schedulers_killed_all_the_time_fire_each_second_once() -> None:
    """A minute of a one-second schedule; 20 s at the tests' usual scale."""
    duration_seconds = scaled(60, least=20)
    schedule = make("* * * * * *", seconds=True, catch_up="all")
    tick()
    rng = random.Random(7)
    kills = 0
    began = database_now()
    while (database_now() - began).total_seconds() < duration_seconds or kills < 6:
        with scheduler() as first, scheduler() as second:
            wait_until_it_runs(first)
            wait_until_it_runs(second)
            beat(first, rng.uniform(0.2, 3))
            first.send_signal(signal.SIGKILL)
            beat(second, rng.uniform(0, 0.3))
            second.send_signal(signal.SIGKILL)
            kills += 2
    tick()

    instants = check_every_second(schedule)
    assert len(instants) >= duration_seconds - 1
    assert instants[-1] - instants[0] >= timedelta(seconds=duration_seconds - 2)


def check_every_second(schedule: Schedule) -> list[Any]:
    instants = fired(schedule)
    assert instants == [instants[0] + n * SECOND for n in range(len(instants))]
    assert not Occurrence.objects.filter(schedule=schedule, state="missed").exists()
    return instants


def test_a_scheduler_is_ready_once_it_fires_and_not_while_it_cannot() -> None:
    health = SchedulerHealth("default")
    before = health.wants()

    health.tick()
    ready = health.wants()
    health.tick("the database is away")

    assert before == ["has not looked yet"]
    assert ready == []
    assert health.wants() == ["the database is away"]
    assert health.ills() == []


def test_a_scheduler_whose_loop_stands_still_is_to_be_restarted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "STALL_SECONDS", -1.0)

    [reason] = SchedulerHealth("default").ills()

    assert reason.startswith("the loop has not gone round")


@pytest.mark.django_db
@pytest.mark.django_db
def test_the_command_has_the_system_checks_made_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked: queue.Queue[str] = queue.Queue()
    firing: list[str] = []
    monkeypatch.setattr(relay_scheduler, "log_findings", checked.put)
    monkeypatch.setattr(
        relay_scheduler, "run", lambda alias, *_, **__: firing.append(alias)
    )

    call_command("relay_scheduler", verbosity=0, stdout=StringIO())

    assert checked.get(timeout=WAIT_SECONDS) == "default"
    assert firing == ["default"]

"""Schedules declared in code, and their rows."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from relay import ScheduleError, Task, cron, every, once, task
from relay.models import Job, Schedule
from relay.scheduler import registry
from relay.scheduler.registry import SyncCounts, sync_declared
from tests.scheduler.factory import fired, set_back, tick


@pytest.fixture(autouse=True)
def _own_declarations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_declared", {})


@pytest.fixture
def report() -> Task[..., Any]:
    return task(name="tests.scheduler.report")(_report)


def _report(day: str = "today", *, copies: int = 1) -> str:
    return f"{day} {copies}"


AT = datetime(2026, 12, 24, 9, tzinfo=UTC)
DAY = timedelta(days=1)


def forget() -> None:
    registry._declared.clear()


def test_a_declaration_gives_the_task_back(report: Task[..., Any]) -> None:
    assert cron("0 7 * * 1-5", timezone="Europe/Rome")(report) is report

    declared = registry.declared()["tests.scheduler.report"]
    assert (declared.cron, declared.timezone) == ("0 7 * * 1-5", "Europe/Rome")
    assert declared.args == '{"args":[],"kwargs":{}}'


@pytest.mark.parametrize(
    ("expression", "options", "reason"),
    [
        ("61 * * * *", {}, "0-59"),
        ("* * * * * *", {}, "seconds=True"),
        ("0 0 * * *", {"timezone": "Nowhere"}, "time zone"),
        ("0 0 * * *", {"catch_up": "some"}, "not known"),
        ("0 0 * * *", {"catch_up_window": timedelta(days=32)}, "window"),
        ("0 0 * * *", {"queue": "no queue"}, "queue"),
        ("0 0 * * *", {"priority": 101}, "priority"),
        ("0 0 * * *", {"name": ""}, "give a name"),
        ("0 0 * * *", {"name": "a\x00b"}, "give a name"),
        ("0 0 * * *", {"name": "x" * 201}, "give a name"),
        ("0 0 * * *", {"name": "preview"}, "no address leads to the name 'preview'"),
        ("0 0 * * *", {"name": "mail/next"}, "no address leads"),
        ("0 0 * * *", {"name": "mail/edit"}, "no address leads"),
        ("0 0 * * *", {"name": "mail//all"}, "no address leads"),
        ("0 0 * * *", {"overlap": "maybe"}, "not known"),
        ("0 0 * * *", {"exclude": ["someday"]}, "excludes nothing"),
        ("0 0 * * *", {"exclude": [AT]}, "excludes no date"),
        ("0 0 * * *", {"starts_at": AT.replace(tzinfo=None)}, "no time zone"),
        ("0 0 * * *", {"starts_at": AT, "ends_at": AT - DAY}, "ends before"),
        ("0 0 * * *", {"spread": timedelta(days=2)}, "spread"),
        ("0 0 * * *", {"success_within": timedelta(0)}, "success within"),
        ("0 0 * * *", {"args": [1, 2]}, "do not fit"),
        ("0 0 * * *", {"kwargs": {"pages": 2}}, "do not fit"),
        ("0 0 * * *", {"args": [object()]}, "do not fit"),
        (
            "0 0 * * *",
            {"overlapp": "skip"},
            r"overlapp \(did you mean overlap\?\)",
        ),
        ("0 0 * * *", {"spread": 5}, "spread=5: give a timedelta"),
        ("0 0 * * *", {"success_within": 5}, "success_within=5: give a timedelta"),
        ("0 0 * * *", {"catch_up_window": None}, "catch_up_window=None: give"),
        ("0 0 * * *", {"timezone": UTC}, "timezone=.*give the name"),
        ("0 0 * * *", {"ends_at": "2026-06-01"}, "ends_at='2026-06-01': give"),
        ("0 0 * * *", {"exclude": "2026-12-25"}, "exclude='2026-12-25': give a list"),
        ("0 0 * * *", {"exclude": [5]}, "5 excludes nothing"),
        ("0 0 * * *", {"args": "ab"}, "args='ab': give a list"),
        ("0 0 * * *", {"kwargs": ["a"]}, "kwargs=.*give a dict"),
        ("0 0 * * *", {"name": 5}, "name=5: give a text"),
        ("0 0 * * *", {"enabled": "no"}, "enabled='no': give True or False"),
        ("0 0 * * *", {"seconds": "no"}, "seconds='no': give True or False"),
        (None, {}, "expression=None: give a text"),
    ],
)
def test_what_cannot_be_kept_is_refused_at_once(
    expression: Any, options: dict[str, Any], reason: str, report: Task[..., Any]
) -> None:
    with pytest.raises(ScheduleError, match=reason):
        cron(expression, **options)(report)

    assert not registry.declared()


@pytest.mark.parametrize(
    ("decorator", "reason"),
    [
        (lambda: every(timedelta(milliseconds=1_500)), "whole seconds"),
        (lambda: every(timedelta(days=400)), "366 days"),
        (lambda: every(300), "interval=300: give a timedelta"),
        (
            lambda: every(DAY, timzone="UTC"),
            r"@every has no option timzone \(did you mean timezone",
        ),
        (lambda: once(AT.replace(tzinfo=None)), "no time zone"),
        (lambda: once("2026-06-01"), "at='2026-06-01': give an aware datetime"),
        (lambda: once(AT, timzone="UTC"), "@once has no option timzone"),
    ],
)
def test_an_interval_or_instant_that_cannot_be_kept_is_refused(
    decorator: Any, reason: str
) -> None:
    with pytest.raises(ScheduleError, match=reason):
        decorator()


@pytest.mark.django_db
def test_all_that_a_declaration_says_is_in_its_row(report: Task[..., Any]) -> None:
    every(
        timedelta(minutes=90),
        name="often",
        timezone="Europe/Rome",
        starts_at=AT,
        ends_at=AT + DAY,
        exclude=[date(2026, 12, 25), "* 22-23 * * *"],
        spread=timedelta(minutes=10),
        overlap="queue",
        success_within=DAY,
    )(report)
    once(AT, name="eve")(report)

    assert sync_declared() == SyncCounts(2, 0, 0, 0, 0)
    assert sync_declared() == SyncCounts(0, 0, 2, 0, 0)

    row = Schedule.objects.get(name="often")
    assert (row.cron, row.every_ms, row.once_at) == ("", 5_400_000, None)
    assert (row.starts_at, row.ends_at) == (AT, AT + DAY)
    assert row.excluded == "2026-12-25\n* 22-23 * * *"
    assert (row.spread_ms, row.overlap) == (600_000, "queue")
    assert row.success_within_ms == 86_400_000
    eve = Schedule.objects.get(name="eve")
    assert (eve.cron, eve.every_ms, eve.once_at) == ("", None, AT)


def test_the_decorators_the_wrong_way_round_are_refused() -> None:
    with pytest.raises(ScheduleError, match="above @task"):
        cron("0 0 * * *")(_report)  # type: ignore[type-var] # the mistake under test


def test_a_task_whose_name_can_be_no_schedules_asks_for_another() -> None:
    reached_by_none = task(name="tests.scheduler/pause")(_report)

    with pytest.raises(ScheduleError, match="no address leads to the name"):
        cron("0 7 * * *")(reached_by_none)
    cron("0 7 * * *", name="report")(reached_by_none)

    assert set(registry.declared()) == {"report"}


def test_several_schedules_of_a_task_need_names(report: Task[..., Any]) -> None:
    cron("0 7 * * *")(report)
    cron("0 7 * * *")(report)
    with pytest.raises(ScheduleError, match="give this one another"):
        cron("0 8 * * *")(report)
    cron("0 8 * * *", name="second report")(report)

    assert set(registry.declared()) == {"tests.scheduler.report", "second report"}


def test_a_module_imported_again_replaces_its_declarations(
    report: Task[..., Any],
) -> None:
    cron("0 7 * * *")(report)
    again = Task(_report, name="tests.scheduler.report")

    cron("0 8 * * *")(again)

    assert registry.declared()["tests.scheduler.report"].cron == "0 8 * * *"


@pytest.mark.django_db
def test_a_sync_makes_changes_and_retires_rows(report: Task[..., Any]) -> None:
    cron("0 7 * * *", args=["mon"], kwargs={"copies": 2}, queue="mail")(report)
    cron("0 8 * * *", name="second", enabled=False)(report)
    assert sync_declared() == SyncCounts(2, 0, 0, 0, 0)
    assert sync_declared() == SyncCounts(0, 0, 2, 0, 0)

    forget()
    cron("0 9 * * *", timezone="Europe/Rome")(report)
    assert sync_declared() == SyncCounts(0, 1, 0, 0, 0)

    row = Schedule.objects.get(name="tests.scheduler.report")
    assert (row.cron, row.timezone, row.queue) == ("0 9 * * *", "Europe/Rome", None)
    assert row.args == {"args": [], "kwargs": {}}
    assert (row.source, row.enabled) == ("code", True)
    forget()
    assert sync_declared() == SyncCounts(0, 0, 0, 1, 0)
    row.refresh_from_db()
    assert not row.enabled
    assert Schedule.objects.count() == 2


@pytest.mark.django_db
def test_what_is_declared_again_is_enabled_again(report: Task[..., Any]) -> None:
    cron("0 7 * * *")(report)
    sync_declared()
    forget()
    sync_declared()

    cron("0 7 * * *")(report)
    assert sync_declared() == SyncCounts(0, 1, 0, 0, 0)

    assert Schedule.objects.get().enabled


@pytest.mark.django_db
def test_an_operators_pause_outlives_syncs(report: Task[..., Any]) -> None:
    cron("0 7 * * *")(report)
    sync_declared()
    Schedule.objects.update(enabled=False)

    sync_declared()
    forget()
    sync_declared()
    cron("0 8 * * *")(report)
    sync_declared()

    row = Schedule.objects.get()
    assert (row.cron, row.enabled) == ("0 8 * * *", False)


@pytest.mark.django_db
def test_a_row_made_in_the_database_is_never_taken_over(
    report: Task[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    Schedule.objects.create(
        name="tests.scheduler.report", task="elsewhere.run", cron="0 0 * * *"
    )
    cron("0 7 * * *")(report)

    assert sync_declared() == SyncCounts(0, 0, 0, 0, 1)

    assert Schedule.objects.get().task == "elsewhere.run"
    assert "taken in the database" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_migrate_syncs_and_a_declared_schedule_runs(report: Task[..., Any]) -> None:
    cron("0 * * * *", args=["mon"])(report)
    call_command("migrate", verbosity=0)
    schedule = Schedule.objects.get()
    tick()
    set_back(schedule, timedelta(hours=1))

    tick()

    assert len(fired(schedule)) == 1
    assert Job.objects.get().args == {"args": ["mon"], "kwargs": {}}


@pytest.mark.django_db
def test_the_command_syncs_and_says_so(report: Task[..., Any]) -> None:
    cron("0 * * * *")(report)
    said = StringIO()

    call_command("relay_scheduler", "--sync", stdout=said)

    assert "1 created, 0 updated" in said.getvalue()
    assert Schedule.objects.filter(name=report.name).exists()


def test_the_command_refuses_an_unknown_alias() -> None:
    with pytest.raises(CommandError, match="no such alias"):
        call_command("relay_scheduler", "--database", "elsewhere")


def test_importing_cron_loads_no_models() -> None:
    code = (
        "import sys; from relay import cron, task; "
        "sys.exit('relay.models' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

"""System checks that ask the database, which they do only where it is named."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import Any

import pytest
from django.core.checks import CheckMessage, Tags, run_checks
from django.db import DatabaseError, connection, connections
from django.utils import timezone

from relay import every, task
from relay.checks import TAG
from relay.models import Queue, Schedule
from relay.scheduler import registry

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nothing_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other modules declare, these tests begin with nothing."""
    monkeypatch.setattr(registry, "_declared", {})


def found(number: str) -> list[CheckMessage]:
    return [
        message
        for message in run_checks(databases=["default"])
        if message.id == f"relay.{number}"
    ]


def only(number: str) -> CheckMessage:
    [message] = found(number)
    return message


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def make_schedule(**fields: Any) -> Schedule:
    return Schedule.objects.create(
        **{"name": "report", "task": "checks.known", "cron": "* * * * *", **fields}
    )


@task(name="checks.known")
def known() -> None: ...


def test_a_sound_database_has_nothing_to_report() -> None:
    make_schedule()

    assert run_checks(tags=[Tags.database], databases=["default"]) == []


def test_failure_107_nothing_is_asked_of_a_database_that_is_not_named() -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("the database was asked")

    with connection.execute_wrapper(refuse):
        run_checks()
        run_checks(tags=[TAG])
        with pytest.raises(AssertionError):
            run_checks(databases=["default"])


def test_e001_names_a_server_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["default"], "pg_version", 140_012)

    assert "PostgreSQL 14; relay needs 15 or newer" in only("E001").msg


def test_w010_names_migrations_that_are_not_applied() -> None:
    execute("DELETE FROM django_migrations WHERE app = 'relay'")

    message = only("W010")

    assert "0001_initial" in message.msg
    assert str(message.hint).startswith("Run manage.py migrate.")


def test_w010_is_silent_about_migrations_while_migrate_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["manage.py", "migrate"])
    execute("DELETE FROM django_migrations WHERE app = 'relay'")
    execute("DROP TABLE relay_schedule, relay_queue CASCADE")

    assert run_checks(tags=[Tags.database], databases=["default"]) == []


@pytest.mark.parametrize("index", ["relay_job_due_idx", "relay_job_unique_idx"])
def test_w010_names_an_index_that_is_missing(index: str) -> None:
    execute(f"DROP INDEX {index}")

    assert f"{index} of relay_job is missing" in only("W010").msg


def test_w010_names_a_constraint_that_is_missing() -> None:
    execute("ALTER TABLE relay_step DROP CONSTRAINT relay_step_name_idx")

    assert "relay_step_name_idx of relay_step is missing" in only("W010").msg


def test_b13_w010_names_an_index_that_is_invalid() -> None:
    try:
        execute(
            "UPDATE pg_index SET indisvalid = false "
            "WHERE indexrelid = 'relay_job_due_idx'::regclass"
        )
    except DatabaseError:
        pytest.skip("only a superuser may write the catalogue")

    message = only("W010")

    assert "relay_job_due_idx of relay_job is invalid" in message.msg
    assert "REINDEX INDEX CONCURRENTLY relay_job_due_idx" in str(message.hint)


def test_b13_w010_names_what_a_reindex_that_failed_has_left() -> None:
    execute("CREATE INDEX relay_job_due_idx_ccnew1 ON relay_job (run_at)")
    assert found("W010") == []
    try:
        execute(
            "UPDATE pg_index SET indisvalid = false "
            "WHERE indexrelid = 'relay_job_due_idx_ccnew1'::regclass"
        )
    except DatabaseError:
        pytest.skip("only a superuser may write the catalogue")

    message = only("W010")

    assert "relay_job_due_idx_ccnew1 of relay_job is invalid" in message.msg
    assert "DROP INDEX CONCURRENTLY relay_job_due_idx_ccnew1" in str(message.hint)


def test_w010_names_autovacuum_that_is_off_for_the_jobs() -> None:
    execute("ALTER TABLE relay_job SET (autovacuum_enabled = off)")

    assert "autovacuum is off for relay_job" in only("W010").msg


@pytest.mark.parametrize(
    ("ahead", "text"), [(-3600, "3600.0 s ahead of"), (10, "10.0 s behind")]
)
def test_w010_names_clocks_that_differ(
    monkeypatch: pytest.MonkeyPatch, ahead: float, text: str
) -> None:
    now = time.time
    monkeypatch.setattr("relay.queries.soundness.time.time", lambda: now() + ahead)

    assert text in only("W010").msg


def test_w012_names_a_row_that_cannot_be_kept() -> None:
    row = make_schedule()
    Schedule.objects.filter(pk=row.pk).update(cron="61 * * * *", timezone="Mars/Base")

    message = only("W012")

    assert "'report' cannot be kept: cron: " in message.msg
    assert "timezone: " in message.msg


def test_w012_names_a_row_of_a_task_that_is_not_registered() -> None:
    make_schedule(task="checks.gone")

    assert "names the task 'checks.gone'" in only("W012").msg


def test_w012_leaves_alone_what_is_disabled_or_owned_by_the_code() -> None:
    make_schedule(name="off", task="checks.gone", enabled=False)
    make_schedule(name="declared", task="checks.gone", source="code")

    assert found("W012") == []


def test_w003_names_a_row_whose_queue_nothing_knows() -> None:
    make_schedule(queue="mial")

    assert "the queue 'mial'" in only("W003").msg
    Queue.objects.create(name="mial")
    assert found("W003") == []


def test_w013_names_a_schedule_that_nobody_fires() -> None:
    row = make_schedule()
    Schedule.objects.filter(pk=row.pk).update(
        next_due_at=timezone.now() - timedelta(hours=1)
    )

    assert "'report' is late by 1:00:" in only("W013").msg


def test_w013_names_a_schedule_that_does_not_succeed() -> None:
    row = make_schedule(success_within_ms=3_600_000)
    Schedule.objects.filter(pk=row.pk).update(
        created_at=timezone.now() - timedelta(hours=2)
    )

    message = only("W013")

    assert "no job of the schedule 'report' has completed for 2:00:" in message.msg
    assert "success_within=1:00:00" in message.msg


def test_w017_names_a_schedule_that_the_database_has_otherwise_or_not() -> None:
    every(timedelta(minutes=5), name="due")(known)

    assert "'due'" in only("W017").msg
    registry.sync_declared()
    assert found("W017") == []
    Schedule.objects.filter(name="due").update(every_ms=60_000)
    assert "'due'" in only("W017").msg


def test_w017_says_nothing_while_migrate_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    every(timedelta(minutes=5), name="due")(known)
    monkeypatch.setattr(sys, "argv", ["manage.py", "migrate"])

    assert found("W017") == []

"""System checks that ask the database, which they do only where it is named."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from threading import Thread
from typing import Any

import pytest
from django.core.checks import CheckMessage, Tags, run_checks
from django.db import DatabaseError, OperationalError, connection, connections
from django.db.backends.signals import connection_created
from django.test import override_settings
from django.utils import timezone

from relay import every, task, tasks
from relay.checks import TAG
from relay.checks.at_start import log_findings
from relay.exceptions import ReadTimeout
from relay.models import Queue, Schedule, Worker
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


def make_worker(*queues: str, state: str = "running", alive: bool = True) -> None:
    lease = timedelta(minutes=1 if alive else -1)
    Worker.objects.create(
        name="w",
        host="h",
        pid=1,
        queues=list(queues),
        concurrency=1,
        version="0",
        state=state,
        lease_expires_at=timezone.now() + lease,
    )


@pytest.fixture
def two_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only tasks are two of "mail" and one of "default"."""
    own = {"checks.known": known}
    monkeypatch.setattr(tasks, "_tasks", own)
    for name in ("checks.one", "checks.two"):
        task(name=name, queue="mail")(lambda: None)


@pytest.mark.usefixtures("two_queues")
def test_w003_names_a_tasks_queue_that_no_worker_serves() -> None:
    assert found("W003") == []  # before the first worker
    make_worker("default")
    make_worker("mail", alive=False)
    make_worker("mail", state="stopped")

    message = only("W003")

    assert "'checks.one' and 1 more puts jobs into the queue 'mail'" in message.msg
    assert "docs/howto/queues.md#" in str(message.hint)
    make_worker("mail", state="quiet")
    assert found("W003") == []


# --- as a worker or scheduler starts -------------------------------------------------


def checked(alias: str = "default") -> list[Any]:
    """Run the checks as a start does, in a thread; return the connections it made."""
    made: list[Any] = []

    def note(connection: Any, **_: object) -> None:
        made.append(connection)

    connection_created.connect(note)
    thread = Thread(target=log_findings, args=(alias,))
    thread.start()
    thread.join()
    connection_created.disconnect(note)
    return made


@pytest.mark.django_db(transaction=True)
def test_a_start_logs_what_lasts_over_one_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = time.time
    monkeypatch.setattr("relay.queries.soundness.time.time", lambda: now() + 60)
    late = make_schedule(name="late")
    Schedule.objects.filter(pk=late.pk).update(
        next_due_at=timezone.now() - timedelta(hours=1)
    )
    make_schedule(name="odd", task="checks.unknown")
    make_worker("nothing")

    with override_settings(RELAY={"TEST_MODE": "manual"}):
        [used] = checked()

    lines = {line.check: line for line in caplog.records if hasattr(line, "check")}
    # Neither what is late, as who starts will see to it, nor which queues are served.
    assert sorted(lines) == ["relay.W009", "relay.W010", "relay.W012"]
    assert {line.levelname for line in lines.values()} == {"WARNING"}
    assert "60.0 s behind" in lines["relay.W010"].getMessage()
    assert used.connection is None


@pytest.mark.django_db(transaction=True)
def test_a_start_logs_nothing_where_all_is_well_or_silenced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    checked()
    monkeypatch.setattr("relay.queries.soundness.SKEW_SECONDS", -1.0)
    with override_settings(SILENCED_SYSTEM_CHECKS=["relay.W010"]):
        checked()

    assert [line for line in caplog.records if line.name == "relay.checks"] == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("error", [OperationalError("away"), ReadTimeout(2)])
def test_a_start_does_not_fail_with_its_checks(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("relay.checks.at_start.find_lasting", fail)
    caplog.set_level("INFO", "relay.checks")

    checked()

    [line] = [each for each in caplog.records if each.name == "relay.checks"]
    assert (line.levelname, line.event) == ("INFO", "checks.not_made")  # type: ignore[attr-defined] # extra


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

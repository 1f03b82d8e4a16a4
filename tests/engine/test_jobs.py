"""Acts on many jobs, by what they have in common."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, connections, transaction

from relay import (
    ArgumentError,
    JobsReport,
    RelayError,
    Unique,
    acancel_jobs,
    aretry_jobs,
    cancel_jobs,
    enqueue_many,
    jobs,
    retry_jobs,
    task,
)
from relay.engine import control
from relay.engine.connection import EngineConnection
from relay.ids import uuid7
from relay.models import History, Job
from tests.engine import rows

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])

NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)


@task(name="tests.jobs.mail", queue="mail", tags=("newsletter",))
def mail(number: int = 0) -> None: ...


@task(name="tests.jobs.other")
def other(number: int = 0) -> None: ...


def make(state: str, **values: Any) -> UUID:
    if state == "running":
        values.setdefault("worker_id", uuid7())
    if state in ("failed", "cancelled", "completed"):
        values.setdefault("finished_at", NOW)
    values = {"task": "tests.jobs.mail", "queue": "mail", **values}
    made: UUID = Job.objects.create(state=state, **values).pk
    return made


def states() -> dict[str, int]:
    found: dict[str, int] = {}
    for state in Job.objects.values_list("state", flat=True):
        found[state] = found.get(state, 0) + 1
    return found


def test_jobs_that_have_not_started_are_cancelled_and_running_ones_asked() -> None:
    for state in ("scheduled", "retrying", "queued", "running", "failed", "completed"):
        make(state)
        make(state, queue="default")

    report = cancel_jobs(queue="mail", actor="ada")

    assert report == JobsReport(found=4, done=3, asked=1)
    assert states() == {
        "cancelled": 3,
        **{"scheduled": 1, "retrying": 1, "queued": 1, "running": 2},
        **{"failed": 2, "completed": 2},
    }
    asked = Job.objects.get(state="running", queue="mail")
    assert asked.cancel_requested_at is not None
    assert set(History.objects.values_list("event", "actor")) == {
        ("cancel", "ada"),
        ("cancel_request", "ada"),
    }
    assert cancel_jobs(queue="mail") == JobsReport(found=0)


@pytest.mark.parametrize(
    "which",
    [
        {"queue": "mail"},
        {"task": mail},
        {"task": "tests.jobs.mail"},
        {"tag": "newsletter"},
        {"created_after": NOW - HOUR, "queue": "mail"},
        {"task": mail, "queue": "mail", "tag": "newsletter", "state": "queued"},
    ],
    ids=["queue", "task", "name", "tag", "time", "all"],
)
def test_a_filter_finds_what_it_says(which: Any) -> None:
    enqueue_many([mail.job(1), other.job(2)])
    make("queued", queue="default", tags=["newsletters"], task="a")

    assert cancel_jobs(**which) == JobsReport(found=1, done=1)
    assert Job.objects.get(state="cancelled").task == "tests.jobs.mail"


def test_times_take_their_beginning_and_not_their_end() -> None:
    for hours in range(4):
        at = NOW - hours * HOUR
        make("failed", finished_at=at, created_at=at - HOUR, error_class=f"E{hours}")

    found = retry_jobs(finished_after=NOW - 2 * HOUR, finished_before=NOW)
    assert (found.found, found.done) == (2, 2)
    assert set(Job.objects.filter(state="queued").values_list("error_class")) == {
        ("E1",),
        ("E2",),
    }
    found = retry_jobs(created_before=NOW - 3 * HOUR)
    assert found.done == 1


def test_failed_jobs_are_retried_by_their_error_and_cancelled_ones_if_asked() -> None:
    make("failed", error_class="ConnectionError")
    make("failed", error_class="ValueError")
    make("cancelled", error_class="ConnectionError")

    assert retry_jobs(error_class="ConnectionError").done == 1
    assert states() == {"queued": 1, "failed": 1, "cancelled": 1}
    assert retry_jobs(state="cancelled").done == 1


def test_a_dry_run_counts_up_to_a_cap_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    enqueue_many([mail.job(number) for number in range(10)])
    mail.using(run_in=HOUR).enqueue()

    assert cancel_jobs(queue="mail", dry_run=True) == JobsReport(found=11)
    capped = cancel_jobs(queue="mail", dry_run=True, limit=3)
    assert capped == JobsReport(found=3, is_capped=True)
    monkeypatch.setattr(jobs, "COUNT_LIMIT", 5)
    assert cancel_jobs(queue="mail", dry_run=True).is_capped
    assert states() == {"queued": 10, "scheduled": 1}


def test_a_limit_ends_it_and_it_goes_on_when_called_again() -> None:
    enqueue_many([mail.job(number) for number in range(10)])
    make("running")

    first = cancel_jobs(queue="mail", limit=4)
    second = cancel_jobs(queue="mail", limit=4)
    third = cancel_jobs(queue="mail", limit=4)

    assert first == second == JobsReport(found=4, done=4, is_capped=True)
    assert third == JobsReport(found=3, done=2, asked=1)
    assert cancel_jobs(queue="mail") == JobsReport(found=0)


@pytest.mark.parametrize("act", ["cancel", "retry"])
def test_parts_and_pages_leave_nothing_out(
    act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "PAGE", 10)
    monkeypatch.setattr(jobs, "CHUNK", 3)
    enqueue_many([mail.job(number) for number in range(35)])
    if act == "retry":
        Job.objects.update(state="failed", finished_at=NOW)
        assert retry_jobs(queue="mail") == JobsReport(found=35, done=35)
        assert states() == {"queued": 35}
    else:
        assert cancel_jobs(queue="mail") == JobsReport(found=35, done=35)
        assert states() == {"cancelled": 35}


def test_each_part_is_committed_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "CHUNK", 4)
    enqueue_many([mail.job(number) for number in range(10)])
    cancel_many, calls = control.cancel_many, list[int]()

    def breaks_off(ids: Any, **values: Any) -> Any:
        calls.append(len(ids))
        if len(calls) == 3:
            raise ConnectionError
        return cancel_many(ids, **values)

    monkeypatch.setattr(control, "cancel_many", breaks_off)
    with pytest.raises(ConnectionError):
        cancel_jobs(queue="mail")
    monkeypatch.setattr(control, "cancel_many", cancel_many)

    assert states() == {"cancelled": 8, "queued": 2}
    assert cancel_jobs(queue="mail").done == 2


def test_jobs_that_lost_their_keys_are_skipped_and_the_others_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "PAGE", 2)
    keyed = mail.using(unique=Unique(on=("number",)))
    lost = [keyed.enqueue(number) for number in range(4)]
    for job in lost:
        job.cancel()
    for number in range(3):
        keyed.enqueue(number)

    report = retry_jobs(state="cancelled", queue="mail")

    assert report == JobsReport(found=4, done=1, skipped=3)
    assert lost[3].state == "queued"


def test_jobs_that_others_hold_are_waited_for_and_skipped_if_they_moved_on(
    duty: EngineConnection, in_thread: Callable[[Callable[[], Any]], Future[Any]]
) -> None:
    def act() -> JobsReport:
        try:
            return cancel_jobs(queue="mail")
        finally:
            connections.close_all()

    enqueue_many([mail.job(number) for number in range(3)])
    with rows.other_session(autocommit=False) as session:
        session.execute(
            "UPDATE relay_job SET state = 'completed', finished_at = now() "
            "WHERE args @> '{\"args\": [1]}'"
        )
        acting = in_thread(act)
        rows.wait_until_blocked(duty)
        session.commit()

    assert acting.result(60) == JobsReport(found=3, done=2, skipped=1)


def test_inside_a_transaction_it_is_refused() -> None:
    with transaction.atomic(), pytest.raises(RelayError, match="part by part"):
        cancel_jobs(queue="mail")


@pytest.mark.django_db(transaction=False)
def test_a_plain_test_case_can_call_it() -> None:
    mail.enqueue()

    assert cancel_jobs(queue="mail").done == 1
    with connection.cursor() as cursor:
        cursor.execute("SHOW enable_seqscan")
        assert cursor.fetchone() == ("on",)


def test_async_code_acts_too() -> None:
    mail.enqueue()

    assert async_to_sync(acancel_jobs)(queue="mail").done == 1
    assert async_to_sync(aretry_jobs)(task=mail, state="cancelled").done == 1


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ({}, "none means all"),
        ({"queue": None}, "none means all"),
        ({"name": "a"}, "unknown filter name"),
        ({"finished_after": NOW}, "unknown filter finished_after"),
        ({"state": "failed"}, "state='failed'"),
        ({"state": "blocked"}, "state='blocked'"),
        ({"queue": "a b"}, "queue="),
        ({"task": "a b"}, "cannot name a task"),
        ({"tag": ""}, "the tag ''"),
        ({"error_class": "\x00"}, "error_class="),
        ({"created_after": datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001 - refused
        ({"queue": "mail", "limit": 0}, "limit=0"),
        ({"queue": "mail", "limit": True}, "limit=True"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(which: Any, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        cancel_jobs(**which)

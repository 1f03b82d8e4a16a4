"""Jobs on an alias of their own; a job that follows another database's commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections, transaction
from django.test import Client, override_settings

from relay import ArgumentError, JobNotFound, Unique, cron, enqueue, enqueue_many, task
from relay.models import Job, Schedule
from relay.scheduler import registry
from relay.scheduler.registry import sync_declared
from relay.testing import drain, mode
from tests.aliases import alias

pytestmark = pytest.mark.django_db(transaction=True)


@task(name="tests.aliases.note")
def note(value: object = None) -> object:
    return value


@task(name="tests.aliases.transact", transactional=True)
def transact() -> str:
    return "done"


@pytest.fixture
def other() -> Iterator[str]:
    """The same database under another name: with transactions of its own."""
    with alias("other") as name:
        # By hand: of an alias that it does not know the test framework opens none.
        connections[name].connect()
        yield name


@pytest.fixture
def jobs_elsewhere(other: str) -> Iterator[str]:
    """Relay on an alias of its own; default is refused whatever is relay's."""

    def refuse(execute: Callable[..., Any], sql: Any, *rest: Any) -> Any:
        assert "relay_" not in str(sql), sql
        return execute(sql, *rest)

    routers = ["relay.routers.RelayRouter"]
    with (
        override_settings(RELAY={"DATABASE": other}, DATABASE_ROUTERS=routers),
        connection.execute_wrapper(refuse),
    ):
        yield other


def exists(job: Any) -> bool:
    try:
        return bool(job.state)
    except JobNotFound:
        return False


# --- an alias of their own -----------------------------------------------------------


def test_jobs_live_on_their_alias_and_the_default_one_is_never_asked(
    jobs_elsewhere: str,
) -> None:
    first = note.using(unique=Unique()).enqueue(1)
    many = enqueue_many([note.job(2), note.job(3)])
    by_name = enqueue("tests.aliases.note", 4)
    later = note.using(run_in=timedelta(hours=1)).enqueue(5)
    together = transact.enqueue()

    assert note.using(unique=Unique()).enqueue(1).is_duplicate
    assert later.cancel()
    later.retry()
    assert drain().completed == 6
    assert [job.result() for job in (first, *many, by_name, later)] == [1, 2, 3, 4, 5]
    assert together.result() == "done"
    assert first.replay().using == "other"
    assert Job.objects.count() == 7  # by the router


def test_an_enqueue_joins_the_transaction_of_the_jobs_alias_and_no_other(
    jobs_elsewhere: str,
) -> None:
    with transaction.atomic():
        independent = note.enqueue()
        transaction.set_rollback(True)
    with transaction.atomic(using=jobs_elsewhere):
        joined = note.enqueue()
        transaction.set_rollback(True, using=jobs_elsewhere)

    assert exists(independent)
    assert not exists(joined)


def test_the_admin_works_on_the_jobs_alias(jobs_elsewhere: str) -> None:
    browser = Client()
    browser.force_login(User.objects.create_superuser("ada"))
    job = note.using(run_in=timedelta(hours=1)).enqueue()

    listed = browser.get("/admin/relay/job/")
    shown = browser.get(f"/admin/relay/job/{job.id}/change/")
    done = browser.post(
        "/admin/relay/job/", {"action": "cancel", "_selected_action": [str(job.id)]}
    )

    assert (listed.status_code, shown.status_code, done.status_code) == (200, 200, 302)
    assert job.state == "cancelled"


def test_declared_schedules_are_synced_on_the_jobs_alias(
    jobs_elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_declared", {})
    cron("* * * * *", name="tests.aliases")(note)

    sync_declared()

    assert Schedule.objects.using(jobs_elsewhere).get().name == "tests.aliases"


# --- after the commit of another database --------------------------------------------


def test_a_job_follows_the_commit_of_the_named_database_only(other: str) -> None:
    with transaction.atomic(using=other):
        job = note.using(on_commit=other).enqueue("sent")
        with transaction.atomic():
            pass  # the commit of the jobs' own

        assert not exists(job)

    assert job.state == "queued"
    assert drain().completed == 1
    assert job.result() == "sent"


def test_a_job_is_not_enqueued_if_the_named_database_rolls_back(other: str) -> None:
    with transaction.atomic(using=other):
        job = note.using(on_commit=other).enqueue()
        transaction.set_rollback(True, using=other)

    assert not exists(job)
    assert Job.objects.count() == 0


def test_without_a_transaction_there_it_is_enqueued_at_once(other: str) -> None:
    assert exists(note.using(on_commit=other).enqueue())
    assert exists(enqueue("no:code", on_commit=other))


def test_the_jobs_own_database_is_joined_as_ever(other: str) -> None:
    with transaction.atomic():
        job = note.using(on_commit="default").enqueue()

        assert exists(job)


def test_a_job_that_follows_a_commit_runs_inline_after_it(other: str) -> None:
    with mode("inline"), transaction.atomic(using=other):
        job = note.using(on_commit=other).enqueue("inline")

        assert not exists(job)

    assert job.result() == "inline"


@pytest.mark.parametrize(
    ("act", "named"),
    [
        (lambda: note.using(on_commit="nowhere"), "on_commit='nowhere'"),
        (lambda: note.using(on_commit=True), "on_commit=True"),
        (lambda: note.using(on_commit=["other"]), r"on_commit=\['other'\]"),
        (
            lambda: enqueue_many([note.using(on_commit="other").job()]),
            "enqueue_many with a job of using",
        ),
        (
            lambda: note.using(
                on_commit="other", unique=Unique(on_conflict="raise")
            ).enqueue(),
            "nobody to raise it to",
        ),
    ],
    ids=["unknown", "no alias", "several", "many", "raise"],
)
def test_what_cannot_follow_a_commit_is_refused(
    other: str, act: Callable[[], object], named: str
) -> None:
    with pytest.raises(ArgumentError, match=named):
        act()

"""Jobs that stay although the caller's transaction is rolled back."""

from __future__ import annotations

import threading
from contextlib import suppress

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.db import DatabaseError, transaction
from django.test import override_settings

from relay import ArgumentError, Unique, enqueue_many, task
from relay.engine import outside
from relay.engine.connection import connect
from relay.models import Job
from relay.testing import mode

pytestmark = pytest.mark.django_db(transaction=True)


@task(name="tests.outside.report")
def report(what: str = "") -> None: ...


class Undo(Exception):
    """Rolls a block back."""


def test_failure_092_a_job_enqueued_outside_survives_the_rollback() -> None:
    with suppress(Undo), transaction.atomic():
        report.enqueue("lost")
        kept = report.using(outside_transaction=True).enqueue("kept")
        assert kept.state == "queued"  # at once: this READ COMMITTED sees it
        raise Undo

    assert [job.pk for job in Job.objects.all()] == [kept.id]


def test_its_wake_up_does_not_wait_for_the_callers_commit() -> None:
    told = threading.Event()

    def listen() -> None:
        for _ in listener.notifies(timeout=60, stop_after=1):
            told.set()

    with connect("default", role="listen", name="tests") as listener:
        listener.execute("LISTEN relay_wakeup")
        thread = threading.Thread(target=listen)
        thread.start()
        with transaction.atomic():
            report.using(outside_transaction=True, priority=5).enqueue()
            assert told.wait(60)
        thread.join()


def test_a_transaction_that_cannot_go_on_still_enqueues_outside() -> None:
    with suppress(DatabaseError), transaction.atomic():
        with suppress(DatabaseError):
            Job.objects.create(task="a", state="nonsense")
        report.using(outside_transaction=True).enqueue()

    assert Job.objects.count() == 1


def test_async_code_enqueues_outside_too() -> None:
    job = async_to_sync(report.using(outside_transaction=True).aenqueue)()

    assert job.state == "queued"


def test_a_unique_key_is_refused_as_both_transactions_might_wait() -> None:
    bound = report.using(outside_transaction=True, unique=Unique())

    with pytest.raises(ArgumentError, match="unique=None"):
        bound.enqueue()
    assert bound.using(unique=None).enqueue().state == "queued"


def test_many_are_not_enqueued_outside() -> None:
    with pytest.raises(ArgumentError, match="call its enqueue"):
        enqueue_many([report.using(outside_transaction=True).job()])


def test_errors_are_djangos(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise psycopg.OperationalError("no more connections")

    monkeypatch.setattr(outside, "connect", refuse)

    with pytest.raises(DatabaseError, match="no more"):
        report.using(outside_transaction=True).enqueue()


@override_settings(RELAY={"TRANSACTION_POOLER": True})
def test_a_transaction_pooler_carries_it() -> None:
    job = report.using(outside_transaction=True).enqueue()

    assert job.state == "queued"


def test_in_a_tests_mode_it_joins_the_tests_transaction() -> None:
    with suppress(Undo), transaction.atomic():
        with mode("manual"):
            report.using(outside_transaction=True).enqueue()
        raise Undo

    assert not Job.objects.exists()

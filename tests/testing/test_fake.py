"""A worker for whom the test acts."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, connection, transaction

from relay import StateConflict
from relay.exceptions import RelayError
from relay.models import Attempt, Job, Worker
from relay.testing import FakeWorker, drain, expire_leases
from tests.testing import tasks

pytestmark = pytest.mark.django_db


def test_what_it_claims_is_running_and_of_it() -> None:
    job = tasks.send.enqueue("her")

    with FakeWorker("mail", name="w1", concurrency=3) as worker:
        worker.claim(job)

        row = Worker.objects.get()
        assert (row.pk, row.name) == (worker.id, "w1")
        assert "mail" in row.queues
        assert (row.concurrency, row.state) == (3, "running")
        assert Job.objects.get().worker_id == worker.id
        assert job.state == "running"
        assert drain().ran == 0
        with pytest.raises(StateConflict):
            worker.claim(job)


def test_it_ends_a_job_as_the_handler_would(ran: list[object]) -> None:
    one, two = tasks.note.enqueue(1), tasks.anote.enqueue("ada")

    with FakeWorker() as worker:
        for job in (one, two):
            worker.claim(job)
        outcomes = [worker.complete(one, (1, 2)), worker.complete(two, 7)]

    assert (one.result(), two.result()) == ([1, 2], 7)  # as JSON has it
    assert [outcome.state for outcome in outcomes] == ["completed", "completed"]
    assert ran == []
    assert tasks.note(3) == 3
    assert ran == [3]


def test_an_error_of_its_is_the_tasks_own() -> None:
    job = tasks.broken.enqueue()

    with FakeWorker() as worker:
        worker.claim(job)
        outcome = worker.fail(job, TimeoutError("no answer"))
        assert (outcome.state, job.state) == ("retrying", "retrying")
        for _ in range(2):
            worker.claim(job)  # however late it is due
            worker.fail(job, TimeoutError("no answer"))

    assert job.state == "failed"
    assert Job.objects.get().error_class == "TimeoutError"
    assert Attempt.objects.count() == 3


def test_it_is_told_of_a_cancel() -> None:
    job = tasks.note.enqueue(1)

    with FakeWorker() as worker:
        worker.claim(job)
        assert not worker.is_asked_to_stop(job)
        job.cancel()
        assert worker.is_asked_to_stop(job)
        worker.release(job)

    assert job.state == "cancelled"


def test_it_hands_back_what_it_holds_at_its_end() -> None:
    job = tasks.note.enqueue(1)

    with FakeWorker() as worker:
        worker.claim(job)

    assert Worker.objects.get().state == "stopped"
    row = Job.objects.get()
    assert (row.state, row.attempt, row.failures, row.losses) == ("queued", 1, 0, 0)
    with pytest.raises(RelayError, match=r"claim\(\) it first"):
        worker.complete(job)


def test_what_it_held_when_it_vanished_is_taken_back() -> None:
    job = tasks.note.enqueue(1)

    with FakeWorker() as worker:
        worker.claim(job)
        worker.vanish()
        assert expire_leases() == 1

    assert Job.objects.get().losses == 1
    assert drain().completed == 1


def test_a_transaction_that_its_test_broke_is_the_tests_own_error() -> None:
    def break_it() -> None:
        with transaction.atomic(), FakeWorker() as worker:
            worker.claim(tasks.note.enqueue(1))
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO relay_worker SELECT * FROM relay_worker")

    with pytest.raises(IntegrityError):
        break_it()


def test_outside_of_its_block_it_says_how_it_is_used() -> None:
    job = tasks.send.enqueue("her")

    with pytest.raises(RelayError, match=r"with FakeWorker\(\.\.\.\) as worker"):
        FakeWorker("mail").claim(job)
    assert job.state == "queued"

"""Crashes, leases and errors made in a test."""

from __future__ import annotations

import pytest
from django.test import override_settings

from relay import StateConflict
from relay.models import Attempt, Job
from relay.testing import drain, expire_leases, fail_next, run_job, simulate_crash
from tests.testing import tasks

pytestmark = pytest.mark.django_db


def test_the_job_of_a_crashed_worker_comes_back_when_its_lease_has_run_out() -> None:
    job = tasks.note.enqueue(1)

    simulate_crash(job)

    assert job.state == "running"
    assert drain().ran == 0
    assert expire_leases() == 1
    assert drain().completed == 1
    row = Job.objects.get(pk=job.id)
    assert (row.attempt, row.losses, row.failures) == (2, 1, 0)
    assert Attempt.objects.get(job_id=job.id).outcome == "lost"


def test_a_job_lost_too_often_fails_as_poison() -> None:
    job = tasks.note.enqueue(1)

    with override_settings(RELAY={"LOSS_LIMIT": 2}):
        for _ in range(2):
            simulate_crash(job)
            expire_leases()

    assert Job.objects.get(pk=job.id).error_class == "PoisonJob"


def test_a_crash_takes_only_a_job_that_waits() -> None:
    job = tasks.note.enqueue(1)
    run_job(job)

    with pytest.raises(StateConflict):
        simulate_crash(job)


def test_no_lease_no_job() -> None:
    assert expire_leases() == 0


def test_a_task_fails_so_often_and_then_runs(ran: list[object]) -> None:
    job = tasks.note.enqueue(1)

    with fail_next(tasks.note, TimeoutError("no answer"), times=2):
        drained = drain(with_retries=True)

    assert [type(error) for error in drained.errors] == [TimeoutError, TimeoutError]
    assert drained.completed == 1
    assert ran == [1]
    assert Job.objects.get(pk=job.id).failures == 2


def test_a_coroutine_fails_too() -> None:
    tasks.anote.enqueue("her")

    with fail_next("testing.anote", TimeoutError):
        assert drain(with_retries=True).ran == 2


def test_a_failure_that_was_not_called_for_is_told() -> None:
    tasks.note.enqueue(1)
    function = tasks.note.function

    with (
        pytest.raises(AssertionError, match="to fail 2 times and was called 1"),
        fail_next(tasks.note, TimeoutError, times=2),
    ):
        drain()

    assert tasks.note.function is function

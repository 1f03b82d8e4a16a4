"""Why a job does not run: each cause, from the rows that are its cause."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from relay.exceptions import JobNotFound, NotAllowed, NotFound
from relay.ids import uuid7
from relay.models import History, Job, Queue
from relay.queries import CAUSES, why_not_running
from relay.queries.documents import Cause
from tests.operations.factory import actor, make_job
from tests.queries.documents import check
from tests.queries.factory import make_worker

pytestmark = pytest.mark.django_db

ME = actor("view_job")
HOUR = timedelta(hours=1)


def now() -> datetime:
    return timezone.now()


def why(job: Job) -> Cause:
    found = why_not_running(ME, job.pk)
    check(found, Cause)
    assert found["summary"].endswith(".")
    assert found["remedy"].endswith(".")
    return found


def running(**worker: Any) -> Job:
    return make_job("running", attempt=1, worker_id=make_worker(**worker).pk)


def retrying(event: str, **detail: Any) -> Job:
    job = make_job("retrying", attempt=1, run_at=now() + HOUR, error_class="ValueError")
    History.objects.create(job=job, event=event, attempt=1, detail=detail)
    return job


def waiting(**worker: Any) -> Job:
    """Make a queued job, and a worker."""
    make_worker(**worker)
    return make_job()


def behind(ahead: int, *, concurrency: int, held: int) -> Job:
    worker = make_worker(concurrency=concurrency)
    for _ in range(held):
        make_job("running", worker_id=worker.pk)
    for _ in range(ahead):
        make_job()
    return make_job()


def paused(**values: Any) -> Job:
    Queue.objects.create(name="default", paused_at=now(), **values)
    return waiting()


CASES: dict[str, Callable[[], Job]] = {
    "completed": lambda: make_job("completed"),
    "failed": lambda: make_job("failed", error_class="KeyError", error_message="'a'"),
    "expired": lambda: make_job("failed", error_class="DeadlineExceeded"),
    "cancelled": lambda: make_job("cancelled"),
    "running": running,
    "stopping": lambda: make_job(
        "running", worker_id=make_worker().pk, cancel_requested_at=now()
    ),
    "worker_lost": lambda: running(lease_expires_at=now() - HOUR),
    "deadline_passed": lambda: make_job(deadline_at=now() - HOUR),
    "blocked": lambda: make_job("blocked"),
    "scheduled": lambda: make_job("scheduled", run_at=now() + HOUR),
    "retrying": lambda: retrying("retry", reason="ValueError"),
    "snoozed": lambda: retrying("snooze", reason="Snooze"),
    "unknown_task": lambda: retrying("hand_back", reason="UnknownTask"),
    "due": lambda: make_worker() and make_job("scheduled", run_at=now() - HOUR),
    "concurrency_key": lambda: make_job(concurrency_key="k"),
    "queue_paused": paused,
    "no_worker": lambda: make_job(),
    "queue_not_served": lambda: waiting(queues=["other"]),
    "workers_silent": lambda: waiting(lease_expires_at=now() - HOUR),
    "workers_quiet": lambda: waiting(state="quiet"),
    "slots_busy": lambda: behind(3, concurrency=2, held=2),
    "jobs_ahead": lambda: behind(3, concurrency=2, held=1),
    "starting": waiting,
}


def test_every_cause_has_a_case() -> None:
    assert tuple(CASES) == CAUSES


@pytest.mark.parametrize("cause", CASES)
def test_a_job_is_told_why_it_does_not_run(cause: str) -> None:
    job = CASES[cause]()

    assert why(job)["cause"] == cause


def test_what_comes_first_is_named() -> None:
    """Scheduled, of a queue that is paused, and no worker is there."""
    Queue.objects.create(name="default", paused_at=now())
    at = datetime(2030, 1, 1, 7, tzinfo=UTC)

    found = why(make_job("scheduled", run_at=at))

    assert found["cause"] == "scheduled"
    assert "2030-01-01T07:00:00Z" in found["summary"]
    assert found["detail"]["run_at"] == "2030-01-01T07:00:00Z"


def test_a_pause_has_an_end_or_none() -> None:
    until = datetime(2030, 1, 1, 7, tzinfo=UTC)
    job = paused(paused_until=until)

    assert "until 2030-01-01T07:00:00Z" in why(job)["summary"]
    Queue.objects.update(paused_until=None)
    assert "until it is resumed" in why(job)["summary"]
    Queue.objects.update(paused_until=now() - HOUR)
    assert why(job)["cause"] == "starting"


def test_a_queue_that_nothing_names_has_to_be_named_first() -> None:
    job = make_job(queue="mial")
    make_worker(queues=["default"])

    assert "RELAY['QUEUES']" in why_not_running(ME, job.pk)["remedy"]
    Queue.objects.create(name="mial")
    assert "relay_worker -q mial" in why_not_running(ME, job.pk)["remedy"]


def test_the_place_in_line_counts_priorities_and_earlier_jobs() -> None:
    make_worker(concurrency=1)
    make_job(priority=5)
    make_job(queue="other", priority=9)
    make_job()
    job = make_job()
    make_job()
    make_job(priority=-1)

    found = why(job)

    assert found["cause"] == "jobs_ahead"
    assert found["detail"]["position"] == 3
    assert "2 jobs of its queue come before it" in found["summary"]


@pytest.mark.parametrize("state", ["lost", "stopped"])
def test_a_worker_that_has_ended_has_lost_its_jobs(state: str) -> None:
    assert why(running(state=state))["cause"] == "worker_lost"


def test_a_worker_without_a_row_has_lost_its_jobs() -> None:
    found = why(make_job("running", worker_id=uuid7()))

    assert found["cause"] == "worker_lost"
    assert "is gone" in found["summary"]


def test_ended_workers_serve_nothing() -> None:
    for state in ("lost", "stopped"):
        make_worker(state=state)

    assert why(make_job())["cause"] == "no_worker"


def test_one_worker_that_claims_is_enough() -> None:
    make_worker(state="quiet")
    make_worker(lease_expires_at=now() - HOUR)
    make_worker(concurrency=3)

    found = why(make_job())

    assert found["cause"] == "starting"
    assert found["detail"]["slots"] == 3


def test_what_is_due_without_workers_has_none() -> None:
    job = make_job("retrying", run_at=now() - HOUR)

    assert why(job)["cause"] == "no_worker"


def test_a_job_that_is_not_there() -> None:
    with pytest.raises(JobNotFound):
        why_not_running(ME, uuid7())
    with pytest.raises(NotFound):
        why_not_running(ME, "x")
    with pytest.raises(NotAllowed):
        why_not_running(actor(), make_job().pk)

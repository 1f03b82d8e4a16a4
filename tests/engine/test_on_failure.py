"""on_failure: enqueued by whatever statement fails a job for good, and by no other."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from relay import Backoff, Failure, JobNotFound, task
from relay.engine import holdings, lease, rules
from relay.engine.connection import EngineConnection
from relay.engine.crash import send_crashed
from relay.engine.expire import expire
from relay.engine.finish import Settled, read_finished, read_states, send_settled
from relay.engine.policy import set_policy
from relay.models import Job
from relay.testing import drain, run_job
from tests.engine.rows import add_jobs, add_worker, hold
from tests.meters import Sums

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])

seen: list[Failure] = []


@task(name="tests.follow.again", queue="ops", priority=7, max_retries=2)
def tell_again(failure: Failure) -> None:
    seen.append(failure)


@task(
    name="tests.follow.tell",
    queue="ops",
    priority=5,
    timeout=timedelta(minutes=2),
    tags=("failure", "ops"),
    on_failure=tell_again,
)
def tell(failure: Failure) -> None:
    seen.append(failure)
    if failure.error_class == "KeyError":
        raise LookupError("nobody to tell")


@task(name="tests.follow.fragile", max_retries=0, on_failure=tell)
def fragile(kind: str, *, order: int = 0) -> None:
    raise {"key": KeyError, "value": ValueError}[kind](kind)


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


def followers() -> list[Job]:
    return list(Job.objects.filter(task__startswith="tests.follow.tell"))


def held(duty: EngineConnection, **columns: Any) -> tuple[UUID, UUID]:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id, task="tests.follow.fragile", **columns)
    return worker_id, job_id


def settle(
    session: EngineConnection, worker_id: UUID, job_id: UUID, verb: Any, **values: Any
) -> None:
    outcome = Settled(
        id=job_id,
        attempt=values.pop("attempt", 1),
        verb=verb,
        error_class="ValueError",
        error_message="bad",
        **values,
    )
    with session.block():
        sent = send_settled(
            session, [outcome], worker_id=worker_id, hand_back_limit=timedelta(days=1)
        )
    read_finished(sent)


def test_a_failure_enqueues_the_follower_with_what_happened(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id, job_id = held(duty)

    settle(hot, worker_id, job_id, "fail")

    [job] = followers()
    assert (job.task, job.queue, job.priority) == ("tests.follow.tell", "ops", 5)
    assert (job.state, job.max_retries, job.attempt) == ("queued", 25, 0)
    assert job.timeout_ms == 120_000
    assert job.tags == ["failure", "ops"]
    assert job.id.version == 7
    run_job(job)
    assert seen == [
        Failure(
            job_id=job_id,
            task="tests.follow.fragile",
            queue="default",
            attempt=1,
            error_class="ValueError",
            error_message="bad",
        )
    ]


@pytest.mark.parametrize("verb", ["retry", "cancel", "hand_back", "snooze", "release"])
def test_no_other_end_of_an_attempt_enqueues_it(
    hot: EngineConnection, duty: EngineConnection, verb: str
) -> None:
    worker_id, job_id = held(duty)

    settle(hot, worker_id, job_id, verb)

    assert followers() == []


def test_a_retry_that_comes_too_late_and_too_many_snoozes_are_failures(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id, late = held(duty, created_at="2026-01-01")
    settle(hot, worker_id, late, "retry", until=timedelta(hours=1))
    worker_id, asleep = held(duty)
    settle(hot, worker_id, asleep, "snooze", most=0)

    assert Job.objects.filter(state="failed").count() == 2
    assert len(followers()) == 2


def test_poison_enqueues_it_whoever_found_out(duty: EngineConnection) -> None:
    worker_id, crashed = held(duty, crashes=2)
    dead = holdings.DeadChild(
        worker_id=worker_id,
        started=[(crashed, 1)],
        is_charged=True,
        reason="killed by SIGSEGV",
    )
    holdings.settle_dead_child(duty, dead, crash_limit=3)
    lost, taken = held(duty, losses=9)
    duty.execute("UPDATE relay_worker SET state = 'lost' WHERE id = %s", (lost,))
    lease.take(duty, lost, loss_limit=10)

    for job in followers():
        run_job(job)

    assert {(one.job_id, one.error_class, one.error_message) for one in seen} == {
        (crashed, "PoisonJob", "killed by SIGSEGV"),
        (taken, "PoisonJob", "the worker was lost: its lease ran out"),
    }


def test_a_deadline_that_passes_enqueues_it(duty: EngineConnection) -> None:
    [late] = add_jobs(
        duty, task="tests.follow.fragile", deadline_at="2026-01-01", queue="slow"
    )
    add_jobs(duty, deadline_at="2026-01-01")

    assert expire(duty) == 2

    [job] = followers()
    run_job(job)
    assert [(one.job_id, one.queue, one.attempt) for one in seen] == [(late, "slow", 0)]
    assert seen[0].error_class == "DeadlineExceeded"


def test_a_crash_or_loss_that_is_forgiven_enqueues_nothing(
    duty: EngineConnection,
) -> None:
    worker_id, crashed = held(duty)
    dead = holdings.DeadChild(
        worker_id=worker_id, started=[(crashed, 1)], is_charged=True, reason="r"
    )
    holdings.settle_dead_child(duty, dead, crash_limit=3)
    lost, _ = held(duty)
    duty.execute("UPDATE relay_worker SET state = 'lost' WHERE id = %s", (lost,))
    lease.take(duty, lost, loss_limit=10)

    assert followers() == []


def test_a_failure_that_is_not_written_enqueues_nothing(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id, job_id = held(duty)

    settle(hot, worker_id, job_id, "fail", attempt=2)

    assert followers() == []


def test_a_follower_that_fails_has_a_follower_of_its_own_and_no_job_changes() -> None:
    job = fragile.enqueue("key")

    drain(with_retries=True)

    assert job.state == "failed"
    assert {failure.task for failure in seen} == {
        "tests.follow.fragile",
        "tests.follow.tell",
    }
    assert Job.objects.get(task="tests.follow.again").state == "completed"


def test_a_job_retried_by_hand_that_fails_again_enqueues_it_again() -> None:
    job = fragile.enqueue("value")
    drain()
    job.retry()
    drain()

    assert [failure.attempt for failure in seen] == [1, 2]


def test_a_cancelled_job_enqueues_nothing() -> None:
    fragile.enqueue("value").cancel()

    drain()

    assert followers() == []


def test_a_follower_reads_the_arguments_of_the_job_that_failed() -> None:
    fragile.enqueue("value", order=42)
    drain()

    assert seen[0].arguments() == (["value"], {"order": 42})

    Job.objects.all().delete()
    with pytest.raises(JobNotFound):
        seen[0].arguments()


def test_in_a_fifo_queue_a_follower_has_no_priority() -> None:
    with transaction.atomic():
        set_policy("ops", "fifo", actor=None, using="default", known=["ops"])
    fragile.enqueue("value")

    drain(limit=1)

    assert [job.priority for job in followers()] == [0]


def test_each_follower_is_counted_and_logged_once_whichever_statement_makes_it(
    hot: EngineConnection,
    duty: EngineConnection,
    sums: Sums,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "relay.engine")
    worker_id, failed = held(duty)
    settle(hot, worker_id, failed, "retry")
    worker_id, failed = held(duty)
    settle(hot, worker_id, failed, "fail")
    worker_id, crashed = held(duty, crashes=2)
    crash = Settled(id=crashed, attempt=1, verb="crash", error_message="r")
    with hot.block():
        sent = send_crashed(
            hot, [crash], worker_id=worker_id, crash_limit=3, backoff=Backoff()
        )
    assert read_states(sent) == {crashed: "failed"}
    worker_id, killed = held(duty, crashes=2)
    dead = holdings.DeadChild(
        worker_id=worker_id, started=[(killed, 1)], is_charged=True, reason="r"
    )
    assert holdings.settle_dead_child(duty, dead, crash_limit=3)[0] == 1
    lost, _ = held(duty, losses=9)
    duty.execute("UPDATE relay_worker SET state = 'lost' WHERE id = %s", (lost,))
    assert lease.take(duty, lost, loss_limit=10)[0] == 1
    add_jobs(duty, 2, task="tests.follow.fragile", deadline_at="2026-01-01")
    add_jobs(duty, deadline_at="2026-01-01")

    assert expire(duty) == 3

    assert sums.of("relay_jobs_enqueued_total") == {("ops", "tests.follow.tell"): 6}
    told = [vars(each) for each in caplog.records if each.name == "relay.engine"]
    made = {str(job.id) for job in followers()}
    assert len(told) == len(made) == 6
    assert {each["job_id"] for each in told} == made
    assert {(each["event"], each["source"], each["priority"]) for each in told} == {
        ("job.enqueued", "on_failure", 5)
    }


def test_statements_are_as_before_where_no_task_names_a_follower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "_followers", {})

    assert rules.told(lease.TAKE) == lease.TAKE
    assert "INSERT INTO relay_job" not in lease.TAKE

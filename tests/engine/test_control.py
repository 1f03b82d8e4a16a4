"""Cancel, retry, replay, run now, pause and resume, alone and against others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection, transaction
from django.test import override_settings

from relay.engine import control, pause, replay, wakeup
from relay.engine.claim import CLAIM
from relay.exceptions import StateConflict, UnknownQueue
from relay.ids import uuid7
from relay.models import History, Job, JobState, Queue, Worker
from tests.engine.rows import wait_until_blocked

LATER = datetime(2999, 1, 1, tzinfo=UTC)


def make_job(state: str = "queued", **values: Any) -> Job:
    if state == "running":
        values.setdefault("worker_id", uuid7())
    if state in ("completed", "failed", "cancelled"):
        values.setdefault("finished_at", datetime(2026, 1, 1, tzinfo=UTC))
    job = Job.objects.create(task="tests.noop", state=state, **values)
    job.refresh_from_db()
    return job


def act(verb: Callable[..., Any], job: Job) -> Any:
    return verb(job.id, actor="ada", using="default")


@contextmanager
def other_session(*, autocommit: bool = False) -> Iterator[psycopg.Connection[Any]]:
    parameters = connection.get_connection_params()
    for key in ("context", "cursor_factory"):
        parameters.pop(key, None)
    with psycopg.connect(**parameters, autocommit=autocommit) as session:
        yield session


def in_thread(call: Callable[[], Any]) -> Any:
    """Run the call on its thread's own Django connection."""
    try:
        return call()
    finally:
        connection.close()


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    seen: list[tuple[str, int, int]] = []
    monkeypatch.setattr(
        wakeup, "announce", lambda using, *wake_up: seen.append(wake_up)
    )
    return seen


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["blocked", "scheduled", "queued", "retrying"])
def test_cancel_ends_a_job_that_has_not_started(state: str) -> None:
    job = make_job(state, error_class="ValueError")

    act(control.cancel, job)

    job.refresh_from_db()
    assert job.state == "cancelled"
    assert job.finished_at is not None
    assert job.expires_at is not None
    kept = job.expires_at - job.finished_at
    assert abs(kept - timedelta(days=30)) < timedelta(minutes=1)
    assert job.error_class == "ValueError"
    [row] = History.objects.filter(job=job)
    assert (row.event, row.actor, row.attempt) == ("cancel", "ada", 0)


@pytest.mark.django_db
@override_settings(RELAY={"RETENTION_CANCELLED": None})
def test_cancel_keeps_for_ever_what_has_no_retention() -> None:
    job = make_job()

    act(control.cancel, job)

    job.refresh_from_db()
    assert job.state == "cancelled"
    assert job.expires_at is None


@pytest.mark.django_db
@override_settings(RELAY={"RETENTION_CANCELLED": timedelta.max})
def test_cancel_keeps_for_as_long_as_a_time_can_say() -> None:
    job = make_job()

    act(control.cancel, job)

    job.refresh_from_db()
    assert job.state == "cancelled"
    assert job.expires_at is not None
    assert job.expires_at.year > 2100


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    monkeypatch.setattr(wakeup, "announce_cancel", seen.append)
    return seen


@pytest.mark.django_db
def test_cancel_asks_the_worker_of_a_running_job_to_stop_it(told: list[str]) -> None:
    job = make_job("running", attempt=2)

    is_cancelled = act(control.cancel, job)

    assert is_cancelled is False
    job.refresh_from_db()
    assert (job.state, job.finished_at) == ("running", None)
    assert job.cancel_requested_at is not None
    [row] = History.objects.filter(job=job)
    assert (row.event, row.actor, row.attempt) == ("cancel_request", "ada", 2)
    assert told == ["default"]


@pytest.mark.django_db
def test_asking_again_keeps_who_asked_first_and_tells_the_worker_again(
    told: list[str],
) -> None:
    job = make_job("running")
    act(control.cancel, job)
    before = Job.objects.filter(id=job.id).values().get()

    assert act(control.cancel, job) is False

    assert Job.objects.filter(id=job.id).values().get() == before
    assert History.objects.filter(job=job).count() == 1
    assert told == ["default", "default"]


@pytest.mark.django_db
def test_cancel_of_many_tells_apart_what_is_cancelled_and_what_is_asked(
    told: list[str],
) -> None:
    queued, running, done = make_job(), make_job("running"), make_job("completed")

    report = control.cancel_many(
        [queued.id, running.id, done.id], actor=None, using="default"
    )

    assert (report.done, report.asked) == ((queued.id,), (running.id,))
    assert [skip.job_id for skip in report.skipped] == [done.id]


@pytest.mark.django_db(transaction=True)
def test_workers_hear_of_a_cancel_after_its_commit_and_never_of_a_rollback() -> None:
    job = make_job("running")

    with other_session(autocommit=True) as listener:
        listener.execute("LISTEN relay_cancel")
        with transaction.atomic():
            act(control.cancel, job)
            transaction.set_rollback(True)
        assert list(listener.notifies(timeout=0)) == []
        with transaction.atomic():
            act(control.cancel, job)
            assert list(listener.notifies(timeout=0)) == []

        [heard] = listener.notifies(timeout=60, stop_after=1)

    assert heard.channel == "relay_cancel"


@pytest.mark.django_db
def test_a_retry_of_a_job_that_was_asked_to_stop_lets_it_run() -> None:
    job = make_job("cancelled", cancel_requested_at=LATER)

    act(control.retry, job)

    job.refresh_from_db()
    assert (job.state, job.cancel_requested_at) == ("queued", None)


ALLOWED = {
    control.cancel: {"blocked", "scheduled", "queued", "retrying", "running"},
    control.retry: {"failed", "cancelled"},
    control.run_now: {"scheduled", "retrying"},
    replay.replay: {"completed", "failed", "cancelled"},
}


@pytest.mark.django_db
@pytest.mark.parametrize("verb", ALLOWED, ids=lambda verb: verb.__name__)
@pytest.mark.parametrize("state", JobState.values)
def test_an_act_in_another_state_is_refused_and_changes_nothing(
    verb: Callable[..., Any], state: str, announced: list[Any]
) -> None:
    job = make_job(state)
    before = Job.objects.filter(id=job.id).values().get()
    if state in ALLOWED[verb]:
        act(verb, job)
        return

    with pytest.raises(StateConflict, match=f"it is {state}") as caught:
        act(verb, job)

    assert caught.value.state == state
    assert Job.objects.filter(id=job.id).values().get() == before
    assert Job.objects.count() == 1
    assert not History.objects.exists()
    assert announced == []


@pytest.mark.django_db
@pytest.mark.parametrize("verb", ALLOWED, ids=lambda verb: verb.__name__)
def test_an_act_on_a_job_that_is_gone_is_refused(verb: Callable[..., Any]) -> None:
    with pytest.raises(StateConflict, match="does not exist") as caught:
        verb(uuid7(), actor=None, using="default")

    assert caught.value.state is None


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_retry_gives_the_same_job_its_whole_budget_again(
    state: str, announced: list[Any]
) -> None:
    job = make_job(
        state,
        attempt=4,
        failures=3,
        crashes=2,
        losses=1,
        max_retries=7,
        priority=5,
        queue="mail",
        expires_at=LATER,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        worker_id=uuid7(),
    )

    act(control.retry, job)

    after = Job.objects.get(id=job.id)
    assert after.state == "queued"
    assert (after.failures, after.crashes, after.losses) == (0, 0, 0)
    assert (after.attempt, after.max_retries) == (4, 7)
    assert after.ready_seq > job.ready_seq
    assert after.run_at > job.run_at
    assert (after.finished_at, after.expires_at, after.started_at) == (None,) * 3
    assert after.worker_id is None
    assert announced == [("mail", 5, after.ready_seq)]
    [row] = History.objects.filter(job=job)
    assert (row.event, row.actor, row.attempt) == ("retry", "ada", 4)


@pytest.mark.django_db
def test_retry_many_keeps_the_order_and_reports_each_skip(
    announced: list[Any],
) -> None:
    second = make_job("failed", ready_seq=20)
    first = make_job("failed", ready_seq=10)
    done = make_job("completed")
    gone = uuid7()

    report = control.retry_many(
        [gone, done.id, second.id, first.id, first.id], actor=None, using="default"
    )

    assert report.done == tuple(sorted([first.id, second.id]))
    assert {skip.job_id: skip.state for skip in report.skipped} == {
        done.id: "completed",
        gone: None,
    }
    first.refresh_from_db()
    second.refresh_from_db()
    assert first.ready_seq < second.ready_seq
    assert announced == [("default", 0, first.ready_seq)]


@pytest.mark.django_db
def test_an_act_over_no_jobs_does_nothing() -> None:
    assert control.cancel_many([], actor=None, using="default").done == ()
    assert replay.replay_many([], actor=None, using="default").done == ()


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["scheduled", "retrying"])
def test_run_now_makes_a_job_ready_and_keeps_its_budget(
    state: str, announced: list[Any]
) -> None:
    job = make_job(state, run_at=LATER, failures=2)

    act(control.run_now, job)

    after = Job.objects.get(id=job.id)
    assert (after.state, after.failures) == ("queued", 2)
    assert after.run_at < LATER
    assert announced == [("default", 0, after.ready_seq)]


@pytest.mark.django_db
def test_replay_makes_a_new_job_with_the_arguments_and_options(
    announced: list[Any],
) -> None:
    args = {"args": [1, "ü"], "kwargs": {"big": 2**70}}
    job = make_job(
        "failed",
        args=args,
        queue="mail",
        priority=-3,
        max_retries=2,
        timeout_ms=1_500,
        tags=["a"],
        meta={"origin": "web"},
        failures=3,
        attempt=3,
        schedule_id=uuid7(),
        occurrence_at=datetime(2026, 1, 1, tzinfo=UTC),
        deadline_at=datetime(2026, 1, 1, tzinfo=UTC),
    )

    new_id = act(replay.replay, job)

    new = Job.objects.get(id=new_id)
    assert new.replay_of == job.id
    assert (new.state, new.task, new.queue, new.priority) == (
        "queued",
        "tests.noop",
        "mail",
        -3,
    )
    assert (new.args, new.max_retries, new.timeout_ms) == (args, 2, 1_500)
    assert (new.tags, new.meta) == (["a"], {"origin": "web"})
    assert (new.attempt, new.failures) == (0, 0)
    assert (new.schedule_id, new.occurrence_at, new.deadline_at) == (None,) * 3
    assert announced == [("mail", -3, new.ready_seq)]
    job.refresh_from_db()
    assert job.state == "failed"
    [row] = History.objects.filter(job=job)
    assert (row.event, row.actor, row.detail) == ("replay", "ada", {"job": str(new_id)})


@pytest.mark.django_db
def test_failure_125_a_second_replay_waits_for_the_end_of_the_first() -> None:
    job = make_job("failed")
    first = act(replay.replay, job)

    with pytest.raises(StateConflict, match="has a replay that has not ended"):
        act(replay.replay, job)
    Job.objects.filter(id=first).update(
        state="failed", finished_at=datetime(2026, 1, 1, tzinfo=UTC)
    )
    second = act(replay.replay, job)

    assert second != first
    assert Job.objects.filter(replay_of=job.id).count() == 2


@pytest.mark.django_db(transaction=True)
def test_failure_125_of_replays_at_once_exactly_one_makes_a_job() -> None:
    job = make_job("failed")
    barrier = threading.Barrier(8)

    def press() -> UUID | None:
        barrier.wait(timeout=60)
        try:
            return act(replay.replay, job)
        except StateConflict:
            return None

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: in_thread(press), range(8)))

    [won] = [answer for answer in answers if answer]
    assert list(Job.objects.filter(replay_of=job.id).values_list("id", flat=True)) == [
        won
    ]


@pytest.mark.django_db(transaction=True)
def test_failure_125_a_replay_that_ended_while_the_loser_waited_still_counts() -> None:
    job = make_job("failed")

    with (
        other_session() as first,
        other_session(autocommit=True) as watch,
        ThreadPoolExecutor(1) as pool,
    ):
        first.execute("SELECT FROM relay_job WHERE id = %s FOR NO KEY UPDATE", [job.id])
        loser = pool.submit(in_thread, lambda: act(replay.replay, job))
        wait_until_blocked(watch)
        first.execute(
            "INSERT INTO relay_job (id, task, state, replay_of, args, finished_at) "
            "VALUES (%s, 'tests.noop', 'completed', %s, '{}', clock_timestamp())",
            [uuid7(), job.id],
        )
        first.commit()

        with pytest.raises(StateConflict, match="has a replay"):
            loser.result(timeout=60)


@pytest.mark.django_db(transaction=True)
def test_failure_125_a_replay_of_a_job_that_the_pruner_deletes_is_refused() -> None:
    job = make_job("failed")

    with (
        other_session() as pruner,
        other_session(autocommit=True) as watch,
        ThreadPoolExecutor(1) as pool,
    ):
        pruner.execute("DELETE FROM relay_job WHERE id = %s", [job.id])
        waiting = pool.submit(in_thread, lambda: act(replay.replay, job))
        wait_until_blocked(watch)
        pruner.commit()

        with pytest.raises(StateConflict, match="does not exist"):
            waiting.result(timeout=60)
    assert not Job.objects.exists()


def claim(session: psycopg.Connection[Any], worker_id: UUID) -> list[Any]:
    return session.execute(
        CLAIM,
        {
            "queues": ["default"],
            "high": [100],
            "low": [-100],
            "marks": [-1],
            "limit": 10,
            "worker_id": worker_id,
        },
    ).fetchall()


def make_worker() -> UUID:
    return Worker.objects.create(
        name="w",
        host="h",
        pid=1,
        queues=["default"],
        concurrency=1,
        version="0",
        lease_expires_at=LATER,
    ).id


@pytest.mark.django_db(transaction=True)
def test_failure_034_a_cancel_that_waits_for_a_claim_asks_its_worker() -> None:
    job, worker_id = make_job(), make_worker()

    with (
        other_session() as worker,
        other_session(autocommit=True) as watch,
        ThreadPoolExecutor(1) as pool,
    ):
        assert len(claim(worker, worker_id)) == 1
        answer = pool.submit(in_thread, lambda: act(control.cancel, job))
        wait_until_blocked(watch)
        worker.commit()

        assert answer.result(timeout=60) is False
    job.refresh_from_db()
    assert job.state == "running"
    assert job.cancel_requested_at is not None


@pytest.mark.django_db(transaction=True)
def test_failure_034_an_uncommitted_cancel_hides_the_job_from_the_claim() -> None:
    job, worker_id = make_job(), make_worker()

    with other_session(autocommit=True) as worker:
        with transaction.atomic():
            act(control.cancel, job)
            during = claim(worker, worker_id)
        after = claim(worker, worker_id)

    assert (during, after) == ([], [])
    job.refresh_from_db()
    assert job.state == "cancelled"


@pytest.mark.django_db(transaction=True)
@pytest.mark.slow
def test_failure_034_a_cancel_answers_what_became_of_the_job() -> None:
    worker_id = make_worker()

    with (
        other_session(autocommit=True) as worker,
        ThreadPoolExecutor(1) as pool,
    ):
        for _ in range(200):
            job = make_job()
            barrier = threading.Barrier(2)

            def press(job: Job = job, barrier: threading.Barrier = barrier) -> str:
                barrier.wait(timeout=60)
                return "cancelled" if act(control.cancel, job) else "running"

            answer = pool.submit(in_thread, press)
            barrier.wait(timeout=60)
            claimed = claim(worker, worker_id)
            state = answer.result(timeout=60)

            job.refresh_from_db()
            assert job.state == state
            assert bool(claimed) == (state == "running")


@pytest.mark.django_db(transaction=True)
def test_failure_034_a_cancel_that_waits_for_a_release_sees_the_released_job() -> None:
    job = make_job("running")

    with (
        other_session() as worker,
        other_session(autocommit=True) as watch,
        ThreadPoolExecutor(1) as pool,
    ):
        worker.execute(
            "UPDATE relay_job SET state = 'queued', worker_id = NULL WHERE id = %s",
            [job.id],
        )
        answer = pool.submit(in_thread, lambda: act(control.cancel, job))
        wait_until_blocked(watch)
        worker.commit()
        answer.result(timeout=60)

    job.refresh_from_db()
    assert job.state == "cancelled"


@pytest.mark.django_db(transaction=True)
def test_failure_035_cancelled_jobs_are_never_claimed() -> None:
    jobs = [make_job() for _ in range(10)]
    control.cancel_many([job.id for job in jobs[:5]], actor=None, using="default")

    with other_session(autocommit=True) as worker:
        claimed = claim(worker, make_worker())

    assert {row[0] for row in claimed} == {job.id for job in jobs[5:]}


@pytest.mark.django_db(transaction=True)
def test_bulk_acts_over_the_same_jobs_do_not_deadlock() -> None:
    ids = [make_job().id for _ in range(200)]
    barrier = threading.Barrier(4)

    def press(order: list[UUID]) -> int:
        barrier.wait(timeout=60)
        return len(control.cancel_many(order, actor=None, using="default").done)

    orders = [ids, ids[::-1], ids[100:] + ids[:100], ids]
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda order: in_thread(lambda: press(order)), orders))

    assert sorted(done) == [0, 0, 0, 200]


@pytest.mark.django_db(transaction=True)
def test_an_act_rolls_back_with_its_caller(announced: list[Any]) -> None:
    job = make_job("failed")

    def give_up() -> None:
        with transaction.atomic():
            act(control.retry, job)
            raise LookupError

    with pytest.raises(LookupError):
        give_up()

    job.refresh_from_db()
    assert job.state == "failed"
    assert not History.objects.exists()


@pytest.mark.django_db
def test_pause_and_resume_are_kept_in_the_queues_row(announced: list[Any]) -> None:
    Queue.objects.create(name="mail")
    waiting = make_job(queue="mail", priority=3)

    pause.pause("mail", until=LATER, actor="ada", using="default")
    paused = Queue.objects.get(name="mail")
    is_resumed = pause.resume("mail", actor="bob", using="default")
    is_resumed_again = pause.resume("mail", actor="bob", using="default")

    assert paused.paused_at is not None
    assert paused.paused_until == LATER
    assert (is_resumed, is_resumed_again) == (True, False)
    resumed = Queue.objects.get(name="mail")
    assert (resumed.paused_at, resumed.paused_until) == (None, None)
    assert list(History.objects.order_by("id").values_list("event", "actor")) == [
        ("pause", "ada"),
        ("resume", "bob"),
    ]
    assert {row.detail["queue"] for row in History.objects.all()} == {"mail"}
    assert announced == [("mail", 3, waiting.ready_seq)]


@pytest.mark.django_db
def test_pausing_again_keeps_the_start_and_sets_the_end() -> None:
    pause.pause("default", actor=None, using="default")
    first = Queue.objects.get(name="default")

    pause.pause("default", until=LATER, actor=None, using="default")

    second = Queue.objects.get(name="default")
    assert second.paused_at == first.paused_at
    assert second.paused_until == LATER


@pytest.mark.django_db
def test_pause_takes_known_queues_only() -> None:
    with pytest.raises(UnknownQueue, match="'maill'"):
        pause.pause("maill", actor=None, using="default")
    pause.pause("of-a-task", actor=None, using="default", known={"of-a-task"})
    with pytest.raises(ValueError, match="cannot name a queue"):
        pause.pause("no\x00name", actor=None, using="default")
    with pytest.raises(ValueError, match="no time zone"):
        pause.pause(
            "default",
            until=datetime(2999, 1, 1),  # noqa: DTZ001 - that is the mistake
            actor=None,
            using="default",
        )

    assert list(Queue.objects.values_list("name", flat=True)) == ["of-a-task"]

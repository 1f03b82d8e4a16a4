"""Unique keys: who gets one, who holds it for how long, and what a duplicate does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from relay import (
    DuplicateJob,
    JobHandle,
    StateConflict,
    Unique,
    aenqueue_many,
    enqueue,
    enqueue_many,
    task,
)
from relay.engine import control, holdings, lease
from relay.engine.connection import EngineConnection
from relay.engine.finish import (
    Completed,
    Settled,
    Verb,
    read_finished,
    send_completed,
    send_settled,
)
from relay.engine.order import LOCK_HOLDERS
from relay.engine.promote import promote
from relay.engine.prune import prune_jobs
from relay.engine.unique_keys import CHANGE, FREE, INSERT_UNIQUE, LOOK_UP
from relay.ids import uuid7
from relay.models import Job
from tests.engine.rows import add_worker, claim, other_session, wait_until_blocked

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])

HOUR = timedelta(hours=1)
RULES = {
    "started": Unique(until="started"),
    "finished": Unique(),
    "window": Unique(for_=HOUR),
    "forever": Unique(until="forever"),
}
each_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


@task(name="tests:unique")
def sync(user_id: int, field: object = None) -> int:
    return user_id


@task(name="tests:declared", unique=Unique(on=("user_id",)))
def declared(user_id: int, field: object = None) -> int:
    return user_id


def add(rule: Unique | None, *args: Any, **options: Any) -> JobHandle[int]:
    return sync.using(unique=rule, **options).enqueue(*(args or (1,)))


def row(handle: JobHandle[Any] | UUID) -> Job:
    return Job.objects.get(pk=handle if isinstance(handle, UUID) else handle.id)


def has_key(handle: JobHandle[Any]) -> bool:
    return row(handle).unique_key is not None


def start(session: EngineConnection) -> UUID:
    """Claim all there is; return the worker."""
    worker_id = add_worker(session)
    claim(session, worker_id, limit=1_000)
    return worker_id


def complete(
    session: EngineConnection, job: JobHandle[Any], *, keep: float | None = 60.0
) -> None:
    """Run the job to its end."""
    worker_id = start(session)
    done = Completed(job.id, row(job).attempt, "1", keep)
    assert read_finished(send_completed(session, [done], worker_id=worker_id)) == {
        job.id
    }


def settle(
    session: EngineConnection,
    job: JobHandle[Any],
    verb: Verb,
) -> None:
    """Run the job to another end of its attempt."""
    worker_id = start(session)
    outcome = Settled(
        id=job.id,
        attempt=row(job).attempt,
        verb=verb,
        error_class="E",
    )
    sent = send_settled(
        session, [outcome], worker_id=worker_id, hand_back_limit=timedelta(days=1)
    )
    assert read_finished(sent) == {job.id}


@contextmanager
def rolled_back() -> Iterator[None]:
    with suppress(ZeroDivisionError), transaction.atomic():
        yield
        raise ZeroDivisionError


def end_window(*jobs: JobHandle[Any]) -> None:
    Job.objects.filter(pk__in=[job.id for job in jobs]).update(
        unique_until=datetime(2020, 1, 1, tzinfo=UTC)
    )


# --- who gets the key ----------------------------------------------------------------


@each_rule
def test_a_duplicate_is_the_job_that_waits(rule: Unique) -> None:
    first, second = add(rule), add(rule)

    assert (first.is_duplicate, second.is_duplicate) == (False, True)
    assert second.id == first.id
    assert second.task == "tests:unique"
    assert Job.objects.count() == 1


@each_rule
def test_a_duplicate_may_be_refused(rule: Unique) -> None:
    values: dict[str, Any] = {"until": rule.until, "for_": rule.for_}
    first = add(rule)

    with pytest.raises(DuplicateJob, match=str(first.id)) as caught:
        add(Unique(on_conflict="raise", **values))

    assert (caught.value.job_id, caught.value.task) == (first.id, "tests:unique")
    assert Job.objects.count() == 1


@each_rule
def test_a_duplicate_may_replace_the_arguments(rule: Unique) -> None:
    values: dict[str, Any] = {
        "until": rule.until,
        "for_": rule.for_,
        "on": ("user_id",),
    }
    first = add(Unique(**values), 1, "old", run_in=HOUR)
    before = row(first)

    second = add(Unique(on_conflict="replace", **values), 1, "new", run_in=2 * HOUR)

    assert (second.id, second.is_duplicate) == (first.id, True)
    after = row(first)
    assert after.args == {"args": [1, "new"], "kwargs": {}}
    assert (after.run_at, after.state) == (before.run_at, "scheduled")  # throttle


@each_rule
def test_a_duplicate_may_push_the_due_time(rule: Unique) -> None:
    values: dict[str, Any] = {
        "until": rule.until,
        "for_": rule.for_,
        "on": ("user_id",),
    }
    first = add(Unique(**values), 1, "old", run_in=HOUR)
    before = row(first)

    add(Unique(due="push", **values), 1, "new", run_in=2 * HOUR)

    after = row(first)
    assert after.args == before.args
    assert timedelta(0) < after.run_at - before.run_at - HOUR < timedelta(minutes=1)
    assert after.unique_until == before.unique_until
    assert Job.objects.count() == 1


def test_ten_edits_give_one_run_after_the_last_with_the_last_arguments() -> None:
    rule = Unique(on=("user_id",), on_conflict="replace", due="push")
    due = [datetime(2100, 1, 1, 0, 0, second, tzinfo=UTC) for second in range(10)]

    handles = [add(rule, 1, at.second, run_at=at) for at in due]

    assert {handle.id for handle in handles} == {handles[0].id}
    job = row(handles[0])
    assert (job.run_at, job.args["args"]) == (due[-1], [1, 9])


def test_a_job_that_is_ready_is_pushed_back_and_one_pulled_forward_is_ready() -> None:
    rule = Unique(due="push")
    first = add(rule)
    places = [row(first).ready_seq]

    add(rule, run_in=HOUR)
    states = [row(first).state]
    add(rule)
    states.append(row(first).state)
    places.append(row(first).ready_seq)

    assert states == ["scheduled", "queued"]
    assert places[0] < places[1]


def test_a_job_that_waits_for_its_retry_keeps_its_due_time(
    hot: EngineConnection,
) -> None:
    values: dict[str, Any] = {"until": "finished", "on": ("user_id",)}
    first = add(Unique(**values))
    settle(hot, first, "retry")
    before = row(first)

    add(Unique(on_conflict="replace", due="push", **values), 1, "new", run_in=HOUR)

    after = row(first)
    assert (after.state, after.run_at) == ("retrying", before.run_at)
    assert after.args["args"] == [1, "new"]


def test_a_job_that_runs_is_not_changed(hot: EngineConnection) -> None:
    values: dict[str, Any] = {"until": "finished", "on": ("user_id",)}
    first = add(Unique(**values), 1, "old")
    start(hot)

    second = add(Unique(on_conflict="replace", due="push", **values), 1, "new")

    assert (second.id, second.is_duplicate) == (first.id, True)
    assert row(first).args["args"] == [1, "old"]


def test_the_job_of_another_task_in_the_scope_is_not_changed() -> None:
    first = enqueue("other:task", 1, unique=Unique(scope="both", key="k"))

    second = add(Unique(scope="both", key="k", on_conflict="replace"))

    assert (second.id, second.task, second.is_duplicate) == (
        first.id,
        "other:task",
        True,
    )
    assert row(first).args == {"args": [1], "kwargs": {}}


def test_the_rule_of_a_task_applies_unless_the_enqueue_says_otherwise() -> None:
    first = declared.enqueue(1, "a")

    assert declared.enqueue(1, "b").id == first.id
    assert enqueue("tests:declared", 1, "c").id == first.id
    assert declared.using(unique=None).enqueue(1, "a").id != first.id
    assert declared.using(unique=Unique()).enqueue(1, "b").id != first.id
    assert declared.enqueue(2).id != first.id


def test_a_key_leaves_no_trace_when_its_transaction_rolls_back() -> None:
    with rolled_back():
        lost = add(Unique())

    assert not add(Unique()).is_duplicate
    assert not Job.objects.filter(pk=lost.id).exists()


def test_a_duplicate_poisons_no_transaction() -> None:
    first = add(Unique())

    with transaction.atomic():
        second = add(Unique())
        with pytest.raises(DuplicateJob):
            add(Unique(on_conflict="raise"))
        third = add(Unique(), 3)

    assert second.id == first.id
    assert row(third).state == "queued"


def test_failure_068_a_duplicate_of_a_transaction_that_rolls_back_is_enqueued(
    duty: EngineConnection, in_thread: Callable[[Callable[[], Any]], Future[Any]]
) -> None:
    def enqueue_and_close() -> JobHandle[int]:
        try:
            return add(Unique())
        finally:
            connection.close()

    with rolled_back():
        lost = add(Unique())
        other = in_thread(enqueue_and_close)
        wait_until_blocked(duty)

    made = other.result(timeout=60)
    assert not made.is_duplicate
    assert made.id != lost.id
    assert [job.pk for job in Job.objects.all()] == [made.id]


def test_a_repeat_with_the_same_id_is_no_duplicate(hot: EngineConnection) -> None:
    job_id = uuid7()
    first = add(Unique(), id=job_id)

    second = add(Unique(), id=job_id)
    complete(hot, first)
    other = add(Unique())
    third = add(Unique(), id=job_id)

    assert [(made.id, made.is_duplicate) for made in (second, third)] == [
        (job_id, False)
    ] * 2
    assert not other.is_duplicate


def test_an_id_is_a_key_for_as_long_as_the_row_is_there(hot: EngineConnection) -> None:
    job_id = uuid7()
    first = sync.using(id=job_id).enqueue(1)
    complete(hot, first)

    assert sync.using(id=job_id).enqueue(2).id == job_id
    assert row(first).args["args"] == [1]
    assert row(first).state == "completed"


def test_failure_147_long_arguments_have_a_key() -> None:
    text = "".join(str(number) for number in range(8192))[:8192]

    first, second = add(Unique(), 1, text), add(Unique(), 1, text)

    assert second.id == first.id
    assert len(bytes(row(first).unique_key or b"")) == 16


def test_a_free_key_costs_one_statement_and_a_held_one_three_at_most() -> None:
    with CaptureQueriesContext(connection) as free:
        add(Unique())
    with CaptureQueriesContext(connection) as held:
        add(Unique())
    with CaptureQueriesContext(connection) as changing:
        add(Unique(on_conflict="replace"))

    # Besides, a wake-up may go out.
    counts = [
        sum("relay_job" in query["sql"] for query in found.captured_queries)
        for found in (free, held, changing)
    ]
    assert counts == [1, 2, 3]


def test_a_job_keeps_all_its_options_beside_a_key() -> None:
    due = datetime(2100, 1, 1, 12, tzinfo=UTC)

    job = row(add(Unique(), queue="mail", priority=7, max_retries=3, run_at=due))

    assert (job.queue, job.priority, job.max_retries) == ("mail", 7, 3)
    assert (job.state, job.run_at, job.timeout_ms, job.tags) == (
        "scheduled",
        due,
        None,
        None,
    )
    assert row(add(Unique(), 2, run_in=timedelta(0))).state == "queued"
    assert row(add(Unique(), 3, run_in=-HOUR)).state == "queued"


# --- how long it is held -------------------------------------------------------------


@each_rule
def test_a_key_that_is_held_until_the_start_goes_with_the_claim(
    hot: EngineConnection, rule: Unique
) -> None:
    first = add(rule)
    start(hot)

    second = add(rule)

    assert second.is_duplicate == (rule.mode != "started")
    assert has_key(first) == (rule.mode != "started")


@each_rule
def test_a_key_that_is_held_until_the_end_goes_with_the_finish(
    hot: EngineConnection, rule: Unique
) -> None:
    first = add(rule)
    complete(hot, first)

    second = add(rule)

    assert second.is_duplicate == (rule.mode in ("window", "forever"))
    assert has_key(first) == second.is_duplicate


@pytest.mark.parametrize("end", ["fail", "cancel", "lost", "crash"])
@each_rule
def test_failure_067_a_job_that_ended_otherwise_holds_no_key_but_that_of_a_window(
    hot: EngineConnection, duty: EngineConnection, rule: Unique, end: str
) -> None:
    first = add(rule)
    if end == "fail":
        settle(hot, first, "fail")
    elif end == "cancel":
        first.cancel()
    elif end == "lost":
        worker_id = start(hot)
        lease.set_state(duty, [worker_id], "stopped")
        lease.take(duty, worker_id, loss_limit=1)
    else:
        worker_id = start(hot)
        dead = holdings.DeadChild(
            worker_id=worker_id,
            started=[(first.id, 1)],
            is_charged=True,
            reason="killed",
        )
        holdings.settle_dead_child(duty, dead, crash_limit=1)

    second = add(rule)

    assert row(first).state == ("cancelled" if end == "cancel" else "failed")
    assert second.is_duplicate == (rule.mode in ("window", "forever"))
    assert has_key(first) == second.is_duplicate


@pytest.mark.parametrize("verb", ["retry", "hand_back", "snooze", "release"])
def test_failure_113_a_key_outlives_all_that_leads_to_another_run(
    hot: EngineConnection, duty: EngineConnection, verb: Verb
) -> None:
    first = add(Unique())

    settle(hot, first, verb)
    after = add(Unique())
    promote(duty)

    assert after.id == first.id
    assert row(first).state == "queued"
    assert add(Unique()).id == first.id


def test_failure_113_a_key_taken_meanwhile_fails_no_promotion(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    rule = Unique(until="started")
    first = add(rule)
    others = [add(None, number) for number in range(50)]
    worker_id = start(hot)
    outcomes = [Settled(id=job.id, attempt=1, verb="retry") for job in [first, *others]]
    read_finished(
        send_settled(
            hot, outcomes, worker_id=worker_id, hand_back_limit=timedelta(days=1)
        )
    )
    second = add(rule)

    promoted, _ = promote(duty)

    assert promoted == 51
    assert not second.is_duplicate
    assert {row(job).state for job in (first, second, *others)} == {"queued"}


def test_a_lost_or_crashed_worker_leaves_the_key_with_its_job(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    first = add(Unique())
    worker_id = start(hot)
    lease.set_state(duty, [worker_id], "stopped")
    lease.take(duty, worker_id, loss_limit=10)
    taken = add(Unique())
    worker_id = start(hot)
    dead = holdings.DeadChild(
        worker_id=worker_id,
        started=[(first.id, 2)],
        is_charged=True,
        reason="killed",
    )
    holdings.settle_dead_child(duty, dead, crash_limit=3)
    crashed = add(Unique())
    worker_id = start(hot)
    holdings.release_held(hot, worker_id, [(first.id, 3)], reason="unknown")
    released = add(Unique())

    assert {taken.id, crashed.id, released.id} == {first.id}
    complete(hot, first)
    assert not add(Unique()).is_duplicate


def test_a_window_ends_and_so_does_its_key(hot: EngineConnection) -> None:
    rule = Unique(for_=HOUR)
    first = add(rule)
    until = row(first).unique_until
    assert until is not None
    assert abs(until - row(first).created_at - HOUR) < timedelta(minutes=1)
    complete(hot, first)

    held = add(rule)
    end_window(first)
    second, third = add(rule), add(rule)

    assert held.id == first.id
    assert (second.is_duplicate, third.id) == (False, second.id)
    assert not has_key(first)


def test_a_window_lasts_at_least_until_its_job_has_ended(hot: EngineConnection) -> None:
    rule = Unique(for_=HOUR)
    first = add(rule)
    end_window(first)

    assert add(rule).id == first.id
    start(hot)
    assert add(rule).id == first.id


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
def test_a_key_that_an_older_release_left_on_an_ended_job_is_free(state: str) -> None:
    first = add(Unique())
    Job.objects.update(state=state)

    assert not add(Unique()).is_duplicate
    assert not has_key(first)


@pytest.mark.parametrize("keep", [0.0, 60.0, None])
@pytest.mark.parametrize("end", ["complete", "fail"])
def test_a_row_stays_for_as_long_as_its_window(
    hot: EngineConnection,
    duty: EngineConnection,
    keep: float | None,
    end: str,
    settings: Any,
) -> None:
    seconds = None if keep is None else timedelta(seconds=keep)
    settings.RELAY = {"RETENTION_FAILED": seconds}
    first = add(Unique(for_=HOUR))
    if end == "complete":
        complete(hot, first, keep=keep)
    else:
        settle(hot, first, "fail")

    job = row(first)
    assert prune_jobs(duty) == 0
    assert job.expires_at == (None if keep is None else job.unique_until)
    assert add(Unique(for_=HOUR)).id == first.id


def test_a_longer_retention_than_the_window_is_kept(hot: EngineConnection) -> None:
    first = add(Unique(for_=HOUR))
    complete(hot, first, keep=86_400.0)

    job = row(first)

    assert job.expires_at is not None
    assert job.unique_until is not None
    assert job.expires_at > job.unique_until


def test_a_job_that_is_not_kept_goes_as_it_finishes_unless_a_window_is_ahead(
    hot: EngineConnection,
) -> None:
    jobs = [add(rule, number) for number, rule in enumerate(RULES.values())]
    jobs.append(add(None))

    worker_id = start(hot)
    done = [Completed(job.id, 1, "1", 0) for job in jobs]
    finished = read_finished(send_completed(hot, done, worker_id=worker_id))

    assert finished == {job.id for job in jobs}
    assert set(Job.objects.values_list("state", "unique_scope")) == {
        ("completed", row(job).unique_scope) for job in jobs[2:4]
    }


# --- retry and replay ----------------------------------------------------------------


@pytest.mark.parametrize("end", ["fail", "cancel"])
def test_a_retried_job_takes_its_key_again(hot: EngineConnection, end: str) -> None:
    first = add(Unique())
    if end == "fail":
        settle(hot, first, "fail")
    else:
        first.cancel()

    first.retry()

    assert add(Unique()).id == first.id
    complete(hot, first)
    assert not add(Unique()).is_duplicate


@pytest.mark.parametrize("mode", ["started", "finished", "window"])
def test_a_job_whose_key_was_taken_meanwhile_is_not_retried(mode: str) -> None:
    first = add(RULES[mode])
    first.cancel()
    end_window(first)
    second = add(RULES[mode])

    with pytest.raises(StateConflict) as caught:
        first.retry()

    assert caught.value.reason == f"has lost its unique key to job {second.id}"
    assert (caught.value.act, caught.value.state) == ("retry", "cancelled")
    assert row(first).state == "cancelled"


def test_a_job_that_is_pruned_while_its_retry_is_refused_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = add(Unique())
    first.cancel()
    add(Unique())
    fetch_all = control.fetch_all

    def fetch(statement: str, *args: Any, **options: Any) -> list[tuple[Any, ...]]:
        if statement == control.KEY_HOLDER:
            Job.objects.filter(pk=first.id).delete()
        return fetch_all(statement, *args, **options)

    monkeypatch.setattr(control, "fetch_all", fetch)

    with pytest.raises(StateConflict) as caught:
        first.retry()

    assert caught.value.state is None


@pytest.mark.parametrize("mode", ["window", "forever"])
def test_a_key_that_outlives_its_job_is_there_for_its_retry(mode: str) -> None:
    first = add(RULES[mode])
    first.cancel()

    first.retry()

    assert add(RULES[mode]).id == first.id
    assert row(first).state == "queued"


def test_a_job_that_gave_its_key_up_at_its_start_is_retried_without(
    hot: EngineConnection,
) -> None:
    rule = Unique(until="started")
    first = add(rule)
    settle(hot, first, "fail")
    second = add(rule)

    first.retry()

    assert row(first).state == row(second).state == "queued"
    assert add(rule).id == second.id


def test_a_key_whose_window_has_ended_stands_in_no_retry_s_way(
    hot: EngineConnection,
) -> None:
    first = add(Unique())
    first.cancel()
    second = add(Unique(for_=HOUR))
    complete(hot, second)
    end_window(second)

    first.retry()

    assert add(Unique()).id == first.id


def test_many_are_retried_but_those_that_lost_their_keys() -> None:
    jobs = [add(Unique(), number) for number in range(5)] + [add(None)]
    twin = jobs[0]
    control.cancel_many([job.id for job in jobs], actor=None, using="default")
    jobs.append(add(Unique(), 0))
    jobs[-1].cancel()
    taken = add(Unique(), 3)

    with transaction.atomic():
        report = control.retry_many(
            [job.id for job in jobs], actor="her", using="default"
        )

    lost = [jobs[3].id, max(twin.id, jobs[-1].id)]
    assert set(report.done) == {job.id for job in jobs} - set(lost)
    assert sorted((one.job_id, one.reason) for one in report.skipped) == sorted(
        [
            (lost[0], f"has lost its unique key to job {taken.id}"),
            (lost[1], f"has lost its unique key to job {min(twin.id, jobs[-1].id)}"),
        ]
    )


def test_a_replay_takes_no_key(hot: EngineConnection) -> None:
    first = add(Unique())
    complete(hot, first)
    second = add(Unique())

    replayed = first.replay()

    assert not has_key(replayed)
    assert row(replayed).unique_scope is None
    assert add(Unique()).id == second.id


def test_run_now_keeps_the_key() -> None:
    first = add(Unique(), run_in=HOUR)

    control.run_now(first.id, actor=None, using="default")

    assert add(Unique()).id == first.id


# --- many at once --------------------------------------------------------------------


def test_duplicates_among_many_are_told_by_their_place() -> None:
    there = add(Unique(), 2)
    keyed = sync.using(unique=Unique())

    made = enqueue_many(
        [keyed.job(1), keyed.job(2), sync.job(2), keyed.job(3), keyed.job(1)]
    )

    assert [job.is_duplicate for job in made] == [False, True, False, False, True]
    assert made[1].id == there.id
    assert made[4].id == made[0].id
    assert Job.objects.count() == 4


async def _aenqueue_twice() -> list[bool]:
    keyed = sync.using(unique=Unique())
    first = await aenqueue_many([keyed.job(1)])
    again = await keyed.aenqueue(1)
    return [first[0].is_duplicate, again.is_duplicate]


def test_async_code_is_told_as_well() -> None:
    assert async_to_sync(_aenqueue_twice)() == [False, True]


def test_many_become_ready_in_the_order_asked_for() -> None:
    keyed = sync.using(unique=Unique())

    made = enqueue_many([keyed.job(number) for number in range(100)])

    ready = Job.objects.order_by("ready_seq").values_list("pk", flat=True)
    assert list(ready) == [job.id for job in made]


def test_one_refused_duplicate_refuses_all() -> None:
    there = add(Unique(), 2)
    keyed = sync.using(unique=Unique(on_conflict="raise"))

    with transaction.atomic(), pytest.raises(DuplicateJob) as caught:
        enqueue_many([keyed.job(1), keyed.job(2), sync.job(3)])

    assert caught.value.job_id == there.id
    assert Job.objects.count() == 1


def test_the_last_of_many_duplicates_counts() -> None:
    rule = Unique(on=("user_id",), on_conflict="replace", due="push")
    there = add(rule, 1, "a", run_in=HOUR)

    made = enqueue_many(
        [
            sync.using(unique=rule, run_at=datetime(2100, 1, day, tzinfo=UTC)).job(
                user, day
            )
            for day in (1, 2, 3)
            for user in (1, 2)
        ]
    )

    assert [job.is_duplicate for job in made] == [True, False] + [True] * 4
    assert made[0].id == there.id
    for job in made[:2]:
        assert row(job).args["args"][1] == 3
        assert row(job).run_at == datetime(2100, 1, 3, tzinfo=UTC)


def test_windows_that_have_ended_are_freed_for_many(hot: EngineConnection) -> None:
    keyed = sync.using(unique=Unique(for_=HOUR))
    old = enqueue_many([keyed.job(number) for number in range(10)])
    control.cancel_many([job.id for job in old], actor=None, using="default")
    end_window(*old[:5])

    made = enqueue_many([keyed.job(number) for number in range(10)])

    assert [job.is_duplicate for job in made] == [False] * 5 + [True] * 5


def test_large_bulks_go_in_several_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.engine.unique_keys._DOCUMENT_LIMIT", 2_000)
    keyed = sync.using(unique=Unique())

    made = enqueue_many([keyed.job(number % 50) for number in range(100)])

    assert [job.is_duplicate for job in made] == [False] * 50 + [True] * 50
    assert Job.objects.count() == 50


def stored(job: JobHandle[Any]) -> dict[str, Any]:
    """Return the row, but for what each enqueue makes anew."""
    values = Job.objects.filter(pk=job.id).values().get()
    until, made_at = values.pop("unique_until"), values.pop("run_at")
    for name in ("id", "created_at", "ready_seq", "unique_key", "unique_scope", "args"):
        del values[name]
    days = until and round((until - made_at) / timedelta(days=1))
    return {**values, "window": days}


@pytest.mark.parametrize(
    "rule",
    [
        Unique(),
        Unique(until="started"),
        Unique(until="forever"),
        Unique(for_=timedelta(days=7)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("more", [{}, {"tags": ["a\\b"], "meta": {"c": "d\te"}}])
def test_rows_that_are_copied_are_those_that_are_inserted(
    rule: Unique, more: Any
) -> None:
    keyed = sync.using(unique=rule, priority=3, **more)
    texts = [f"{number} \\ \\N \\x41 \t\n é" for number in range(20)]
    with CaptureQueriesContext(connection) as found:
        made = enqueue_many(
            [keyed.job(number, text) for number, text in enumerate(texts)]
        )
    assert any(query["sql"].startswith("COPY") for query in found.captured_queries)

    single = keyed.enqueue(20, "alone")

    for job, text in zip(made, texts, strict=True):
        assert row(job).args["args"][1] == text
        assert stored(job) == stored(single)
        assert keyed.enqueue(*row(job).args["args"]).id == job.id


def test_many_without_keys_are_one_copy_still() -> None:
    with CaptureQueriesContext(connection) as found:
        enqueue_many([sync.job(1), sync.job(2)])

    verbs = {query["sql"].split()[0] for query in found.captured_queries}
    assert verbs == {"SELECT", "COPY"}


# --- the index -----------------------------------------------------------------------


def test_the_index_refuses_what_the_engine_never_writes() -> None:
    first, second = add(Unique()), add(Unique(), 2)

    with pytest.raises(IntegrityError, match="relay_job_unique_idx"):
        Job.objects.filter(pk=second.id).update(unique_key=row(first).unique_key)


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        (LOOK_UP, {"ids": [uuid7()], "keys": [b"k" * 16]}),
        (FREE, {"keys": [b"k" * 16]}),
        (LOCK_HOLDERS, {"keys": [b"k" * 16], "changed": [b"k" * 16]}),
        (
            CHANGE,
            {
                "jobs": json.dumps(
                    [{"key": "6b" * 16, "task": "tests:unique", "replaces": False}]
                )
            },
        ),
        (control.KEY_HOLDER, {"id": uuid7()}),
        (control.FREE_KEY, {"id": uuid7()}),
    ],
    ids=["look up", "free", "lock", "change", "holder", "free key"],
)
def test_keys_are_found_by_their_index(
    duty: EngineConnection, statement: str, values: dict[str, Any]
) -> None:
    with other_session() as session:
        session.execute(
            "INSERT INTO relay_job (id, task, args, state, unique_key) "
            "SELECT gen_random_uuid(), 'tests:unique', '{}', 'completed', "
            "       CASE WHEN n % 2 = 0 THEN decode(md5(n::text), 'hex') END "
            "FROM generate_series(1, 20000) AS n"
        )
        session.execute("ANALYZE relay_job")

        plan = session.execute(f"EXPLAIN {statement}", values).fetchall()

    text = "\n".join(line for (line,) in plan)
    assert "relay_job_unique_idx" in text
    assert "Seq Scan" not in text


def test_bulks_insert_in_the_order_of_the_keys() -> None:
    with other_session() as session:
        [plan] = session.execute(
            f"EXPLAIN (FORMAT JSON) {INSERT_UNIQUE}", {"jobs": "[]"}
        ).fetchall()

    assert "Sort" in json.dumps(plan)


def test_plain_connections_see_the_key_s_mode_and_the_key() -> None:
    first = add(Unique(for_=HOUR))

    with other_session() as session:
        found = session.execute(
            "SELECT unique_scope = 'window:' || encode(unique_key, 'hex') "
            "FROM relay_job WHERE id = %s",
            (first.id,),
        ).fetchone()

    assert found == (True,)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_10_000_jobs_tell_by_position_which_are_duplicates(is_async: bool) -> None:
    rule = Unique(on=("user_id",))
    first = {number: add(rule, number).id for number in range(0, 5_000, 1_000)}
    # Each number twice, so that half are duplicates of earlier ones of these.
    keyed = sync.using(unique=rule)
    requests = [keyed.job(place // 2, place) for place in range(10_000)]

    with CaptureQueriesContext(connection) as captured:
        if is_async:
            handles = async_to_sync(aenqueue_many)(requests)
        else:
            handles = enqueue_many(requests)

    assert len(captured) < 10
    for place, handle in enumerate(handles):
        number = place // 2
        assert handle.is_duplicate == (number in first), place
        assert handle.id == first.setdefault(number, handle.id), place
    assert Job.objects.count() == len(first) == 5_000

"""What a claim takes, what it leaves, and in which order."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connections

from relay.codec import decode_arguments
from relay.engine import finish, lease, promote, prune
from relay.engine.claim import (
    CLAIM,
    ClaimedJob,
    Marks,
    QueueOrder,
    read_claimed,
    send_claim,
)
from relay.engine.connection import EngineConnection, connect
from relay.exceptions import DecodeError
from relay.ids import uuid7
from tests.engine.rows import (
    add_jobs,
    add_worker,
    claim,
    everything,
    job_row,
    other_session,
    states,
)

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])

# Each makes the planner join the picked ids with the table in another way.
PLANS = {
    "nested loop": ["hashjoin", "mergejoin", "hashagg", "sort", "material"],
    "hash join": ["nestloop", "mergejoin"],
    "merge join": ["nestloop", "hashjoin"],
    "table scan": ["indexscan", "bitmapscan", "indexonlyscan"],
}


def test_claim_takes_the_highest_priority_first_and_then_what_became_ready_first(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    low = add_jobs(duty, 3, priority=-5)
    middle = add_jobs(duty, 3)
    high = add_jobs(duty, 3, priority=100)

    claimed = claim(hot, worker_id, limit=8)

    assert [job.id for job in claimed] == [*high, *middle, *low[:2]]


def test_claim_takes_the_queues_in_the_order_given(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    first = add_jobs(duty, 2, queue="bulk", priority=100)
    second = add_jobs(duty, 2, queue="mail", priority=-100)
    add_jobs(duty, 2, queue="other")

    claimed = claim(hot, worker_id, queues=("mail", "bulk"))

    assert [job.id for job in claimed] == [*second, *first]


def test_claim_writes_the_token_and_returns_what_is_needed_to_run(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [job_id] = add_jobs(
        duty, attempt=4, failures=2, crashes=1, max_retries=7, args='{"args": [1.5]}'
    )
    before = job_row(duty, job_id)

    [job] = claim(hot, worker_id)

    row = job_row(duty, job_id)
    assert row["started_at"] is not None
    assert row == {
        **before,
        "state": "running",
        "attempt": 5,
        "worker_id": str(worker_id),
        "started_at": row["started_at"],
    }
    assert job._asdict() == {
        "id": job_id,
        "task": "tests.noop",
        "queue": "default",
        "priority": 0,
        "ready_seq": before["ready_seq"],
        "attempt": 5,
        "args": {"args": [1.5]},
        "failures": 2,
        "crashes": 1,
        "max_retries": 7,
        "timeout_ms": None,
        "deadline_at": None,
        "start_by": None,
        "wait_s": job.wait_s,
        "trace": None,
    }
    assert 0 <= job.wait_s < 3600


@pytest.mark.parametrize(
    "state",
    ["blocked", "scheduled", "running", "retrying", "completed", "failed", "cancelled"],
)
def test_claim_takes_only_queued_jobs(
    hot: EngineConnection, duty: EngineConnection, state: str
) -> None:
    worker_id = add_worker(duty)
    add_jobs(duty, state=state, worker_id=uuid7())
    before = everything(duty)

    assert claim(hot, worker_id) == []

    assert everything(duty) == before


def test_claim_leaves_jobs_with_a_concurrency_key_to_the_keyed_claim(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    add_jobs(duty, concurrency_key="tenant-1")

    assert claim(hot, worker_id) == []


@pytest.mark.parametrize("state", ["lost", "stopped", None])
def test_claim_gives_nothing_to_a_worker_that_is_lost_stopped_or_has_no_row(
    hot: EngineConnection, duty: EngineConnection, state: str | None
) -> None:
    worker_id = add_worker(duty, state=state) if state else uuid7()
    add_jobs(duty, 3)

    with hot.transaction(), other_session() as other:
        claimed = claim(hot, worker_id)
        free = _count_unlocked(other, "queued")

    assert claimed == []
    assert free == 3


@pytest.mark.parametrize("state", ["running", "quiet", "draining"])
def test_claim_leaves_it_to_a_live_worker_whether_to_claim(
    hot: EngineConnection, duty: EngineConnection, state: str
) -> None:
    worker_id = add_worker(duty, state=state)
    add_jobs(duty)

    assert len(claim(hot, worker_id)) == 1


# --- the limit ---


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("limit", [1, 7])
def test_failure_110_claim_takes_no_more_than_its_limit_whatever_the_plan(
    duty: EngineConnection, plan: str, limit: int
) -> None:
    worker_id = add_worker(duty)
    add_jobs(duty, 60)
    add_jobs(duty, 40, priority=3)
    duty.execute("ANALYZE relay_job")

    with other_session() as session:
        for setting in PLANS[plan]:
            session.execute(f"SET enable_{setting} = off")
        taken = session.execute(
            CLAIM,
            {
                "queues": ["default", "default"],
                "high": [100, 0],
                "low": [1, -100],
                "marks": [-1, -1],
                "limit": limit,
                "worker_id": worker_id,
            },
        ).rowcount

    assert taken == limit
    assert states(duty) == {"queued": 100 - limit, "running": limit}


def test_claim_locks_exactly_the_rows_it_returns(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    for queue in ("mail", "bulk"):
        for priority in (5, 0):
            add_jobs(duty, 30, queue=queue, priority=priority)
    marks = Marks()
    claim(hot, worker_id, limit=1, queues=("mail", "bulk"), marks=marks)

    with hot.transaction(), other_session() as other:
        claimed = claim(hot, worker_id, limit=40, queues=("mail", "bulk"), marks=marks)
        free = _count_unlocked(other, "queued")

    assert len(claimed) == 40
    assert free == 120 - 1 - 40


def _count_unlocked(session: psycopg.Connection[Any], state: str) -> int:
    return len(
        session.execute(
            "SELECT FROM relay_job WHERE state = %s FOR UPDATE SKIP LOCKED", (state,)
        ).fetchall()
    )


def test_claim_passes_over_rows_that_another_claim_holds(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    first, second = add_worker(duty), add_worker(duty)
    job_ids = add_jobs(duty, 6)

    with connect("default", role="hot", name="other") as other, other.transaction():
        theirs = claim(other, first, limit=4)
        ours = claim(hot, second, limit=4)

    assert [job.id for job in theirs] == job_ids[:4]
    assert [job.id for job in ours] == job_ids[4:]


def test_claim_is_not_kept_from_a_job_by_an_uncommitted_child_row(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    job_ids = add_jobs(duty, 1)

    with other_session(autocommit=False) as child:
        # What a foreign key to relay_job would do on insert.
        child.execute("SELECT FROM relay_job FOR KEY SHARE")
        claimed = claim(hot, worker_id)

    assert [job.id for job in claimed] == job_ids


# --- paused queues ---


@pytest.mark.parametrize(
    ("paused_until", "is_served"),
    [(None, False), ("1 hour", False), ("-1 second", True)],
)
def test_claim_does_not_search_a_queue_while_it_is_paused(
    hot: EngineConnection,
    duty: EngineConnection,
    paused_until: str | None,
    is_served: bool,
) -> None:
    worker_id = add_worker(duty)
    paused = add_jobs(duty, 2, queue="mail", priority=9)
    others = add_jobs(duty, 2, queue="bulk")
    duty.execute(
        "INSERT INTO relay_queue (name, paused_at, paused_until) "
        "VALUES ('mail', now(), now() + %s::interval), ('bulk', NULL, NULL)",
        (paused_until,),
    )

    claimed = claim(hot, worker_id, queues=("mail", "bulk"))

    assert [job.id for job in claimed] == ([*paused, *others] if is_served else others)


def test_claim_serves_a_queue_again_once_it_is_resumed(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    marks = Marks()
    add_jobs(duty, 2)
    claim(hot, worker_id, marks=marks)
    job_ids = add_jobs(duty, 2)
    duty.execute("UPDATE relay_queue SET paused_at = now()")
    assert claim(hot, worker_id, marks=marks) == []

    duty.execute("UPDATE relay_queue SET paused_at = NULL")

    assert [job.id for job in claim(hot, worker_id, marks=marks)] == job_ids


# --- the database around it ---


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_failure_143_claim_works_where_the_alias_asks_for_stricter_isolation(
    duty: EngineConnection, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker_id = add_worker(duty)
    add_jobs(duty, 2)
    options = connections["default"].settings_dict["OPTIONS"]
    monkeypatch.setitem(
        options,
        "options",
        f"-c default_transaction_isolation={level.replace(' ', chr(92) + ' ')}",
    )

    with connect("default", role="hot", name="strict") as strict, strict.transaction():
        # Under the alias's level this fixes the snapshot; then the candidates change.
        strict.execute("SELECT count(*) FROM relay_job")
        duty.execute("UPDATE relay_job SET progress = '1'")
        claimed = claim(strict, worker_id)

    assert len(claimed) == 2


def test_failure_111_sequences_past_what_an_int4_holds(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    beyond = 3_000_000_000
    for sequence in (
        "relay_ready_seq",
        "relay_attempt_id_seq",
        "relay_history_id_seq",
    ):
        duty.execute(f"ALTER SEQUENCE {sequence} RESTART WITH {beyond}")
    worker_id = add_worker(duty)
    marks = Marks()
    add_jobs(duty, 5)
    add_jobs(duty, 1, state="scheduled")

    promoted, [ready] = promote.promote(duty)
    claimed = claim(hot, worker_id, marks=marks)
    with hot.block():
        sent = finish.send_completed(
            hot,
            [finish.Completed(job.id, job.attempt, "1", 0.5) for job in claimed[:2]],
            worker_id=worker_id,
        )
        sent += finish.send_settled(
            hot,
            [
                finish.Settled(id=job.id, attempt=job.attempt, verb=verb)
                for job, verb in zip(claimed[2:4], ("fail", "release"), strict=True)
            ],
            worker_id=worker_id,
            hand_back_limit=timedelta(days=1),
        )
    again = claim(hot, worker_id, marks=marks)
    duty.execute(
        "UPDATE relay_job SET expires_at = '2026-01-01' WHERE state = 'failed'"
    )

    assert promoted == 1
    assert ready.ready_seq >= beyond
    assert len(finish.read_finished(sent)) == 4
    assert [job.id for job in again] == [claimed[3].id]
    assert prune.prune_jobs(duty) == 1
    assert lease.take(duty, uuid7(), loss_limit=9) == (0, [])
    duty.execute("ALTER SEQUENCE relay_ready_seq RESTART WITH 1")


@pytest.mark.parametrize(
    "args",
    ['{"args": [1e5000]}', '{"args": ' + "[" * 3_000 + "]" * 3_000 + "}"],
    ids=["digits", "depth"],
)
def test_arguments_that_python_cannot_hold_spoil_only_their_own_job(
    hot: EngineConnection, duty: EngineConnection, args: str
) -> None:
    worker_id = add_worker(duty)
    add_jobs(duty, args=args)
    add_jobs(duty, args='{"args": [7]}')

    bad, good = claim(hot, worker_id)

    assert good.args == {"args": [7]}
    # None, or what this Python's parser could still hold.
    with pytest.raises(DecodeError):
        decode_arguments(bad.args)


def test_failure_082_claim_that_waits_for_a_lock_too_long_takes_nothing(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    add_jobs(duty, 3)
    hot.execute("SET statement_timeout = '100ms'")

    with other_session(autocommit=False) as other:
        other.execute("LOCK TABLE relay_job IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(psycopg.errors.QueryCanceled), hot.block():
            send_claim(hot, Marks().spans(["default"]), limit=3, worker_id=worker_id)

    assert states(duty) == {"queued": 3}
    hot.execute("RESET statement_timeout")
    assert len(claim(hot, worker_id)) == 3


def test_read_claimed_sorts_by_the_order_of_queues_priority_and_readiness() -> None:
    rows = [
        ClaimedJob(uuid7(), "t", queue, priority, seq, 1, {}, 0, 0, 0)
        for queue in ("a", "b")
        for priority in (-1, 3)
        for seq in (9, 5)
    ]

    class Answer:
        def fetchall(self) -> list[tuple[Any, ...]]:
            return random.Random(4).sample(rows, len(rows))

    jobs = read_claimed(Answer(), ["b", "a"])

    assert [(job.queue, job.priority, job.ready_seq) for job in jobs] == [
        ("b", 3, 5),
        ("b", 3, 9),
        ("b", -1, 5),
        ("b", -1, 9),
        ("a", 3, 5),
        ("a", 3, 9),
        ("a", -1, 5),
        ("a", -1, 9),
    ]


# --- the order of queues ---


def test_weighted_queues_come_first_as_often_as_their_weights_say() -> None:
    weights = {"critical": 6, "default": 3, "low": 1}
    order = QueueOrder(weights, rng=random.Random(20261129))
    draws = 50_000

    first = Counter(order.next()[0] for _ in range(draws))

    for name, weight in weights.items():
        assert first[name] / draws == pytest.approx(weight / 10, rel=0.05)


def test_weighted_queues_are_each_searched_once_in_every_claim() -> None:
    order = QueueOrder({"a": 1, "b": 1000, "c": 5}, rng=random.Random(1))

    assert all(sorted(order.next()) == ["a", "b", "c"] for _ in range(100))


def test_strict_queues_keep_the_order_given() -> None:
    order = QueueOrder({"low": 1, "critical": 6}, strict=True)

    assert {tuple(order.next()) for _ in range(50)} == {("low", "critical")}

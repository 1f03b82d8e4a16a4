"""Queues that are first in, first out, and queues in weighted and strict order."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from relay.engine import pause, policy, replay
from relay.engine.claim import Marks, QueueOrder, read_claimed, send_claim
from relay.engine.connection import EngineConnection
from relay.engine.enqueue import insert, insert_many, insert_with
from relay.engine.new_job import NewJob
from relay.engine.policy import set_policy
from relay.exceptions import UnknownQueue
from relay.ids import uuid7
from relay.models import History, Job, Queue
from relay.unique import Unique, UniqueKey
from tests.engine import rows

pytestmark = pytest.mark.django_db(transaction=True)

WEIGHTS = {"critical": 6, "default": 3, "low": 1}


def new_job(priority: int = 5, **changes: Any) -> NewJob:
    values: dict[str, Any] = {"queue": "default", "args": rows.NO_ARGUMENTS}
    values["max_retries"] = 0
    values |= {"id": uuid7(), "task": "tests.noop", "priority": priority}
    return NewJob(**values | changes)


def make_fifo(queue: str = "default") -> bool:
    return set_policy(queue, "fifo", actor="ada", using="default")


def priorities() -> set[int]:
    return set(Job.objects.values_list("priority", flat=True))


def claimed(hot: EngineConnection, queues: Sequence[str], limit: int = 1) -> list[UUID]:
    worker = rows.add_worker(hot)
    return [job.id for job in rows.claim(hot, worker, queues=queues, limit=limit)]


# --- weights and strict order --------------------------------------------------------


@pytest.mark.slow
def test_weights_6_3_1_give_60_30_10_percent_of_1000_claims(
    hot: EngineConnection,
) -> None:
    for queue in WEIGHTS:
        rows.add_jobs(hot, 1_000, queue=queue)
    worker, marks = rows.add_worker(hot), Marks()
    order = QueueOrder(WEIGHTS, rng=random.Random(20261129))

    counts: Counter[str] = Counter()
    for _ in range(1_000):
        queues = order.next()
        spans = marks.spans(queues)
        cursor = send_claim(hot, spans, limit=1, worker_id=worker)
        jobs = read_claimed(cursor, queues)
        marks.note(jobs, limit=1)
        counts.update(job.queue for job in jobs)

    assert counts.total() == 1_000
    for queue, weight in WEIGHTS.items():
        assert abs(counts[queue] - weight * 100) <= 50


def test_strict_order_gives_nothing_to_lower_queues_until_higher_are_empty(
    hot: EngineConnection,
) -> None:
    for queue in reversed(WEIGHTS):
        rows.add_jobs(hot, 25, queue=queue)
    worker, marks = rows.add_worker(hot), Marks()
    order = QueueOrder(WEIGHTS, strict=True)

    taken = [
        job.queue
        for _ in range(11)
        for job in rows.claim(hot, worker, queues=order.next(), limit=7, marks=marks)
    ]

    assert taken == ["critical"] * 25 + ["default"] * 25 + ["low"] * 25


def test_a_pause_ends_by_itself_by_the_database_s_clock(hot: EngineConnection) -> None:
    [job_id] = rows.add_jobs(hot)
    until = datetime.now(UTC) + timedelta(hours=1)
    pause.pause("default", until=until, actor=None, using="default")
    while_paused = claimed(hot, ["default"])

    # The instant is stored, and compared with the clock of the server.
    hot.execute("UPDATE relay_queue SET paused_until = clock_timestamp()")

    assert while_paused == []
    assert claimed(hot, ["default"]) == [job_id]


# --- fifo ----------------------------------------------------------------------------


def test_a_fifo_queue_stores_priority_0_however_a_job_is_enqueued(
    hot: EngineConnection,
) -> None:
    make_fifo()
    key = UniqueKey(key=b"k" * 16, rule=Unique())

    insert(new_job(), using="default")
    insert(new_job(tags=("a",)), using="default")
    insert(new_job(run_in=timedelta(hours=1)), using="default")
    insert(new_job(unique=key), using="default")
    insert_with(hot, new_job())
    insert_many([new_job(), new_job(-5)], using="default")
    insert_many([new_job(), new_job(run_in=timedelta(hours=1))], using="default")

    assert Job.objects.count() == 9
    assert priorities() == {0}


def test_other_queues_keep_their_priorities(hot: EngineConnection) -> None:
    make_fifo()
    pause.pause("mail", actor=None, using="default", known=["mail"])
    key = UniqueKey(key=b"k" * 16, rule=Unique())

    insert(new_job(queue="mail"), using="default")
    insert(new_job(queue="mail", tags=("a",)), using="default")
    insert(new_job(queue="mail", unique=key), using="default")
    insert_many([new_job(queue="mail"), new_job(queue="none")], using="default")

    assert priorities() == {5}


def test_an_enqueue_asks_nothing_more_for_the_policy() -> None:
    with CaptureQueriesContext(connection) as queries:
        insert(new_job(), using="default")
        insert(new_job(0), using="default")

    inserts = [one["sql"] for one in queries if one["sql"].startswith("\nINSERT")]
    assert len(queries) == 2 + sum("pg_notify" in one["sql"] for one in queries)
    assert ["relay_queue" in sql for sql in inserts] == [True, False]


def test_a_switch_to_fifo_gives_ready_jobs_their_order_of_becoming_ready(
    hot: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "FLATTEN_BATCH", 2)
    ids = [
        rows.add_jobs(hot, priority=priority)[0] for priority in (0, -3, 7, 0, 100, 0)
    ]
    marks, worker = Marks(), rows.add_worker(hot)
    [first] = rows.claim(hot, worker, limit=1, marks=marks)

    assert make_fifo()

    taken = [job.id for job in rows.claim(hot, worker, marks=marks)]
    assert first.id == ids[4]
    assert taken == [job_id for job_id in ids if job_id != first.id]
    assert priorities() == {0}


def test_a_switch_to_fifo_counts_for_what_comes_back_later(
    hot: EngineConnection,
) -> None:
    worker = rows.add_worker(hot)
    for state in ("scheduled", "retrying"):
        rows.add_jobs(hot, state=state, priority=9)
    [running] = rows.hold(hot, worker, priority=9)
    [done] = rows.add_jobs(hot, state="completed", priority=9)
    before = rows.job_row(hot, running)

    make_fifo()

    kept = Job.objects.filter(priority=9)
    assert [job.id for job in kept] == [done]
    assert rows.job_row(hot, running) == before | {"priority": 0}


def test_a_switch_leaves_other_queues_and_a_second_one_changes_nothing(
    hot: EngineConnection,
) -> None:
    rows.add_jobs(hot, queue="mail", priority=9)
    rows.add_jobs(hot, 3, priority=1)
    first = make_fifo()
    before = rows.everything(hot)

    second = make_fifo()

    assert (first, second) == (True, False)
    assert rows.everything(hot) == before
    assert priorities() == {0, 9}
    assert list(History.objects.values_list("event", "actor", "detail")) == [
        ("policy", "ada", {"queue": "default", "policy": "fifo"})
    ]


def test_a_switch_keeps_little_of_each_job_in_memory(
    hot: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "FLATTEN_BATCH", 100)
    rows.add_jobs(hot, 10, priority=5)
    make_fifo()  # once before: what is loaded only then does not count
    Queue.objects.update(policy="priority")
    rows.add_jobs(hot, 5_000, priority=5)

    tracemalloc.start()
    try:
        make_fifo()
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert priorities() == {0}
    assert most_bytes < 5_000 * 80


def test_a_switch_rolls_back_with_its_caller(hot: EngineConnection) -> None:
    rows.add_jobs(hot, priority=9)

    with transaction.atomic():
        make_fifo()
        transaction.set_rollback(True)

    assert priorities() == {9}
    assert not Queue.objects.exists()


def test_a_replay_in_a_fifo_queue_stores_priority_0(hot: EngineConnection) -> None:
    [done] = rows.add_jobs(hot, state="completed", priority=9)
    before = replay.replay(done, actor=None, using="default")
    hot.execute("UPDATE relay_job SET state = 'completed', finished_at = now()")
    make_fifo()

    after = replay.replay(done, actor=None, using="default")

    assert rows.job_row(hot, before)["priority"] == 9
    assert rows.job_row(hot, after)["priority"] == 0


def test_back_to_priority_counts_from_the_next_enqueue_on() -> None:
    make_fifo()
    insert(new_job(), using="default")

    set_policy("default", "priority", actor="ada", using="default")
    insert(new_job(), using="default")

    assert priorities() == {0, 5}


def test_policies_are_for_known_queues_and_known_words() -> None:
    with pytest.raises(UnknownQueue):
        make_fifo("defualt")
    with pytest.raises(ValueError, match="'lifo' is no policy"):
        set_policy("default", "lifo", actor=None, using="default")  # type: ignore[arg-type] # a caller's slip
    assert set_policy(
        "of-a-task", "fifo", actor=None, using="default", known=["of-a-task"]
    )

"""Whatever locks several rows does so in the order of ids, so that none go in a circle.

In each test one of two sessions is stopped in the middle of its locks, by a row that a
third one holds; the other runs into it; then the third lets go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection

from relay import Unique, enqueue_many, task, traces
from relay.engine import control, holdings, lease, workers
from relay.engine.claim import ClaimedJob
from relay.engine.connection import EngineConnection
from relay.engine.finish import Completed, Outcome, Settled
from relay.ids import uuid7
from relay.worker.hands import Hands
from relay.worker.pool import NOT_STARTED, Ended
from relay.worker.shared import SharedState
from tests.engine.rows import (
    LEASE,
    add_jobs,
    add_worker,
    hold,
    job_row,
    other_session,
    states,
    wait_until_blocked,
)

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])

InThread = Callable[[Callable[[], Any]], "Future[Any]"]


@task(name="tests.order.keyed")
def keyed(number: int) -> None: ...


@contextmanager
def held_row(table: str, row_id: UUID) -> Iterator[psycopg.Connection[Any]]:
    """Hold a row until the session that is given commits."""
    with other_session(autocommit=False) as gate:
        gate.execute(
            f"SELECT FROM {table} WHERE id = %s FOR NO KEY UPDATE".encode(), (row_id,)
        )
        yield gate


def cross(
    in_thread: InThread,
    watch: psycopg.Connection[Any],
    let_go: Callable[[], None],
    first: Callable[[], Any],
    second: Callable[[], Any],
) -> tuple[Any, Any]:
    """Start the second where the first waits, let go, and return what both return."""
    futures = []
    for count, side in enumerate((first, second), 1):
        futures.append(in_thread(partial(_closing, side)))
        wait_until_blocked(watch, count)
    let_go()
    return futures[0].result(timeout=60), futures[1].result(timeout=60)


def _closing(side: Callable[[], Any]) -> Any:
    try:
        return side()
    finally:
        connection.close()  # Django's, of this thread


# --- a batch of ends -----------------------------------------------------------------

# How the later of two jobs ends, by a statement that is sent before the earlier one's.
MIXES: dict[str, tuple[Callable[[UUID], Outcome], Callable[[UUID], Outcome]]] = {
    "completed, retry": (
        lambda one: Completed(one, 1, "1", None),
        lambda one: Settled(id=one, attempt=1, verb="retry"),
    ),
    "completed, crash": (
        lambda one: Completed(one, 1, "1", None),
        lambda one: Settled(id=one, attempt=1, verb="crash", error_message="died"),
    ),
    "crash, retry": (
        lambda one: Settled(id=one, attempt=1, verb="crash", error_message="died"),
        lambda one: Settled(id=one, attempt=1, verb="retry"),
    ),
    "kept, deleted": (
        lambda one: Completed(one, 1, "1", None),
        lambda one: Completed(one, 1, "1", 0),
    ),
    "kept, result first": (
        lambda one: Completed(one, 1, "1", None),
        lambda one: Completed(one, 1, "1", 90, 30),
    ),
}


def ended(job_id: UUID, outcome: Outcome) -> Ended:
    job = ClaimedJob(
        job_id, "tests.noop", "default", 0, 1, 1, {"args": [], "kwargs": {}}, 0, 0, 25
    )
    return Ended(job, outcome, NOT_STARTED, 0.0)


def cancel_beside(
    in_thread: InThread,
    watch: psycopg.Connection[Any],
    ids: tuple[UUID, UUID, UUID],
    write: Callable[[], Any],
) -> None:
    """Cancel three jobs; once that waits for the second, write how the others end."""
    with held_row("relay_job", ids[1]) as gate:
        report, _ = cross(
            in_thread,
            watch,
            gate.commit,
            lambda: control.cancel_many(ids, actor=None, using="default"),
            write,
        )
    assert report.asked == ids


@pytest.mark.parametrize("mix", MIXES)
def test_a_mixed_batch_of_ends_and_an_act_over_its_jobs_do_not_deadlock(
    mix: str, hot: EngineConnection, duty: EngineConnection, in_thread: InThread
) -> None:
    worker_id = add_worker(duty)
    low, middle, high = sorted(hold(duty, worker_id, 3))
    first, second = MIXES[mix]
    batch = [ended(high, first(high)), ended(low, second(low))]
    hands = Hands(worker_id, SharedState(1, 8).tables[0])

    cancel_beside(in_thread, duty, (low, middle, high), lambda: hands.write(hot, batch))

    assert job_row(duty, middle)["state"] == "running"
    assert states(duty)["running"] == 1


def test_a_mixed_batch_of_ends_and_its_child_s_settlement_do_not_deadlock(
    hot: EngineConnection, duty: EngineConnection, in_thread: InThread
) -> None:
    worker_id = add_worker(duty)
    low, middle, high = sorted(hold(duty, worker_id, 3))
    first, second = MIXES["completed, retry"]
    batch = [ended(high, first(high)), ended(low, second(low))]
    hands = Hands(worker_id, SharedState(1, 8).tables[0])
    child = holdings.DeadChild(
        worker_id=worker_id, started=[], is_charged=False, reason="killed"
    )

    with held_row("relay_job", middle) as gate, other_session() as watch:
        (count, _), _ = cross(
            in_thread,
            watch,
            gate.commit,
            lambda: holdings.settle_dead_child(duty, child, crash_limit=3),
            lambda: hands.write(hot, batch),
        )

    assert count == 3
    assert states(duty) == {"queued": 3}


class Spans:
    """Of a tracer: what it knows of one attempt, and nothing of others."""

    is_on = True

    def __init__(self, job_id: UUID) -> None:
        self._job_id = job_id

    def ran(self, job_id: UUID, attempt: int) -> str | None:
        return "00-1-2-01" if job_id == self._job_id else None

    def settle(self, *_: object) -> None: ...


def test_a_batch_of_ends_with_spans_and_an_act_over_its_jobs_do_not_deadlock(
    hot: EngineConnection,
    duty: EngineConnection,
    in_thread: InThread,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker_id = add_worker(duty)
    low, middle, high = sorted(hold(duty, worker_id, 3))
    # The later one's span is written before either end.
    batch = [
        ended(high, Settled(id=high, attempt=1, verb="retry")),
        ended(low, Settled(id=low, attempt=1, verb="release")),
    ]
    hands = Hands(worker_id, SharedState(1, 8).tables[0])
    monkeypatch.setattr(traces, "_tracer", Spans(high))

    cancel_beside(in_thread, duty, (low, middle, high), lambda: hands.write(hot, batch))

    assert states(duty) == {"running": 1, "cancelled": 2}
    assert job_row(duty, high)["meta"] == {"otel": {"previous": "00-1-2-01"}}


# --- unique keys ---------------------------------------------------------------------


@pytest.mark.parametrize("state", ["queued", "completed"])
def test_a_bulk_that_changes_or_frees_keys_and_an_act_do_not_deadlock(
    state: str, duty: EngineConnection, in_thread: InThread
) -> None:
    bound = keyed.using(unique=Unique(on_conflict="replace"))
    enqueue_many([bound.job(number) for number in range(3)])
    keys = duty.execute("SELECT id FROM relay_job ORDER BY unique_key DESC").fetchall()
    # The order of the ids is that of the keys the other way round.
    ids = sorted(uuid7() for _ in keys)
    for (old,), new in zip(keys, ids, strict=True):
        duty.execute(
            "UPDATE relay_job SET id = %s, state = %s WHERE id = %s", (new, state, old)
        )

    with held_row("relay_job", ids[1]) as gate:
        report, made = cross(
            in_thread,
            duty,
            gate.commit,
            lambda: control.cancel_many(ids, actor=None, using="default"),
            lambda: enqueue_many([bound.job(number) for number in range(3)]),
        )

    assert len(report.done) == (3 if state == "queued" else 0)
    assert not any(handle.is_duplicate for handle in made)


@pytest.mark.parametrize("on_conflict", ["replace", "return"])
def test_a_bulk_that_changes_one_key_and_frees_another_and_an_act_do_not_deadlock(
    on_conflict: Any, duty: EngineConnection, in_thread: InThread
) -> None:
    replaced = keyed.using(unique=Unique(on_conflict="replace"))
    # The rule of the job whose key is over: its holder is not changed, but freed.
    other = keyed.using(unique=Unique(on_conflict=on_conflict))
    made = enqueue_many([replaced.job(number) for number in range(3)])
    ids = sorted(uuid7() for _ in made)
    for handle, new, state in zip(
        made, ids, ("completed", "queued", "queued"), strict=True
    ):
        duty.execute(
            "UPDATE relay_job SET id = %s, state = %s WHERE id = %s",
            (new, state, handle.id),
        )

    with held_row("relay_job", ids[1]) as gate:
        report, again = cross(
            in_thread,
            duty,
            gate.commit,
            lambda: control.cancel_many(ids, actor=None, using="default"),
            lambda: enqueue_many([other.job(0), replaced.job(2)]),
        )

    assert report.done == tuple(ids[1:])
    assert not any(handle.is_duplicate for handle in again)


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_retry_that_takes_keys_again_and_a_bulk_that_enqueues_them_do_not_deadlock(
    one_by_one: bool, duty: EngineConnection, in_thread: InThread
) -> None:
    bound = keyed.using(unique=Unique())
    for number in range(4):
        bound.enqueue(number)
    rows = duty.execute(
        "SELECT id, unique_key, (args->'args'->>0)::int FROM relay_job "
        "ORDER BY unique_key DESC"
    ).fetchall()
    # By their ids, and as they became ready, in the order of their keys the other way.
    ids = sorted(uuid7() for _ in rows)
    for place, (old, _, _) in enumerate(rows):
        duty.execute(
            "UPDATE relay_job SET id = %s, state = 'failed', unique_key = NULL, "
            "ready_seq = %s WHERE id = %s",
            (ids[place], place, old),
        )
    if one_by_one:  # as the first key is taken
        add_jobs(duty, unique_key=rows[-1][1])
    jobs = [bound.job(number) for _, _, number in rows[:-1]]

    with other_session(autocommit=False) as gate:
        add_jobs(gate, unique_key=rows[1][1])
        report, made = cross(
            in_thread,
            duty,
            gate.rollback,
            lambda: control.retry_many(ids, actor=None, using="default"),
            lambda: enqueue_many(jobs),
        )

    assert report.done == tuple(ids[:-1] if one_by_one else ids)
    assert [handle.id for handle in made] == ids[:-1]


def test_a_retry_one_by_one_locks_jobs_and_who_has_their_keys_in_one_order(
    duty: EngineConnection, in_thread: InThread
) -> None:
    key = b"k" * 16
    scope = f"finished:{key.hex()}"
    ids = sorted(add_jobs(duty, 3, state="failed", unique_scope=scope))
    low, holder = ids[0], ids[2]
    duty.execute("UPDATE relay_job SET unique_key = %s WHERE id = %s", (key, holder))

    with held_row("relay_job", holder) as gate:
        future = in_thread(
            lambda: _closing(
                lambda: control.retry_many(ids[:2], actor=None, using="default")
            )
        )
        wait_until_blocked(duty)
        free = duty.execute(
            "SELECT id FROM relay_job ORDER BY id FOR NO KEY UPDATE SKIP LOCKED"
        ).fetchall()
        gate.commit()
        report = future.result(timeout=60)

    assert free == []
    assert report.done == (low,)


# --- workers -------------------------------------------------------------------------


def test_what_is_asked_of_a_worker_and_its_renewal_do_not_deadlock(
    duty: EngineConnection, in_thread: InThread
) -> None:
    ids = sorted(uuid7() for _ in range(3))
    # Where they stand in the table is the other way round.
    for worker_id in reversed(ids):
        add_worker(duty, worker_id=worker_id)
    duty.execute("UPDATE relay_worker SET supervisor = %s", (uuid7(),))

    with held_row("relay_worker", ids[1]) as gate, other_session() as watch:
        asked, renewed = cross(
            in_thread,
            watch,
            gate.commit,
            lambda: workers.ask(ids[0], "quiet", using="default"),
            lambda: lease.renew(duty, ids, lease=LEASE),
        )

    assert [row[0] for row in asked] == ids
    assert renewed == set(ids)

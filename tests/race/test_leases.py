"""Finish, retry, renewal, give-up and take against each other, on committed rows."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from relay.engine import holdings, lease
from relay.engine.connection import EngineConnection, connect
from relay.engine.finish import (
    Completed,
    Settled,
    read_finished,
    send_completed,
    send_settled,
)
from relay.ids import uuid7
from tests.engine.rows import LEASE, add_worker, hold, states

pytestmark = [
    pytest.mark.django_db(transaction=True, available_apps=["relay"]),
    pytest.mark.slow,
]

ROUNDS = 1_000
OVER = timedelta(seconds=-1)


def race(*sides: Callable[[int], Any], rounds: int = ROUNDS) -> list[tuple[Any, ...]]:
    """Run all sides of each round at once; return what each round's sides returned."""
    barrier = threading.Barrier(len(sides), timeout=60)

    def run(side: Callable[[int], Any]) -> list[Any]:
        results = []
        try:
            for number in range(rounds):
                barrier.wait()
                results.append(side(number))
        except BaseException:
            barrier.abort()
            raise
        return results

    with ThreadPoolExecutor(len(sides)) as pool:
        columns = [future.result() for future in [pool.submit(run, s) for s in sides]]
    return list(zip(*columns, strict=True))


def complete(session: EngineConnection, worker_id: UUID, job_id: UUID) -> bool:
    sent = send_completed(
        session, [Completed(job_id, 1, "1", None)], worker_id=worker_id
    )
    return job_id in read_finished(sent)


def retry(session: EngineConnection, worker_id: UUID, job_id: UUID) -> bool:
    outcome = Settled(id=job_id, attempt=1, verb="retry", is_charged=True)
    sent = send_settled(
        session, [outcome], worker_id=worker_id, hand_back_limit=timedelta(days=1)
    )
    return job_id in read_finished(sent)


def take(session: EngineConnection, worker_id: UUID) -> bool:
    return lease.take(session, worker_id, loss_limit=10)[0] == 1


def held_each_by_a_worker_without_a_row(
    session: EngineConnection, count: int
) -> list[tuple[UUID, UUID]]:
    """Return (worker, job) pairs: every job can be finished, and taken."""
    pairs = []
    for _ in range(count):
        worker_id = uuid7()
        [job_id] = hold(session, worker_id)
        pairs.append((worker_id, job_id))
    return pairs


def test_b03_finish_and_take_race_and_exactly_one_wins(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    pairs = held_each_by_a_worker_without_a_row(duty, ROUNDS)

    results = race(
        lambda number: complete(hot, *pairs[number]),
        lambda number: take(duty, pairs[number][0]),
    )

    # A take that meets the open finish skips the row; nobody's turn is lost.
    finished = sum(is_finished for is_finished, _ in results)
    taken = sum(is_taken for _, is_taken in results)
    assert [sides for sides in results if sum(sides) != 1] == []
    assert Counter(states(duty)) == Counter(completed=finished, queued=taken)
    assert _children(duty, "relay_attempt") == _children(duty, "relay_history") == taken


def test_failure_077_retry_and_take_race_and_exactly_one_settles_the_job(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    pairs = held_each_by_a_worker_without_a_row(duty, 200)

    results = race(
        lambda number: retry(hot, *pairs[number]),
        lambda number: take(duty, pairs[number][0]),
        rounds=200,
    )

    retried = sum(is_retried for is_retried, _ in results)
    assert [sides for sides in results if sum(sides) != 1] == []
    assert Counter(states(duty)) == Counter(retrying=retried, queued=200 - retried)
    assert _children(duty, "relay_attempt") == _children(duty, "relay_history") == 200
    charged = duty.execute("SELECT sum(failures), sum(losses) FROM relay_job")
    assert charged.fetchone() == (retried, 200 - retried)


def test_failure_077_five_reapers_at_once_take_each_job_once(
    duty: EngineConnection,
) -> None:
    for _ in range(5):
        hold(duty, add_worker(duty, lease_for=OVER), 100)
    connections = [connect("default", role="duty", name="reaper") for _ in range(5)]

    def reap(session: EngineConnection) -> int:
        lost = lease.give_up(session)
        return sum(
            lease.take(session, worker_id, loss_limit=10, limit=30)[0]
            for _ in range(20)
            for worker_id in {*lost, *lease.orphan_holders(session)}
        )

    results = race(*(lambda _, c=one: reap(c) for one in connections), rounds=1)
    for connection in connections:
        connection.close()

    assert sum(results[0]) == 500
    assert states(duty) == {"queued": 500}
    assert _children(duty, "relay_attempt") == _children(duty, "relay_history") == 500
    losses = duty.execute("SELECT DISTINCT losses FROM relay_job").fetchall()
    assert losses == [(1,)]


def test_b01_renewal_and_give_up_race_and_exactly_one_wins(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    workers = [add_worker(duty, lease_for=OVER) for _ in range(ROUNDS)]
    # One at a time: give_up looks at all of them.
    duty.execute("UPDATE relay_worker SET lease_expires_at = now() + interval '1 day'")

    def expire_and_renew(number: int) -> bool:
        barrier.wait()
        kept = lease.renew(hot, [workers[number]], lease=timedelta(days=1))
        return kept == {workers[number]}

    def expire_and_give_up(number: int) -> bool:
        duty.execute(
            "UPDATE relay_worker SET lease_expires_at = now() - interval '1 second' "
            "WHERE id = %s",
            (workers[number],),
        )
        barrier.wait()
        return lease.give_up(duty) == [workers[number]]

    barrier = threading.Barrier(2, timeout=60)
    results = race(expire_and_renew, expire_and_give_up)

    given_up = sum(is_given_up for _, is_given_up in results)
    assert [sides for sides in results if sum(sides) != 1] == []
    lost = duty.execute("SELECT count(*) FROM relay_worker WHERE state = 'lost'")
    assert lost.fetchone() == (given_up,)


def test_reapers_take_nothing_from_workers_with_a_live_lease(
    duty: EngineConnection,
) -> None:
    brief = timedelta(milliseconds=4)
    workers = [add_worker(duty, lease_for=LEASE) for _ in range(20)]
    for worker_id in workers:
        hold(duty, worker_id, 20)
    renewing, reaping = (
        [connect("default", role="duty", name="tests") for _ in range(2)]
        for _ in range(2)
    )
    kept: list[Counter[UUID]] = [Counter(), Counter()]

    def renew(side: int) -> Callable[[int], None]:
        mine = workers[side::2]

        def once(_: int) -> None:
            kept[side].update(lease.renew(renewing[side], mine, lease=brief))

        return once

    def reap(side: int) -> Callable[[int], list[UUID]]:
        def once(_: int) -> list[UUID]:
            lost = lease.give_up(reaping[side])
            for worker_id in workers:
                lease.take(reaping[side], worker_id, loss_limit=99)
            return lost

        return once

    results = race(renew(0), renew(1), reap(0), reap(1), rounds=100)
    for connection in (*renewing, *reaping):
        connection.close()

    # Lost once, by one reaper, and from then on renewed no more; jobs went with it.
    lost = [
        worker_id for sides in results for found in sides[2:] for worker_id in found
    ]
    assert len(lost) == len(set(lost))
    from_live = duty.execute(
        "SELECT count(*) FROM relay_attempt JOIN relay_worker AS worker "
        "ON worker.id = relay_attempt.worker_id WHERE worker.state <> 'lost'"
    )
    assert from_live.fetchone() == (0,)
    assert lease.renew(duty, workers, lease=LEASE) == set(workers) - set(lost)
    assert _children(duty, "relay_attempt") == len(lost) * 20


def test_failure_081_a_dead_child_s_open_finish_and_its_settlement_do_not_deadlock(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    workers = [uuid7() for _ in range(200)]
    batches = [hold(duty, worker_id, 20) for worker_id in workers]

    def finish(number: int) -> int:
        # In the order in which they ended, which is any.
        results = [Completed(one, 1, "1", None) for one in reversed(batches[number])]
        sent = send_completed(hot, results, worker_id=workers[number])
        return len(read_finished(sent))

    def settle(number: int) -> int:
        child = holdings.DeadChild(
            worker_id=workers[number],
            started=[(one, 1) for one in batches[number]],
            is_charged=True,
            reason="killed",
        )
        return holdings.settle_dead_child(duty, child, crash_limit=3)[0]

    results = race(finish, settle, rounds=len(workers))

    assert {sum(sides) for sides in results} == {20}
    finished = sum(sides[0] for sides in results)
    # Counter on both sides: a state that no job is in counts as 0.
    assert Counter(states(duty)) == Counter(completed=finished, queued=4_000 - finished)


def _children(session: EngineConnection, table: str) -> int:
    row = session.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert row is not None
    return int(row[0])

"""Slots shared by threads and coroutines."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from relay import task
from relay.engine.claim import ClaimedJob
from relay.engine.finish import Completed, Outcome, Settled
from relay.exceptions import Cancelled
from relay.ids import uuid7
from relay.worker.interruption import Interruptible
from tests.worker.slots import Bench, Gated, done, jobs, make_job


def leave(failures: int, error: BaseException) -> timedelta:
    raise SystemExit


@task(name="s.leaves", backoff=leave)
def leaves() -> None: ...


@task(name="a.leaves", backoff=leave)
def leaves_too() -> None: ...


@pytest.fixture
def executor() -> Gated:
    return Gated()


@pytest.fixture
def bench(executor: Gated) -> Callable[[int], Bench]:
    return lambda slots: Bench(slots, executor)


@pytest.mark.parametrize(
    "tasks",
    [["s"] * 6, ["a"] * 6, ["s", "a"] * 3, ["s", "s", "s", "a", "a", "a"]],
    ids=["threads", "coroutines", "mixed", "threads first"],
)
def test_no_more_jobs_run_at_once_than_there_are_slots(
    executor: Gated, bench: Callable[[int], Bench], tasks: list[str]
) -> None:
    made = bench(2)

    made.pool.submit(jobs(*tasks), seconds_each=1.0)
    for _ in range(2):
        executor.wait_for_starts(2)
        assert executor.starts_no_more()
        executor.let_end(2)
    executor.wait_for_starts(2)
    executor.let_end(2)
    ended = made.wait_for_ends(6)

    assert executor.most == 2
    assert len({end.job.id for end in ended}) == 6


@pytest.mark.parametrize("kind", ["s", "a"])
def test_jobs_start_in_the_order_in_which_they_were_submitted(
    executor: Gated, bench: Callable[[int], Bench], kind: str
) -> None:
    made = bench(1)
    names = [f"{kind}{number}" for number in range(50)]
    executor.let_end(len(names))

    made.pool.submit(jobs(*names), seconds_each=0.0001)
    made.wait_for_ends(len(names))

    assert list(executor.started) == names


def test_threads_and_coroutines_take_turns_in_one_slot(
    executor: Gated, bench: Callable[[int], Bench]
) -> None:
    made = bench(1)
    made.pool.submit(jobs("s"), seconds_each=1.0)
    executor.wait_for_starts(1)

    made.pool.submit(jobs(*["s"] * 100, *["a"] * 100), seconds_each=1.0)
    executor.let_end(201)
    made.wait_for_ends(201)

    # Neither kind waits for the other to run dry; how often they change is a matter of
    # how the machine's threads come to their turns.
    order = "".join(executor.started)[:100]
    assert "s" * 50 not in order
    assert "a" * 50 not in order


def test_a_long_job_does_not_hold_up_what_was_thought_to_be_as_short(
    executor: Gated, bench: Callable[[int], Bench]
) -> None:
    made = bench(4)

    made.pool.submit(jobs("s1", "s2", "s3"), seconds_each=0.000_01)
    executor.wait_for_starts(1)
    assert executor.starts_no_more()  # one thread was thought to be enough
    made.pool.poke()
    made.pool.poke()
    executor.wait_for_starts(1)
    made.pool.poke()
    made.pool.poke()
    executor.wait_for_starts(1)

    assert list(executor.started) == ["s1", "s2", "s3"]
    executor.let_end(3)
    made.wait_for_ends(3)


def test_poke_tells_whether_what_waits_is_stuck(
    executor: Gated, bench: Callable[[int], Bench]
) -> None:
    made = bench(1)
    made.pool.submit(jobs("s1", "s2"), seconds_each=1.0)
    executor.wait_for_starts(1)

    made.pool.poke()
    assert made.pool.poke()
    executor.let_end(1)
    executor.wait_for_starts(1)
    assert not made.pool.poke()
    assert not made.pool.is_waiting

    executor.let_end(1)
    made.wait_for_ends(2)


@pytest.mark.parametrize("kind", ["s", "a"], ids=["thread", "coroutine"])
def test_nothing_starts_once_the_lease_may_have_run_out(
    kind: str, executor: Gated, bench: Callable[[int], Bench]
) -> None:
    made = bench(2)
    made.shared.lease_safe_until = time.monotonic() - 1

    made.pool.submit(jobs(kind), seconds_each=1.0)
    assert executor.starts_no_more()
    assert made.pool.poke()
    withdrawn = made.pool.withdraw()
    made.shared.lease_safe_until = time.monotonic() + 60
    made.pool.submit(withdrawn, seconds_each=1.0)
    executor.wait_for_starts(1)

    executor.let_end(1)
    assert [end.job for end in made.wait_for_ends(1)] == withdrawn


@pytest.mark.parametrize("kind", ["s", "a"], ids=["thread", "coroutine"])
def test_what_waited_for_the_lease_starts_once_it_is_renewed(
    kind: str, executor: Gated, bench: Callable[[int], Bench]
) -> None:
    made = bench(2)
    made.shared.lease_safe_until = time.monotonic() - 1
    made.pool.submit(jobs(kind), seconds_each=1.0)
    assert executor.starts_no_more()

    made.shared.lease_safe_until = time.monotonic() + 60
    made.pool.poke()
    made.pool.poke()
    executor.wait_for_starts(1)

    executor.let_end(1)
    made.wait_for_ends(1)


def test_withdraw_takes_back_what_has_not_started_and_only_that(
    executor: Gated, bench: Callable[[int], Bench]
) -> None:
    made = bench(1)
    made.pool.submit(jobs("s1"), seconds_each=1.0)
    executor.wait_for_starts(1)
    waiting = jobs("s2", "a1", "s3", "a2")
    made.pool.submit(waiting, seconds_each=1.0)

    taken = made.pool.withdraw()
    executor.let_end(1)
    made.wait_for_ends(1)

    assert {job.id for job in taken} == {job.id for job in waiting}
    assert executor.starts_no_more()


def test_drop_takes_back_one_job_unless_it_has_started(
    executor: Gated, bench: Callable[[int], Bench]
) -> None:
    made = bench(1)
    running, first, second, third = jobs("s1", "s2", "a1", "s3")
    made.pool.submit([running], seconds_each=1.0)
    executor.wait_for_starts(1)
    made.pool.submit([first, second, third], seconds_each=1.0)

    assert made.pool.drop(first)
    assert made.pool.drop(second)
    assert not made.pool.drop(running)
    assert not made.pool.drop(first)
    executor.let_end(2)
    made.wait_for_ends(2)

    assert list(executor.started) == ["s1", "s3"]


class Spinning:
    """An executor whose jobs end when they are cancelled, and only then."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)

    def is_async(self, job: ClaimedJob) -> bool:
        return job.task.startswith("a")

    def run(self, job: ClaimedJob, interruptible: Interruptible) -> Outcome:
        try:
            interruptible.call(self._spin, [], {})
        except Cancelled:
            return Settled(id=job.id, attempt=job.attempt, verb="cancel")
        return done(job)

    async def run_async(self, job: ClaimedJob, interruptible: Interruptible) -> Outcome:
        try:
            await interruptible.wait(self._wait)
        except asyncio.CancelledError:
            return Settled(id=job.id, attempt=job.attempt, verb="cancel")
        return done(job)

    def _spin(self) -> None:
        self.begun.release()
        ends_at = time.monotonic() + 90
        while time.monotonic() < ends_at:
            pass

    async def _wait(self) -> None:
        self.begun.release()
        await asyncio.sleep(90)


@pytest.mark.parametrize("kind", ["s", "a"])
def test_cancel_stops_one_job_and_its_slot_goes_on_with_the_next(kind: str) -> None:
    executor = Spinning()
    made = Bench(2, executor)
    first, other, following = jobs(f"{kind}1", f"{kind}2", f"{kind}3")
    made.pool.submit([first, other, following], seconds_each=1.0)
    for _ in range(2):
        assert executor.begun.acquire(timeout=60)

    made.pool.cancel(first.id)
    [ended] = made.wait_for_ends(1)
    assert executor.begun.acquire(timeout=60)

    assert (ended.job.id, ended.outcome) == (
        first.id,
        Settled(id=first.id, attempt=1, verb="cancel"),
    )
    for job in (other, following):
        made.pool.cancel(job.id)
    made.wait_for_ends(3)


def test_cancel_of_what_does_not_run_stops_nobody(
    executor: Gated, bench: Callable[[int], Bench]
) -> None:
    made = bench(2)
    made.pool.submit(jobs("s1", "a1"), seconds_each=1.0)
    executor.wait_for_starts(2)

    made.pool.cancel(uuid7())
    executor.let_end(2)

    assert all(isinstance(end.outcome, Completed) for end in made.wait_for_ends(2))


def test_what_runs_stands_in_the_slot_table_until_it_is_let_go(
    executor: Gated, bench: Callable[[int], Bench]
) -> None:
    made = bench(2)
    made.lets_go = False
    running, coroutine = jobs("s1", "a1")
    made.pool.submit([running, coroutine], seconds_each=1.0)
    executor.wait_for_starts(2)

    assert set(made.table.started()) == {(running.id, 1), (coroutine.id, 1)}
    executor.let_end(2)
    ended = made.wait_for_ends(2)
    assert len(list(made.table.started())) == 2
    for end in ended:
        made.table.end(end.entry)
    assert list(made.table.started()) == []


@pytest.mark.slow
def test_a_storm_of_both_kinds_loses_no_wake_up(
    executor: Gated, bench: Callable[[int], Bench]
) -> None:
    made = bench(3)
    rounds, each = 300, 20
    executor.let_end(rounds * each)

    for number in range(rounds):
        kinds = ["s" if (place * number) % 3 else "a" for place in range(each)]
        made.pool.submit(jobs(*kinds), seconds_each=0.000_01)
        if number % 3 == 0:
            made.pool.poke()
        if number % 7 == 0:
            made.wait_for_ends((number + 1) * each)
    ended = made.wait_for_ends(rounds * each)

    assert len({end.job.id for end in ended}) == rounds * each
    assert executor.most <= 3


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Say whether the system has none left."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def set_to(is_full: bool) -> None:
        monkeypatch.undo()
        if is_full:
            monkeypatch.setattr(threading.Thread, "start", refuse)

    return set_to


@pytest.mark.parametrize("kind", ["s", "a"])
def test_jobs_wait_where_no_thread_can_be_started(
    executor: Gated,
    bench: Callable[[int], Bench],
    no_threads: Callable[[bool], None],
    kind: str,
) -> None:
    made = bench(3)
    executor.let_end(2)

    no_threads(True)
    made.pool.submit(jobs(kind, kind), seconds_each=1.0)
    made.pool.poke()
    assert made.pool.poke()  # so that the loop hands them back in the end
    no_threads(False)
    made.pool.poke()

    assert len(made.wait_for_ends(2)) == 2


def test_the_threads_there_are_run_all_jobs_where_no_more_can_be_started(
    executor: Gated, bench: Callable[[int], Bench], no_threads: Callable[[bool], None]
) -> None:
    made = bench(3)
    made.pool.submit(jobs("s"), seconds_each=1.0)
    executor.wait_for_starts(1)

    no_threads(True)
    made.pool.submit(jobs("s", "s"), seconds_each=1.0)
    executor.let_end(3)

    assert len(made.wait_for_ends(3)) == 3
    assert executor.most == 1


@pytest.mark.parametrize("name", ["s.leaves", "a.leaves"])
def test_a_backoff_that_exits_costs_no_slot(
    executor: Gated, bench: Callable[[int], Bench], name: str
) -> None:
    it = bench(1)
    limited = make_job(name)._replace(timeout_ms=60_000, max_retries=1)
    executor.let_end(1)

    it.pool.submit([limited], seconds_each=0.0)

    assert [end.job for end in it.wait_for_ends(1)] == [limited]

"""How many threads of a pool run its plain jobs."""

from __future__ import annotations

import threading
from collections import deque

import pytest

from relay.engine.claim import ClaimedJob
from relay.engine.finish import Outcome
from relay.worker import pool
from relay.worker.interruption import Interruptible
from relay.worker.pool import _SHORT_SECONDS, _TRIAL_SECONDS, _WIDE_SECONDS
from tests.waiting import until
from tests.worker.slots import Bench, Gated, done, jobs

THREADS = 3
LONG_SECONDS = 1.0


class Clock:
    """The pool's time, which moves when a test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


class Executor(Gated):
    """Plain jobs wait for the test, and coroutines end at once."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: deque[str] = deque()

    def run(self, job: ClaimedJob, interruptible: Interruptible) -> Outcome:
        self.threads.append(threading.current_thread().name)
        return super().run(job, interruptible)

    async def run_async(self, job: ClaimedJob, _: Interruptible) -> Outcome:
        self.begin(job)
        self.end()
        return done(job)


class Width:
    """A pool that is looked at, and how many threads it runs jobs in."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.executor = Executor()
        self.bench = Bench(THREADS, self.executor)
        self.pool = self.bench.pool
        self.submitted = 0
        self.pool.poke()

    def submit(self, *tasks: str, seconds_each: float) -> None:
        self.submitted += len(tasks)
        self.pool.submit(jobs(*tasks), seconds_each=seconds_each)

    def let_all_end(self) -> None:
        self.executor.let_end(self.submitted - len(self.bench.ended))
        self.bench.wait_for_ends(self.submitted)
        while self.executor.begun.acquire(blocking=False):
            pass
        while self.executor.may_end.acquire(blocking=False):
            pass

    def run(self, count: int, kind: str = "s", *, seconds_each: float) -> None:
        """Have so many jobs run, one after the other where one thread is enough."""
        self.submit(*[kind] * count, seconds_each=seconds_each)
        self.let_all_end()

    def run_coroutine(self) -> None:
        """Have one coroutine run beside what runs."""
        before = self.executor.started.count("a")
        self.submit("a", seconds_each=_SHORT_SECONDS / 2)
        until(lambda: self.executor.started.count("a") > before, what="its start")

    def look(self, seconds: float) -> None:
        """Look at the pool when so much time has passed."""
        self.clock.now += seconds
        self.pool.poke()

    def make_narrow(self) -> None:
        self.run(10, seconds_each=_SHORT_SECONDS / 10)
        self.look(_SHORT_SECONDS)

    def assert_run_at_once(
        self, count: int, seconds_each: float = LONG_SECONDS
    ) -> None:
        """So many of as many jobs as there are slots run at once, and no more."""
        self.submit(*["s"] * THREADS, seconds_each=seconds_each)
        self.executor.wait_for_starts(count)
        assert count == THREADS or self.executor.starts_no_more()
        self.let_all_end()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(pool, "time", made)
    return made


@pytest.fixture
def width(clock: Clock) -> Width:
    return Width(clock)


def test_jobs_that_may_wait_get_a_thread_each(width: Width) -> None:
    width.assert_run_at_once(THREADS)


def test_one_thread_goes_on_with_jobs_that_start_quickly(width: Width) -> None:
    width.submit(*["s"] * 50, seconds_each=LONG_SECONDS)
    width.executor.wait_for_starts(THREADS)
    width.look(LONG_SECONDS)
    width.executor.let_end(1)
    width.executor.wait_for_starts(1)
    width.executor.threads.clear()

    width.look(_SHORT_SECONDS / 2)
    width.let_all_end()

    assert set(width.executor.threads) == {"relay-slot-0"}


def test_few_starts_in_a_look_change_nothing(width: Width) -> None:
    width.run(10, seconds_each=LONG_SECONDS)
    width.look(10 * _SHORT_SECONDS)

    width.assert_run_at_once(THREADS)


def test_jobs_that_stay_short_stay_in_one_thread(width: Width) -> None:
    width.make_narrow()
    for _ in range(3):
        width.run(10, seconds_each=_SHORT_SECONDS / 2)
        width.look(_WIDE_SECONDS)

    width.assert_run_at_once(1, _SHORT_SECONDS / 2)


def test_jobs_that_prove_long_in_one_thread_get_several_for_a_second(
    width: Width,
) -> None:
    width.make_narrow()
    width.assert_run_at_once(1)
    width.look(_TRIAL_SECONDS / 2)
    width.assert_run_at_once(1)
    width.look(_TRIAL_SECONDS)
    width.assert_run_at_once(THREADS)

    width.make_narrow()
    width.assert_run_at_once(THREADS)

    width.look(_WIDE_SECONDS)
    width.make_narrow()
    width.assert_run_at_once(1)


def block_the_one_thread(width: Width) -> None:
    width.make_narrow()
    width.submit("s1", "s2", "s3", seconds_each=_SHORT_SECONDS / 2)
    width.executor.wait_for_starts(1)
    assert width.executor.starts_no_more()
    width.look(0.005)


def test_a_job_that_blocks_the_one_thread_holds_up_nobody(width: Width) -> None:
    block_the_one_thread(width)

    width.look(0.005)
    width.executor.wait_for_starts(1)
    width.look(0.005)
    width.look(0.005)
    width.executor.wait_for_starts(1)

    assert list(width.executor.started)[-3:] == ["s1", "s2", "s3"]
    width.let_all_end()
    width.make_narrow()
    width.assert_run_at_once(THREADS)  # for a second


def test_a_job_that_blocks_the_one_thread_is_seen_while_coroutines_start(
    width: Width,
) -> None:
    block_the_one_thread(width)

    width.run_coroutine()
    width.look(0.005)
    until(lambda: "s2" in width.executor.started, what="the next one's start")

    width.let_all_end()


def test_coroutines_that_start_quickly_are_no_sign_of_short_plain_jobs(
    width: Width,
) -> None:
    width.run(10, "a", seconds_each=LONG_SECONDS)
    width.look(_SHORT_SECONDS)

    width.assert_run_at_once(THREADS)


@pytest.mark.parametrize("kinds", ["sa", "as"], ids=["plain first", "coroutines first"])
def test_with_one_slot_neither_kind_waits_for_the_other_to_run_dry(kinds: str) -> None:
    executor = Gated()
    bench = Bench(1, executor)
    first, second = kinds

    bench.pool.submit(jobs(*[first] * 200, *[second] * 200), seconds_each=0)

    # Each end lets one job start, of whichever kind.
    while {first, second} - set(executor.started):
        executor.wait_for_starts(1)
        executor.let_end(1)
    assert executor.started.count(first) < 100
    executor.let_end(400)
    bench.wait_for_ends(400)


def test_the_longest_run_counts_for_threads_and_coroutines(clock: Clock) -> None:
    executor = Gated()
    made = Bench(2, executor)
    assert made.pool.oldest_seconds() == 0.0

    for kind, seconds in (("s", 5.0), ("a", 12.0)):
        made.pool.submit(jobs(kind, kind), seconds_each=LONG_SECONDS)
        executor.wait_for_starts(2)
        clock.now += seconds
        executor.let_end(1)
        made.wait_for_ends(len(made.ended) + 1)
        made.pool.submit(jobs(kind), seconds_each=LONG_SECONDS)
        made.pool.poke()
        made.pool.poke()
        executor.wait_for_starts(1)
        assert made.pool.oldest_seconds() == seconds
        executor.let_end(2)
        made.wait_for_ends(len(made.ended) + 2)
        assert made.pool.oldest_seconds() == 0.0

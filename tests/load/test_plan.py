"""When requests go out, and from when their latency counts, by a clock of our own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest

from relay.load.driver import Send, Tally, run_client
from relay.load.plan import Plan


class Time:
    """A clock that only waits and requests move; also what ends the clients."""

    def __init__(self, *, ends_at: float = float("inf")) -> None:
        self.now = 100.0
        self._ends_at = ends_at

    def __call__(self) -> float:
        return self.now

    def is_set(self) -> bool:
        return self.now >= self._ends_at

    def wait(self, timeout: float) -> bool:
        self.now = min(self.now + timeout, self._ends_at)
        return self.is_set()


def taking(time: Time, *seconds: float) -> tuple[Send, list[float]]:
    """Return a request that takes so long each time, and when each was sent."""
    sent: list[float] = []

    def send() -> int:
        sent.append(time.now - 100)
        time.now += seconds[(len(sent) - 1) % len(seconds)]
        return 1

    return send, sent


def carry_out(plan: Plan, time: Time, *seconds: float) -> tuple[list[float], Tally]:
    send, sent = taking(time, *seconds)
    tally = Tally()
    plan.begin(time.now)
    run_client(send, plan, tally, stop=time, clock=time)
    return sent, tally


def test_with_a_rate_requests_go_out_when_they_are_due() -> None:
    sent, tally = carry_out(Plan(requests=4, seconds=None, rate=2), Time(), 0.25)

    assert sent == [0, 0.5, 1, 1.5]
    assert list(tally.latencies) == [0.25] * 4


def test_a_stall_shows_in_every_request_that_it_held_up() -> None:
    plan = Plan(requests=5, seconds=None, rate=1)

    sent, tally = carry_out(plan, Time(), 3.5, 0.25, 0.25, 0.25, 0.25)

    assert sent == [0, 3.5, 3.75, 4, 4.25]
    assert list(tally.latencies) == [3.5, 2.75, 2, 1.25, 0.5]


def test_without_a_rate_the_next_goes_out_when_the_last_has_ended() -> None:
    sent, tally = carry_out(Plan(requests=3, seconds=None, rate=None), Time(), 3, 1)

    assert sent == [0, 3, 4]
    assert list(tally.latencies) == [3, 1, 3]


def test_without_a_rate_a_duration_ends_the_requests() -> None:
    plan, time = Plan(requests=None, seconds=2, rate=None), Time()

    sent, _ = carry_out(plan, time, 0.75)

    assert sent == [0, 0.75, 1.5]
    assert plan.unsent(len(sent), time.now) == 0


@pytest.mark.parametrize(
    ("rate", "seconds", "due"), [(10, 0.25, 3), (4, 1, 4), (0.5, 1, 1), (3, 1, 3)]
)
def test_a_rate_and_a_duration_make_so_many_requests(
    rate: float, seconds: float, due: int
) -> None:
    plan, time = Plan(requests=None, seconds=seconds, rate=rate), Time()

    sent, _ = carry_out(plan, time, 0)

    assert len(sent) == due
    assert plan.unsent(len(sent), time.now) == 0


def test_requests_that_were_due_and_not_sent_in_time_are_counted() -> None:
    plan, time = Plan(requests=None, seconds=10, rate=1), Time()

    sent, tally = carry_out(plan, time, 4)

    assert sent == [0, 4, 8]
    assert list(tally.latencies) == [4, 7, 10]
    assert plan.unsent(len(sent), time.now) == 7


def test_a_client_that_is_told_to_end_sends_nothing_more() -> None:
    plan, time = Plan(requests=9, seconds=None, rate=1), Time(ends_at=102.5)

    sent, tally = carry_out(plan, time, 0.25)

    assert sent == [0, 1, 2]
    assert tally.jobs == 3
    assert plan.unsent(len(sent), time.now) == 0


def test_nothing_is_unsent_of_a_plan_that_never_began() -> None:
    assert Plan(requests=9, seconds=None, rate=1).unsent(0, 100.0) == 0


def test_a_request_that_fails_is_counted_by_its_error_and_has_no_latency() -> None:
    time, tally = Time(), Tally()
    plan = Plan(requests=4, seconds=None, rate=None)
    plan.begin(time.now)
    messages = iter(["first\n  line", "second"])

    def send() -> int:
        time.now += 1
        if (message := next(messages, None)) is not None:
            raise ConnectionError(message)
        return 10

    run_client(send, plan, tally, stop=time, clock=time)

    assert list(tally.latencies) == [1, 1]
    assert tally.jobs == 20
    assert tally.errors == {"ConnectionError": 2}
    assert tally.messages == {"ConnectionError": "first line"}
    assert tally.ended_at == 104


def test_clients_share_the_requests_of_a_plan() -> None:
    plan = Plan(requests=1_000, seconds=None, rate=100)
    plan.begin(0)
    together = threading.Barrier(4)

    def client(next_due: Callable[[float], float | None]) -> list[float]:
        together.wait()
        found = []
        while (due_at := next_due(0)) is not None:
            found.append(due_at)
        return found

    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(client, [plan.next] * 4))

    assert sorted(chain(*parts)) == [place / 100 for place in range(1_000)]


@pytest.mark.parametrize(
    ("plan", "share"),
    [
        (Plan(requests=10, seconds=None, rate=None), 0.5),
        (Plan(requests=None, seconds=20, rate=None), 0.25),
        (Plan(requests=None, seconds=20, rate=1), 0.25),
    ],
)
def test_how_far_it_is_counts_requests_or_the_time(plan: Plan, share: float) -> None:
    plan.begin(100)

    assert plan.share_done(5, 105) == share
    assert plan.share_done(100, 1_000) == 1


@pytest.mark.parametrize(("requests", "seconds"), [(None, None), (1, 1.0)])
def test_a_plan_has_one_size(requests: int | None, seconds: float | None) -> None:
    with pytest.raises(ValueError, match="either requests or seconds"):
        Plan(requests=requests, seconds=seconds, rate=None)

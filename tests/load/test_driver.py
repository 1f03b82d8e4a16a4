"""Clients in threads: their connections, their end, and Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from relay.load.driver import Outcome, Send, drive
from relay.load.interrupt import Interrupt
from relay.load.plan import Plan
from tests.waiting import until


class Server:
    """Counts connections and requests."""

    def __init__(self, *, capacity: int = 100) -> None:
        self.connected: set[str] = set()
        self.threads: set[int] = set()
        self.closed = 0
        self.sent = 0
        self._capacity = capacity
        self._lock = threading.Lock()
        self.first = threading.Event()

    @contextmanager
    def connect(self) -> Iterator[Send]:
        with self._lock:
            if len(self.threads) >= self._capacity:
                raise ConnectionRefusedError("full")
            self.threads.add(threading.get_ident())
        try:
            yield self.send
        finally:
            with self._lock:
                self.closed += 1

    def send(self) -> int:
        with self._lock:
            assert threading.get_ident() in self.threads
            self.sent += 1
        self.first.set()
        return 2


def run(
    server: Server,
    *,
    requests: int | None = None,
    seconds: float | None = None,
    clients: int = 3,
    is_told_to_end: threading.Event | None = None,
) -> tuple[Outcome, list[tuple[int, int]]]:
    told: list[tuple[int, int]] = []
    outcome = drive(
        server.connect,
        Plan(requests=requests, seconds=seconds, rate=None),
        clients=clients,
        watch=lambda succeeded, failed, now: told.append((succeeded, failed)),
        is_told_to_end=(is_told_to_end or threading.Event()).is_set,
    )
    return outcome, told


def test_each_client_has_a_connection_and_all_together_make_the_requests() -> None:
    server = Server()

    outcome, told = run(server, requests=500)

    assert (len(server.threads), server.closed, server.sent) == (3, 3, 500)
    assert (len(outcome.latencies), outcome.jobs) == (500, 1_000)
    assert (outcome.errors, outcome.unsent, outcome.is_interrupted) == ({}, 0, False)
    assert outcome.seconds > 0
    assert all(succeeded <= 500 and failed == 0 for succeeded, failed in told)


def test_nothing_is_sent_unless_all_clients_are_connected() -> None:
    server = Server(capacity=2)

    with pytest.raises(ConnectionRefusedError, match="full"):
        run(server, requests=500)

    until(lambda: server.closed == 2)
    assert server.sent == 0


def test_clients_that_are_told_to_end_leave_what_they_did() -> None:
    server = Server()

    outcome, _ = run(server, seconds=3_600, is_told_to_end=server.first)

    assert outcome.is_interrupted
    assert len(outcome.latencies) == server.sent > 0
    assert server.closed == 3


def test_clients_that_are_told_to_end_before_they_begin_send_nothing() -> None:
    server, already = Server(), threading.Event()
    already.set()

    outcome, told = run(server, requests=500, is_told_to_end=already)

    assert outcome.is_interrupted
    assert (server.sent, len(outcome.latencies), outcome.seconds) == (0, 0, 0)
    assert told == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_the_second_breaks_off(
    number: signal.Signals,
) -> None:
    before = signal.getsignal(number)

    with Interrupt() as interrupt:
        assert not interrupt.is_set()
        signal.raise_signal(number)
        assert interrupt.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)

    assert signal.getsignal(number) is before

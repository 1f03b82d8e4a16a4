"""Clients that send requests side by side; what a request is, they are told.

One thread is one client. Each keeps every latency (8 bytes a request) and counts for
itself, so that clients share nothing but the plan.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Final, Protocol

from relay.load.plan import Plan

__all__ = ["Connect", "Outcome", "Send", "Tally", "drive", "run_client"]

# Makes one request and returns how many jobs it made; raises if the request failed.
Send = Callable[[], int]
# Opened in its client's thread before the first request, closed after the last one.
Connect = Callable[[], AbstractContextManager[Send]]
# Told now and then: requests that succeeded, requests that failed, the time now.
Watch = Callable[[int, int, float], None]

LOOK_SECONDS: Final = 0.2
LONGEST_MESSAGE: Final = 200


class Stop(Protocol):
    """What ends the clients early; a threading.Event."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float) -> bool:
        """Return True as soon as it is set, or False after so many seconds."""


@dataclass(slots=True)
class Tally:
    """What one client has done.

    Attributes:
        latencies: in seconds, of each request that succeeded, from when it was due.
        jobs: how many were made.
        errors: requests that failed, by the error's class.
        messages: the first message of each such class.
        ended_at: when the last request ended.
    """

    latencies: array[float] = field(default_factory=lambda: array("d"))
    jobs: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    messages: dict[str, str] = field(default_factory=dict)
    ended_at: float = float("-inf")

    def add_error(self, error: Exception) -> None:
        kind = type(error)
        name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
        self.errors[name] += 1
        if name not in self.messages:
            message = " ".join(str(error).split())
            self.messages[name] = message[:LONGEST_MESSAGE]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What all clients have done.

    Attributes:
        latencies, jobs, errors, messages: as in Tally, of all clients.
        seconds: from the begin to the end of the last request.
        unsent: requests that were due, and not sent when the clients ended.
        is_interrupted: whether they were told to end.
    """

    latencies: array[float]
    jobs: int
    errors: Counter[str]
    messages: dict[str, str]
    seconds: float
    unsent: int
    is_interrupted: bool


def run_client(
    send: Send,
    plan: Plan,
    tally: Tally,
    *,
    stop: Stop,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Send one request after the other until the plan has no more, or stop is set."""
    while not stop.is_set():
        due_at = plan.next(clock())
        if due_at is None:
            return
        ahead = due_at - clock()
        if ahead > 0 and stop.wait(ahead):
            return
        try:
            made = send()
        except Exception as error:  # an edge: whatever a request raises is counted
            tally.ended_at = clock()
            tally.add_error(error)
        else:
            tally.ended_at = clock()
            tally.latencies.append(tally.ended_at - due_at)
            tally.jobs += made


def drive(
    connect: Connect,
    plan: Plan,
    *,
    clients: int,
    watch: Watch,
    is_told_to_end: Callable[[], bool],
) -> Outcome:
    """Let so many clients carry out the plan; begin when all are connected.

    Args:
        watch: told how far they are, a few times a second.
        is_told_to_end: asked as often; they end after the requests under way.

    Raises:
        Exception: what connect raised in one of the clients; nothing was sent, and the
            others close their connections.
    """
    stop, begun = threading.Event(), threading.Event()
    arrived: SimpleQueue[Exception | None] = SimpleQueue()
    tallies = [Tally() for _ in range(clients)]

    def client(tally: Tally) -> None:
        try:
            with connect() as send:
                arrived.put(None)
                begun.wait()
                run_client(send, plan, tally, stop=stop)
        except Exception as error:  # of connect: run_client raises none
            arrived.put(error)

    # Daemons: KeyboardInterrupt ends the process, also where a request hangs.
    threads = [
        threading.Thread(target=client, args=(tally,), daemon=True, name="relay-load")
        for tally in tallies
    ]
    for thread in threads:
        thread.start()
    try:
        is_ready = _await_all(arrived, clients, is_told_to_end)
        begun_at = time.perf_counter()
        if is_ready:
            plan.begin(begun_at)
            begun.set()
        is_through = is_ready and _watch(threads, tallies, watch, is_told_to_end)
        ended_at = time.perf_counter()
    finally:
        stop.set()
        begun.set()
    for thread in threads:
        thread.join()
    return _outcome(plan, tallies, begun_at, ended_at, is_interrupted=not is_through)


def _await_all(
    arrived: SimpleQueue[Exception | None],
    clients: int,
    is_told_to_end: Callable[[], bool],
) -> bool:
    """Wait until all clients are connected; return False if told to end before.

    Raises:
        Exception: the first client's that cannot.
    """
    connected = 0
    while connected < clients:
        if is_told_to_end():
            return False
        try:
            error = arrived.get(timeout=LOOK_SECONDS)
        except Empty:
            continue
        if error is not None:
            raise error
        connected += 1
    return True


def _watch(
    threads: Sequence[threading.Thread],
    tallies: Sequence[Tally],
    watch: Watch,
    is_told_to_end: Callable[[], bool],
) -> bool:
    """Wait until all clients have ended; return False if told to end before."""
    told_at = float("-inf")
    for thread in threads:
        while thread.is_alive():
            if is_told_to_end():
                return False
            thread.join(LOOK_SECONDS)
            now = time.perf_counter()
            if now - told_at >= LOOK_SECONDS:
                told_at = now
                succeeded = sum(len(tally.latencies) for tally in tallies)
                failed = sum(tally.errors.total() for tally in tallies)
                watch(succeeded, failed, now)
    return True


def _outcome(
    plan: Plan,
    tallies: Sequence[Tally],
    begun_at: float,
    ended_at: float,
    *,
    is_interrupted: bool,
) -> Outcome:
    latencies: array[float] = array("d")
    errors: Counter[str] = Counter()
    messages: dict[str, str] = {}
    for tally in tallies:
        latencies.extend(tally.latencies)
        errors.update(tally.errors)
        messages = tally.messages | messages
    sent = len(latencies) + errors.total()
    last = max(tally.ended_at for tally in tallies)
    return Outcome(
        latencies=latencies,
        jobs=sum(tally.jobs for tally in tallies),
        errors=errors,
        messages=messages,
        seconds=max(0.0, last - begun_at),
        unsent=plan.unsent(sent, ended_at),
        is_interrupted=is_interrupted,
    )

"""Wake-ups: tell listening workers, after the commit, that jobs are ready.

A hint only: workers poll as well, so a lost wake-up costs at most a poll interval.
NOTIFY inside the enqueue's transaction would make all commits of the database wait
for one another, so it is sent afterwards, and at most once per window and queue.
Source: docs/explanation/wakeups.md.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import psycopg
from django.db import Error, connections, transaction

from relay import counts
from relay.conf import OWN_QUEUE, check_queue_name, get_settings
from relay.engine.connection import connect

__all__ = [
    "CANCEL_CHANNEL",
    "CHANNEL",
    "NOTIFY",
    "announce",
    "announce_cancel",
    "notify_with",
    "parse",
    "payload",
]

logger = logging.getLogger("relay.engine")

CHANNEL: Final = "relay_wakeup"
# Without a payload: each keeper looks which of its own jobs are meant.
CANCEL_CHANNEL: Final = "relay_cancel"

# Source: docs/explanation/wakeups.md, "Debounce". What one process sends per queue is
# one wake-up per window, however many jobs it enqueues.
WINDOW_SECONDS: Final = 0.05
# The connection of a burst is kept this long after its last wake-up: an idle process
# holds none, and a test database can be dropped.
IDLE_SECONDS: Final = 0.1
# A broken connection is reported this often.
REPORT_SECONDS: Final = 60.0
# Queues whose last wake-up is remembered, before those out of the window are dropped.
_REMEMBERED: Final = 1_000

# Written as SELECT so that the payload is a parameter. No table, no index.
NOTIFY: Final = "SELECT pg_notify('relay_wakeup', %(payload)s)"
NOTIFY_CANCEL: Final = "SELECT pg_notify('relay_cancel', '')"
_NOTIFY_MANY: Final = (
    "SELECT pg_notify('relay_wakeup', payload) "
    "FROM unnest(%(payloads)s::text[]) AS payload"
)

_PAYLOAD: Final = re.compile(
    r"(?P<queue>\S{1,100}) (?P<priority>-?[0-9]{1,3}) (?P<ready_seq>[0-9]{1,19})",
    re.ASCII,
)


def payload(queue: str, priority: int, ready_seq: int) -> str:
    """Return a wake-up's text: under 130 bytes, as queue names are short ASCII."""
    return f"{queue} {priority} {ready_seq}"


def parse(text: str) -> tuple[str, int, int] | None:
    """Return a wake-up's queue, priority and lowest ready_seq; None if it is none."""
    found = _PAYLOAD.fullmatch(text)
    if found is None:
        return None
    queue = found["queue"]
    if queue != OWN_QUEUE:
        try:
            check_queue_name(queue)
        except ValueError:
            return None
    return queue, int(found["priority"]), int(found["ready_seq"])


def notify_with(
    connection: psycopg.Connection[object], wakeups: Iterable[tuple[str, int, int]]
) -> None:
    """Send wake-ups, each (queue, priority, lowest ready_seq), over this connection.

    For duties, which call it after their own commit. Does nothing where
    RELAY["NOTIFY"] is False.

    Raises:
        psycopg.Error: nothing was sent; the duty's rows are safe.

    Transaction: its own; must not be called inside one that wrote jobs.
    """
    texts = [payload(*wakeup) for wakeup in lowest(wakeups)]
    if texts and get_settings().notify:
        connection.execute(_NOTIFY_MANY, {"payloads": texts})
        counts.add("relay_notify_total", "sent", amount=len(texts))


def lowest(wakeups: Iterable[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Merge wake-ups into one per queue and priority, with its lowest ready_seq."""
    merged: dict[tuple[str, int], int] = {}
    for queue, priority, ready_seq in wakeups:
        key = queue, priority
        merged[key] = min(ready_seq, merged.get(key, ready_seq))
    return [(*key, ready_seq) for key, ready_seq in merged.items()]


def announce(using: str, queue: str, priority: int, ready_seq: int) -> None:
    """Wake workers for a job of this ready_seq once the caller's transaction commits.

    Rolled back, also to a savepoint, nothing is sent. Never fails the caller: what
    goes wrong is logged, and polling finds the job.

    Transaction: joins the caller's and writes nothing in it.
    """
    _after_commit(using, partial(_sender.send, using, queue, priority, ready_seq))


def announce_cancel(using: str) -> None:
    """Tell workers, once the caller's transaction commits, that a job is to stop.

    As announce(); workers look once a second as well.
    """
    _after_commit(using, partial(_send_cancel, using))


def _send_cancel(using: str) -> None:
    with connections[using].cursor() as cursor:
        cursor.execute(NOTIFY_CANCEL)


def _after_commit(using: str, send: Callable[[], None]) -> None:
    if not get_settings().notify:
        return
    connection = connections[using]
    if not connection.in_atomic_block and not connection.get_autocommit():
        return  # a transaction managed by hand: Django cannot tell when it commits
    transaction.on_commit(send, using=using, robust=True)


class _Sender:
    """Sends a queue's first wake-up at once, those within the window after it later.

    The later ones leave together from one thread with a connection of its own, as the
    callers' connections are theirs. The thread ends when it has been idle.
    """

    def __init__(self) -> None:
        self._ready = threading.Condition()
        self._sent_at: dict[tuple[str, str], float] = {}
        self._pending: dict[str, dict[tuple[str, int], int]] = {}
        self._thread: threading.Thread | None = None
        self._connections: dict[str, psycopg.Connection[object]] = {}
        self._reported_at = float("-inf")

    def send(self, using: str, queue: str, priority: int, ready_seq: int) -> None:
        now = time.monotonic()
        with self._ready:
            sent_at = self._sent_at.get((using, queue))
            if sent_at is not None and now - sent_at < WINDOW_SECONDS:
                self._gather(using, queue, priority, ready_seq)
                return
            if len(self._sent_at) >= _REMEMBERED:
                self._forget(now)
            self._sent_at[using, queue] = now
        try:
            with connections[using].cursor() as cursor:
                cursor.execute(NOTIFY, {"payload": payload(queue, priority, ready_seq)})
            counts.add("relay_notify_total", "sent")
        except Error:
            # The caller's connection broke after its commit: the thread has its own.
            with self._ready:
                self._gather(using, queue, priority, ready_seq)

    def _forget(self, now: float) -> None:
        self._sent_at = {
            key: sent_at
            for key, sent_at in self._sent_at.items()
            if now - sent_at < WINDOW_SECONDS
        }

    def _gather(self, using: str, queue: str, priority: int, ready_seq: int) -> None:
        waiting = self._pending.setdefault(using, {})
        key = queue, priority
        waiting[key] = min(ready_seq, waiting.get(key, ready_seq))
        if self._thread is None:
            thread = threading.Thread(
                target=self._run, name="relay-wakeup", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:
                return  # no more threads, as at the interpreter's end: polling is left
            self._thread = thread
        self._ready.notify()

    def _run(self) -> None:
        try:
            while self._wait():
                # What follows within the window leaves with it.
                time.sleep(WINDOW_SECONDS)
                self._flush()
        finally:
            self._close()

    def _wait(self) -> bool:
        """Wait for a wake-up to send; False, once idle, ends the thread."""
        with self._ready:
            if not self._pending:
                self._ready.wait(IDLE_SECONDS)
            if not self._pending:
                self._thread = None
                return False
            return True

    def _flush(self) -> None:
        with self._ready:
            pending, self._pending = self._pending, {}
            now = time.monotonic()
            for using, waiting in pending.items():
                for queue, _ in waiting:
                    self._sent_at[using, queue] = now
        for using, waiting in pending.items():
            wakeups = [(*key, ready_seq) for key, ready_seq in waiting.items()]
            try:
                self._notify(using, wakeups)
            except Exception:  # an edge: the thread outlives whatever the network does
                self._report(using)

    def _notify(self, using: str, wakeups: list[tuple[str, int, int]]) -> None:
        connection = self._connections.get(using)
        if connection is not None:
            try:
                notify_with(connection, wakeups)
            except psycopg.Error:
                self._drop(using)  # it may have been closed meanwhile: once more, anew
            else:
                return
        self._connections[using] = connection = connect(
            using, role="duty", name="wakeup"
        )
        notify_with(connection, wakeups)

    def _report(self, using: str) -> None:
        self._drop(using)
        now = time.monotonic()
        if now - self._reported_at >= REPORT_SECONDS:
            self._reported_at = now
            logger.warning(
                "wake-ups could not be sent; workers find the jobs by polling",
                extra={"database": using},
                exc_info=True,
            )

    def _drop(self, using: str) -> None:
        connection = self._connections.pop(using, None)
        if connection is not None:
            connection.close()

    def _close(self) -> None:
        for using in list(self._connections):
            self._drop(using)


_sender = _Sender()
# A forked child must neither use nor close its parent's connection: libpq would say
# goodbye on the shared socket.
_inherited: list[_Sender] = []


def _after_fork() -> None:
    global _sender
    _inherited.append(_sender)
    _sender = _Sender()


os.register_at_fork(after_in_child=_after_fork)

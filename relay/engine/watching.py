"""Waiting for the ends of jobs: one thread and one connection for all who wait.

The thread tells workers who is awaited, hears of ends, and looks itself: first soon,
then less and less often, in one statement for all jobs that are due. It ends, with its
connection, when nobody waits. Source: docs/explanation/waiting.md.
"""

from __future__ import annotations

import logging
import os
import random
import selectors
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final
from uuid import UUID

import psycopg

from relay.conf import get_settings
from relay.engine.connection import EngineConnection, connect
from relay.engine.ended import ENDED_CHANNEL, notify_awaited, parse_ids

__all__ = ["watching"]

logger = logging.getLogger("relay.engine")

# Between two looks at one job: from the first to the last, doubling. The first finds
# what ended before its worker knew that somebody waits.
FIRST_LOOK_SECONDS: Final = 0.02
LAST_LOOK_SECONDS: Final = 1.0
# Workers forget who waits after a while: they are told again.
TELL_SECONDS: Final = 2.0
# The connection is kept this long after the last wait: an idle process holds none, and
# a test database can be dropped.
IDLE_SECONDS: Final = 0.1
# After trouble: from the first to the longest wait for a new connection.
FIRST_BACKOFF_SECONDS: Final = 0.1
LONGEST_BACKOFF_SECONDS: Final = 2.0
_PIPE_BYTES: Final = 4_096

# Primary key. What is not in the answer has ended, or its row is gone.
STILL_GOING: Final = """
SELECT id FROM relay_job
WHERE id = ANY(%(ids)s) AND state NOT IN ('completed', 'failed', 'cancelled')
"""


class _Watch:
    """One caller's wait for one job."""

    __slots__ = ("due_at", "job_id", "pause_seconds", "wake")

    def __init__(self, job_id: UUID, wake: Callable[[], None]) -> None:
        self.job_id = job_id
        self.wake = wake
        self.pause_seconds = FIRST_LOOK_SECONDS
        self.due_at = time.monotonic() + FIRST_LOOK_SECONDS

    def put_off(self, now: float) -> None:
        self.pause_seconds = min(2 * self.pause_seconds, LAST_LOOK_SECONDS)
        self.due_at = now + self.pause_seconds


@contextmanager
def watching(job_id: UUID, wake: Callable[[], None], *, using: str) -> Iterator[None]:
    """Call wake, from another thread, whenever the job may have ended.

    That is when a worker says so, when a look of this module's finds it, and when the
    connection is in trouble: the caller then looks over its own. Whatever happened
    before the call is found within FIRST_LOOK_SECONDS.
    """
    watcher = _watcher(using)
    watch = _Watch(job_id, wake)
    watcher.add(watch)
    try:
        yield
    finally:
        watcher.remove(watch)


class _Watcher:
    """All waits of this process for jobs of one database."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._lock = threading.Lock()
        self._watches: dict[UUID, set[_Watch]] = {}
        # Awaited, and workers do not know it yet.
        self._untold: list[UUID] = []
        self._thread: threading.Thread | None = None
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._connection: EngineConnection | None = None
        self._heard: set[UUID] = set()
        self._is_listening = False
        self._tell_at = 0.0
        self._idle_since = 0.0
        self._backoff_seconds = FIRST_BACKOFF_SECONDS

    # --- from the threads that wait --------------------------------------------------

    def add(self, watch: _Watch) -> None:
        with self._lock:
            self._watches.setdefault(watch.job_id, set()).add(watch)
            self._untold.append(watch.job_id)
            if self._thread is None:
                thread = threading.Thread(
                    target=self._run, name="relay-watching", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:
                    return  # as at the interpreter's end: the caller looks itself
                self._thread = thread
        self._ring()

    def remove(self, watch: _Watch) -> None:
        with self._lock:
            watches = self._watches[watch.job_id]
            watches.discard(watch)
            if not watches:
                del self._watches[watch.job_id]

    def _ring(self) -> None:
        with suppress(BlockingIOError):  # it is full: it rings
            os.write(self._writer, b".")

    # --- the thread ------------------------------------------------------------------

    def _run(self) -> None:
        self._idle_since = time.monotonic()
        while self._goes_on():
            try:
                self._turn()
            except Exception as error:  # an edge: whatever it is, all must be woken
                self._fail(error)

    def _goes_on(self) -> bool:
        """Tell whether anybody waits, or did a moment ago; else the thread is over."""
        now = time.monotonic()
        with self._lock:
            if self._watches:
                self._idle_since = now
            elif now - self._idle_since >= IDLE_SECONDS:
                self._thread = None
                self._untold.clear()
                self._close()  # under the lock: the next thread makes its own
                return False
        return True

    def _turn(self) -> None:
        connection = self._connected()
        self._tell(connection)
        self._look(connection)
        self._backoff_seconds = FIRST_BACKOFF_SECONDS
        if not self._heard:
            self._wait(connection)
        self._hear(connection)

    def _connected(self) -> EngineConnection:
        if self._connection is None:
            settings = get_settings()
            self._is_listening = settings.notify and not settings.transaction_pooler
            made = connect(self._using, role="listen", name="waiting")
            self._connection = made
            # What arrives while a statement is under way.
            made.add_notify_handler(lambda heard: self._note(heard.payload))
            if self._is_listening:
                made.execute(f"LISTEN {ENDED_CHANNEL}".encode())
            self._tell_at = 0.0
        return self._connection

    def _tell(self, connection: EngineConnection) -> None:
        """Tell workers for whom somebody waits: at once, and again now and then."""
        now = time.monotonic()
        is_due = now >= self._tell_at
        with self._lock:
            untold, self._untold = self._untold, []
            ids = list(self._watches if is_due else dict.fromkeys(untold))
        if is_due:
            self._tell_at = now + TELL_SECONDS
        if ids and self._is_listening:
            notify_awaited(connection, ids)

    def _look(self, connection: EngineConnection) -> None:
        now = time.monotonic()
        with self._lock:
            due = {
                job_id
                for job_id, watches in self._watches.items()
                if any(watch.due_at <= now for watch in watches)
            }
        if not due:
            return
        going = connection.execute(STILL_GOING, {"ids": list(due)}).fetchall()
        over = due.difference(job_id for (job_id,) in going)
        now = time.monotonic()
        with self._lock:
            for job_id in due:
                for watch in self._watches.get(job_id, ()):
                    if watch.due_at <= now:
                        watch.put_off(now)
        self._wake(over)

    def _wait(self, connection: EngineConnection) -> None:
        now = time.monotonic()
        until = [now + LAST_LOOK_SECONDS, self._tell_at]
        with self._lock:
            if not self._watches:
                until.append(self._idle_since + IDLE_SECONDS)
            for watches in self._watches.values():
                until += [watch.due_at for watch in watches]
        with selectors.DefaultSelector() as selector:
            selector.register(self._reader, selectors.EVENT_READ)
            selector.register(connection.pgconn.socket, selectors.EVENT_READ)
            selector.select(max(0.0, min(until) - now))
        with suppress(BlockingIOError):
            os.read(self._reader, _PIPE_BYTES)

    def _hear(self, connection: EngineConnection) -> None:
        connection.pgconn.consume_input()
        while (notification := connection.pgconn.notifies()) is not None:
            self._note(notification.extra.decode("ascii", "replace"))
        heard, self._heard = self._heard, set()
        self._wake(heard)

    def _note(self, payload: str) -> None:
        self._heard.update(parse_ids(payload))

    def _wake(self, ids: Iterable[UUID]) -> None:
        with self._lock:
            watches = [w for job_id in ids for w in self._watches.get(job_id, ())]
        for watch in watches:
            watch.wake()

    def _fail(self, error: Exception) -> None:
        """Let everybody look for himself, and wait before the next connection."""
        if not isinstance(error, psycopg.Error):
            logger.error("waiting for jobs failed: callers poll", exc_info=error)
        self._close()
        with self._lock:
            ids = list(self._watches)
        self._wake(ids)
        time.sleep(self._backoff_seconds * random.uniform(0.5, 1))  # noqa: S311 - only spreads load
        self._backoff_seconds = min(2 * self._backoff_seconds, LONGEST_BACKOFF_SECONDS)

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


_lock = threading.Lock()
_watchers: dict[str, _Watcher] = {}
# A forked child must neither use nor close its parent's connections: libpq would say
# goodbye on the shared socket.
_inherited: list[dict[str, _Watcher]] = []


def _watcher(using: str) -> _Watcher:
    with _lock:
        if using not in _watchers:
            _watchers[using] = _Watcher(using)
        return _watchers[using]


def _after_fork() -> None:
    global _lock, _watchers
    _inherited.append(_watchers)
    _lock, _watchers = threading.Lock(), {}


os.register_at_fork(after_in_child=_after_fork)

"""Hearing of ready jobs: one thread and one connection for all who listen.

What workers are woken by is passed on. The thread ends, with its connection, when
nobody listens.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import psycopg

from relay.engine import wakeup
from relay.engine.connection import connect

__all__ = ["listening"]

logger = logging.getLogger("relay.engine")

# How long the thread waits for news before it looks whether anybody still listens: so
# long an idle process keeps the connection.
TURN_SECONDS: Final = 0.5
# After trouble: the longest wait for a new connection.
BACKOFF_SECONDS: Final = 2.0

_LISTEN: Final = f"LISTEN {wakeup.CHANNEL}".encode()

Tell = Callable[[str | None], None]


@contextmanager
def listening(tell: Tell, *, using: str) -> Iterator[None]:
    """Call tell, from another thread, with each queue in which jobs have become ready.

    It is called with None once that holds, and again after a time in which something
    may have gone unheard. It must not block or raise.
    """
    listener = _listener(using)
    listener.add(tell)
    try:
        yield
    finally:
        listener.remove(tell)


class _Listener:
    """All who listen in this process to one database."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._lock = threading.Lock()
        self._tells: set[Tell] = set()
        self._thread: threading.Thread | None = None
        self._hears = False

    def add(self, tell: Tell) -> None:
        with self._lock:
            self._tells.add(tell)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="relay-listening", daemon=True
                )
                self._thread.start()
            hears = self._hears
        if hears:
            tell(None)

    def remove(self, tell: Tell) -> None:
        with self._lock:
            self._tells.discard(tell)

    def _run(self) -> None:
        while self._goes_on():
            try:
                self._listen()
            except Exception as error:  # an edge: it goes on for those who listen
                if not isinstance(error, psycopg.Error):
                    logger.error("listening for ready jobs failed", exc_info=error)
                time.sleep(BACKOFF_SECONDS * random.uniform(0.2, 1))  # noqa: S311 - only spreads load
            finally:
                with self._lock:
                    self._hears = False

    def _goes_on(self) -> bool:
        with self._lock:
            if not self._tells:
                self._thread = None
            return self._thread is not None

    def _listen(self) -> None:
        with connect(self._using, role="listen", name="stream") as connection:
            connection.execute(_LISTEN)
            with self._lock:  # who comes after it is told by add()
                self._hears, tells = True, list(self._tells)
            for tell in tells:
                tell(None)
            while self._has_some():
                for heard in connection.notifies(timeout=TURN_SECONDS):
                    if (told := wakeup.parse(heard.payload)) is not None:
                        self._tell(told[0])

    def _has_some(self) -> bool:
        with self._lock:
            return bool(self._tells)

    def _tell(self, queue: str) -> None:
        with self._lock:
            tells = list(self._tells)
        for tell in tells:
            tell(queue)


_lock = threading.Lock()
_listeners: dict[str, _Listener] = {}
# A forked child must neither use nor close its parent's connections: libpq would say
# goodbye on the shared socket.
_inherited: list[dict[str, _Listener]] = []


def _listener(using: str) -> _Listener:
    with _lock:
        if using not in _listeners:
            _listeners[using] = _Listener(using)
        return _listeners[using]


def _after_fork() -> None:
    global _lock, _listeners
    _inherited.append(_listeners)
    _lock, _listeners = threading.Lock(), {}


os.register_at_fork(after_in_child=_after_fork)

"""Looks 20 times a second which locks stand in the way on relay's tables."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import psycopg

__all__ = ["LockWatch", "Obstacle"]

EVERY_SECONDS: Final = 0.05

# Locks that are waited for; and those granted that keep a writer out.
_LOCKS: Final = """
SELECT lock.pid, activity.application_name, activity.backend_type,
    lock.relation::regclass::text, lock.mode, lock.granted,
    coalesce(extract(epoch FROM clock_timestamp() - lock.waitstart), 0)::float8,
    lock.virtualtransaction, left(activity.query, 120)
FROM pg_locks AS lock
JOIN pg_class AS class ON class.oid = lock.relation
JOIN pg_stat_activity AS activity ON activity.pid = lock.pid
WHERE lock.locktype = 'relation' AND class.relkind = 'r'
  AND class.relname LIKE 'relay\\_%' AND activity.datname = current_database()
  AND (NOT lock.granted OR lock.mode IN ('ShareLock', 'ShareRowExclusiveLock',
    'ExclusiveLock', 'AccessExclusiveLock'))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """One lock that was waited for, or that kept writers out, and for how long."""

    kind: str
    session: str
    table: str
    mode: str
    seconds: float
    query: str


class LockWatch:
    """A thread with a session of its own; begin and end it as a context.

    Attributes:
        samples: how many looks there were.
        longest_gap_seconds: between two looks: what is shorter may have been missed.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lock watch")
        self._seen: dict[tuple[Any, ...], tuple[float, Obstacle]] = {}
        self._error: psycopg.Error | None = None
        self.samples = 0
        self.longest_gap_seconds = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def obstacles(self) -> list[Obstacle]:
        """Return all that was seen, the longest first."""
        found = [obstacle for _, obstacle in self._seen.values()]
        return sorted(found, key=lambda each: each.seconds, reverse=True)

    def _run(self) -> None:
        last = time.monotonic()
        try:
            while not self._stop.wait(EVERY_SECONDS):
                now = time.monotonic()
                self.longest_gap_seconds = max(self.longest_gap_seconds, now - last)
                last = now
                self._look(now)
        except psycopg.Error as error:
            self._error = error
        finally:
            self._connection.close()

    def _look(self, now: float) -> None:
        self.samples += 1
        for row in self._connection.execute(_LOCKS).fetchall():
            pid, name, backend, table, mode, granted, waited, owner, query = row
            key = (pid, owner, table, mode, granted)
            first, _ = self._seen.get(key, (now, None))
            self._seen[key] = (
                first,
                Obstacle(
                    kind="held" if granted else "waited for",
                    session=name or backend,
                    table=table,
                    mode=mode,
                    # A lock that is seen once may have been there between two looks.
                    seconds=now - first + EVERY_SECONDS if granted else waited,
                    query=" ".join(query.split()),
                ),
            )

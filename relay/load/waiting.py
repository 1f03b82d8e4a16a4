"""Wait for jobs to end, and read from their rows how long each of them took."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from django.db import DatabaseError, connections

from relay.engine.connection import is_outage

__all__ = ["ID_BYTES", "Ended", "follow", "is_served"]

ID_BYTES: Final = 16
# Rows read by one statement; and how long to wait for more of them to have ended.
CHUNK: Final = 1_000
LOOK_SECONDS: Final = 0.1

# Primary key. All times are by the database's clock, none by this machine's.
_READ: Final = """
SELECT id, state,
       extract(epoch FROM created_at)::float8,
       extract(epoch FROM started_at - created_at)::float8,
       extract(epoch FROM finished_at - created_at)::float8
FROM relay_job WHERE id = ANY(%(ids)s)
"""
_IS_SERVED: Final = """
SELECT EXISTS (
    SELECT FROM relay_worker
    WHERE state = 'running' AND lease_expires_at > clock_timestamp()
      AND %(queue)s = ANY(queues)
)
"""


@dataclass(slots=True)
class Ended:
    """How jobs ended.

    Attributes:
        states: how many ended in which state.
        to_start, to_end: seconds from the enqueue of each: to the start of its last
            attempt, and to its end.
        first_at, last_at: the first enqueue and the last end, in seconds since 1970.
        gone: jobs whose rows are not there any more.
        unended: jobs that had not ended when the wait did.
        is_interrupted: whether the wait was told to end.
    """

    states: Counter[str] = field(default_factory=Counter)
    to_start: array[float] = field(default_factory=lambda: array("d"))
    to_end: array[float] = field(default_factory=lambda: array("d"))
    first_at: float = float("inf")
    last_at: float = float("-inf")
    gone: int = 0
    unended: int = 0
    is_interrupted: bool = False

    @property
    def per_second(self) -> float | None:
        """Jobs that ended a second, from the first enqueue to the last end."""
        seconds = self.last_at - self.first_at
        return len(self.to_end) / seconds if seconds > 0 else None


def follow(
    ids: bytearray,
    *,
    using: str,
    seconds: float | None = None,
    watch: Callable[[int, int], None],
    is_told_to_end: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
) -> Ended:
    """Wait until all these jobs have ended, and return how.

    A statement reads 1,000 rows by their ids. Only when half of the oldest 1,000 have
    ended is there another at once, so that looking takes little from the workers. An
    outage of the database is waited out.

    Args:
        ids: 16 bytes each, the oldest first; emptied of those that have ended.
        seconds: wait no longer; None for ever.
        watch: told the number of jobs that have ended, and of all.
        is_told_to_end: asked again and again; what has ended by then is returned.

    Raises:
        django.db.DatabaseError: the rows cannot be read, and not for an outage.
    """
    ended = Ended()
    all_jobs = len(ids) // ID_BYTES
    ends_at = float("inf") if seconds is None else clock() + seconds
    while ids and clock() < ends_at and not ended.is_interrupted:
        looked_at = min(CHUNK, len(ids) // ID_BYTES)
        remain = _look(ids, 0, ended, using)
        watch(all_jobs - len(ids) // ID_BYTES, all_jobs)
        if remain is None or remain * 2 > looked_at:
            time.sleep(LOOK_SECONDS)
        ended.is_interrupted = is_told_to_end()
    # Behind the oldest ones that go on, as in a long retry, others may have ended.
    start = 0
    while start < len(ids):
        if (remain := _look(ids, start, ended, using)) is None:
            break
        start += remain * ID_BYTES
    ended.unended = len(ids) // ID_BYTES
    return ended


def is_served(queue: str, *, using: str) -> bool:
    """Tell whether a live worker serves the queue now."""
    with connections[using].cursor() as cursor:
        cursor.execute(_IS_SERVED, {"queue": queue})
        found: bool = cursor.fetchone()[0]
        return found


def _look(ids: bytearray, start: int, ended: Ended, using: str) -> int | None:
    """Read the rows from start on; drop those that ended; return how many remain.

    None says that the database could not be asked.
    """
    stop = min(start + CHUNK * ID_BYTES, len(ids))
    asked = [
        UUID(bytes=bytes(ids[at : at + ID_BYTES]))
        for at in range(start, stop, ID_BYTES)
    ]
    try:
        with connections[using].cursor() as cursor:
            cursor.execute(_READ, {"ids": asked})
            rows = cursor.fetchall()
    except DatabaseError as error:
        if not is_outage(error):
            raise
        connections[using].close()
        return None
    live: set[UUID] = set()
    for job_id, state, created_at, to_start, to_end in rows:
        if to_end is None:
            live.add(job_id)
            continue
        ended.states[state] += 1
        ended.first_at = min(ended.first_at, created_at)
        ended.last_at = max(ended.last_at, created_at + to_end)
        ended.to_end.append(to_end)
        if to_start is not None:
            ended.to_start.append(to_start)
    ended.gone += len(asked) - len(rows)
    ids[start:stop] = b"".join(each.bytes for each in asked if each in live)
    return len(live)

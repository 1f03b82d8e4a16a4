"""Jobs with a crash on record wait here until their child runs nothing else."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Container, Iterator
from typing import Final
from uuid import UUID

from relay.engine.claim import ClaimedJob

__all__ = ["ALONE_SECONDS", "Alone", "put_off_seconds"]

# How long a job that must run alone waits for the others before it is put off.
# Where another job runs for longer already it is put off at once, for up to the second.
ALONE_SECONDS: Final = 5.0
LONGEST_ALONE_SECONDS: Final = 30.0


class Alone:
    """What waits to run alone, first come first served.

    Attributes:
        is_running: whether one of them runs: then nothing else is claimed.
    """

    def __init__(self) -> None:
        self._waiting: deque[ClaimedJob] = deque()
        self._since = 0.0
        self.is_running = False

    def __iter__(self) -> Iterator[ClaimedJob]:
        return iter(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, job: ClaimedJob) -> bool:
        return job in self._waiting

    @property
    def is_exclusive(self) -> bool:
        """Whether a job of this kind waits or runs."""
        return self.is_running or bool(self._waiting)

    @property
    def put_off_at(self) -> float:
        """When those that wait have waited for long enough."""
        return self._since + ALONE_SECONDS

    def add(self, job: ClaimedJob) -> None:
        """Let a job wait here."""
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting.append(job)

    def next(self, now: float) -> ClaimedJob | None:
        """Take the next one out, which runs from now on; None if there is none."""
        self.is_running = bool(self._waiting)
        if not self._waiting:
            return None
        self._since = now
        return self._waiting.popleft()

    def remove(self, job: ClaimedJob) -> None:
        """Take out one that waits."""
        self._waiting.remove(job)

    def take_all(self) -> list[ClaimedJob]:
        """Take out all that wait."""
        jobs = list(self._waiting)
        self._waiting.clear()
        return jobs

    def keep_only(self, ids: Container[UUID]) -> None:
        """Forget those that this child does not hold any more."""
        self._waiting = deque(job for job in self._waiting if job.id in ids)


def put_off_seconds() -> float:
    """Return for how long a job is put off that cannot run alone here."""
    return random.uniform(ALONE_SECONDS, LONGEST_ALONE_SECONDS)  # noqa: S311 - only spreads load

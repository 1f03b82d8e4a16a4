"""How long jobs and sweeps take here: how many to claim ahead, when to sweep again."""

from __future__ import annotations

import random
from typing import Final

from relay.conf import OWN_QUEUE
from relay.worker.pool import Ended

__all__ = ["BUFFER_SECONDS", "UNKNOWN_SECONDS", "Pace", "Sweeps"]

# Jobs claimed beyond the free slots: what the slots run in this time, so that they
# never wait for a round trip. Source: docs/explanation/claiming.md, "The buffer".
BUFFER_SECONDS: Final = 0.05
LARGEST_BUFFER: Final = 1_000
# Before anything was measured a job is taken to be long: nothing is buffered.
UNKNOWN_SECONDS: Final = 1.0
# A measured run time follows new ones by this part; a long one counts at once.
_SMOOTHING: Final = 0.05
_SHORTEST_SECONDS: Final = 1e-6
# What waits this long behind jobs that were thought to be short goes back.
STUCK_SECONDS: Final = 1.0
# Of the time between two looks, what counts at most: in a longer one nobody looked, as
# during a slow claim, and it proves little.
LONGEST_LOOK_SECONDS: Final = 0.05
# Between two searches from the start of the queues.
SWEEP_SECONDS: Final = 1.0
# A sweep may take this part of the time; a costlier one comes less often.
SWEEP_SHARE: Final = 0.05


class Pace:
    """The run time of jobs in one child, by queue, as it was measured lately."""

    def __init__(self) -> None:
        self._run_seconds: dict[str, float] = {}
        self._short_ones = 0
        self._looked_at = 0.0
        self._stuck_seconds = 0.0

    def measure(self, end: Ended) -> None:
        """Take in how long an attempt ran.

        relay's own are long and seldom, and say nothing of what comes next.
        """
        queue = end.job.queue
        if queue == OWN_QUEUE:
            return
        known = self._run_seconds.get(queue, end.seconds)
        if end.seconds > BUFFER_SECONDS:
            known = max(known, end.seconds)
            self._short_ones = 0
        else:
            self._short_ones += 1
        self._run_seconds[queue] = known + (end.seconds - known) * _SMOOTHING

    def is_stuck(self, now: float, *, is_held_up: bool) -> bool:
        """Note whether jobs are held up now; tell whether they have been for too long.

        Then jobs are taken to run that long, until others are measured.
        """
        self._stuck_seconds += min(now - self._looked_at, LONGEST_LOOK_SECONDS)
        self._looked_at = now
        if not is_held_up:
            self._stuck_seconds = 0.0
        if self._stuck_seconds <= STUCK_SECONDS:
            return False
        self._stuck_seconds = 0.0
        for queue, known in self._run_seconds.items():
            self._run_seconds[queue] = max(known, STUCK_SECONDS)
        return True

    @property
    def expected_seconds(self) -> float:
        """How long the next job may run: the longest measured of all queues."""
        longest = max(self._run_seconds.values(), default=UNKNOWN_SECONDS)
        return max(_SHORTEST_SECONDS, longest)

    @property
    def is_slow(self) -> bool:
        """Whether jobs run too long to be claimed ahead."""
        return self.expected_seconds > BUFFER_SECONDS

    def buffer(self, slots: int) -> int:
        """Return how many jobs to hold beyond the slots.

        No more than have ended quickly in a row: the next may be of another kind.
        """
        worth = int(slots * BUFFER_SECONDS / self.expected_seconds) - slots
        return max(0, min(LARGEST_BUFFER, self._short_ones, worth))


class Sweeps:
    """When a claim is to search from the start, be it only for what came late.

    Only then does it look for relay's own jobs.
    """

    def __init__(self) -> None:
        self._due_at = 0.0

    def are_due(self, now: float) -> bool:
        """Tell whether the next claim is to be a sweep."""
        return now >= self._due_at

    def hasten(self) -> None:
        """Let the next claim be one."""
        self._due_at = 0.0

    def note(self, begun_at: float, ended_at: float) -> None:
        """Take in how long one took."""
        interval = max(SWEEP_SECONDS, (ended_at - begun_at) / SWEEP_SHARE)
        self._due_at = ended_at + interval * random.uniform(0.9, 1.1)  # noqa: S311 - only spreads load

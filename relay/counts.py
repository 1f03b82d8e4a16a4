"""What this process has done, for whoever counts it: relay.metrics, where it is used.

Names and labels: docs/reference/metrics.md. Without a meter each call does nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol

from relay.buckets import FINE

__all__ = [
    "OTHER",
    "Meter",
    "Names",
    "add",
    "add_time",
    "add_times",
    "ended",
    "forget_process",
    "install",
    "is_on",
    "put",
    "take_ended",
]

# In place of a name that comes after too many others.
OTHER: Final = "other"


class Meter(Protocol):
    """What keeps the sums. Any thread may call it."""

    def add(self, name: str, labels: Sequence[str], amount: float) -> None:
        """Add to a counter."""

    def add_times(
        self, name: str, labels: Sequence[str], counts: Sequence[int], seconds: float
    ) -> None:
        """Add to a histogram: counts by buckets.FINE, and the sum of the seconds."""

    def put(self, name: str, labels: Sequence[str], value: float) -> None:
        """Set a gauge."""

    def forget_process(self, pid: int) -> None:
        """Take it that a process is gone, and its gauges with it."""


class Names:
    """The first names that were met, up to a limit; each later one is OTHER."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def fold(self, name: str) -> str:
        """Return the name, or OTHER."""
        if name in self._known:
            return name
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(name)
        return name


_meter: Meter | None = None
# Ends that duties of this process have written, until take_ended().
_ended: Counter[tuple[str, str, str]] = Counter()


def install(meter: Meter | None) -> None:
    """Have everything counted by this one; None for nobody."""
    global _meter
    _meter = meter


def add(name: str, *labels: str, amount: float = 1) -> None:
    """Add to a counter."""
    if _meter is not None and amount:
        _meter.add(name, labels, amount)


def add_times(name: str, *labels: str, counts: Sequence[int], seconds: float) -> None:
    """Add many durations to a histogram at once."""
    if _meter is not None:
        _meter.add_times(name, labels, counts, seconds)


def add_time(name: str, *labels: str, seconds: float) -> None:
    """Add one duration to a histogram."""
    if _meter is not None:
        found = [0] * (len(FINE) + 1)
        found[bisect_left(FINE, seconds)] = 1
        _meter.add_times(name, labels, found, seconds)


def put(name: str, *labels: str, value: float) -> None:
    """Set a gauge."""
    if _meter is not None:
        _meter.put(name, labels, value)


def forget_process(pid: int) -> None:
    """Take it that a process is gone, and its gauges with it."""
    if _meter is not None:
        _meter.forget_process(pid)


def is_on() -> bool:
    """Tell whether anybody counts."""
    return _meter is not None


def ended(queue: str, task: str, state: str, reason: str, jobs: int) -> None:
    """Take in attempts that a duty has ended.

    Args:
        state: what their jobs are now; "release" where they go back uncharged.
        reason: of relay_job_errors_total.
    """
    if state not in ("cancelled", "release"):
        add("relay_job_errors_total", queue, task, reason, amount=jobs)
    if state in ("failed", "cancelled"):
        add("relay_jobs_finished_total", queue, task, state, amount=jobs)
        _ended[queue, task, state] += jobs


def take_ended() -> Counter[tuple[str, str, str]]:
    """Return what ended() has taken in since the last call: by queue, task, state."""
    global _ended
    taken, _ended = _ended, Counter()
    return taken

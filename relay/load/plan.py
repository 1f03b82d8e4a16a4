"""When each request of a load goes out."""

from __future__ import annotations

import math
import threading

__all__ = ["Plan"]


class Plan:
    """When each request is due; asked by all clients, from any thread.

    With a rate, request k is due k / rate seconds after the begin, whatever the earlier
    ones take (an open loop): a client that comes late sends at once, and counts its
    latency from when the request was due, so that a stall shows in every request it
    held up. Without a rate a client's next request is due when it asks.

    Args:
        requests, seconds: how many there are, or how long they go out; one of the two.
        rate: requests a second of all clients together.
    """

    def __init__(
        self, *, requests: int | None, seconds: float | None, rate: float | None
    ) -> None:
        if (requests is None) == (seconds is None):
            raise ValueError("give either requests or seconds")
        self._rate = rate
        self._seconds = math.inf if seconds is None else seconds
        self._total: float = math.inf
        if requests is not None:
            self._total = requests
        elif rate is not None:
            self._total = math.ceil(rate * self._seconds)
        self._given = 0
        self._begun_at = math.inf  # not begun: no time has passed
        self._lock = threading.Lock()

    def begin(self, now: float) -> None:
        """Count from now; to be called once, before the first request is asked for."""
        self._begun_at = now

    def next(self, now: float) -> float | None:
        """Return when the next request is due, or None if there is none any more.

        When the time is over, requests that were due and not sent stay so: unsent()
        counts them.
        """
        with self._lock:
            if self._given >= self._total or self._elapsed(now) >= self._seconds:
                return None
            place = self._given
            self._given += 1
        return now if self._rate is None else self._begun_at + place / self._rate

    def unsent(self, sent: int, now: float) -> int:
        """Return how many requests were due by now and not sent; 0 without a rate."""
        if self._rate is None:
            return 0
        elapsed = self._elapsed(now)
        due = (
            self._total
            if elapsed >= self._seconds
            else min(self._total, int(elapsed * self._rate))
        )
        return max(0, int(due) - sent)

    def share_done(self, done: int, now: float) -> float:
        """Return how much of the load is through, from 0 to 1."""
        share = max(done / self._total, self._elapsed(now) / self._seconds)
        return min(1.0, share)

    def _elapsed(self, now: float) -> float:
        return max(0.0, now - self._begun_at)

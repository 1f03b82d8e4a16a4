"""When a failed job runs again. Pure: no database, no clock."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

__all__ = ["Backoff"]

# 2**62 times any base of a microsecond or more is past every cap a timedelta can
# hold, so larger exponents change nothing but could overflow a float.
_LARGEST_EXPONENT: Final = 62

_RANDOM: Final = random.SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The delay before a job runs again: exponential growth, a cap, full jitter.

    The n-th failure waits between 0 and min(cap, base * factor**(n - 1)).
    Source: J13, docs/explanation/delivery.md.

    Attributes:
        base: the largest delay after the first failure.
        cap: the largest delay ever.
        factor: growth from one failure to the next, at least 1.
        jitter: False waits the whole delay instead of a random part of it.
    """

    base: timedelta = timedelta(seconds=15)
    cap: timedelta = timedelta(hours=1)
    factor: float = 2.0
    jitter: bool = True

    def __post_init__(self) -> None:
        for name, delay in (("base", self.base), ("cap", self.cap)):
            if not isinstance(delay, timedelta):
                raise TypeError(
                    f"{name}={delay!r}: give a timedelta, such as timedelta(seconds=15)"
                )
            if delay < timedelta(0):
                raise ValueError(
                    f"{name}={delay} is negative: give a delay of 0 or more"
                )
        if not (math.isfinite(self.factor) and self.factor >= 1):
            raise ValueError(f"factor={self.factor} must be a number of at least 1")

    @classmethod
    def exponential(
        cls,
        *,
        base: timedelta = timedelta(seconds=15),
        cap: timedelta = timedelta(hours=1),
        factor: float = 2.0,
        jitter: bool = True,
    ) -> Backoff:
        return cls(base=base, cap=cap, factor=factor, jitter=jitter)

    def limit(self, failures: int) -> timedelta:
        """Return the longest delay after this many failures; never above the cap."""
        exponent = min(max(failures, 1) - 1, _LARGEST_EXPONENT)
        base_seconds = self.base.total_seconds()
        cap_seconds = self.cap.total_seconds()
        try:
            seconds = base_seconds * self.factor**exponent
        except OverflowError:
            seconds = cap_seconds
        return timedelta(seconds=min(seconds, cap_seconds))

    def delay(self, failures: int, *, rng: random.Random = _RANDOM) -> timedelta:
        """Return the delay before the next run after this many failures."""
        longest = self.limit(failures)
        return longest * rng.random() if self.jitter else longest

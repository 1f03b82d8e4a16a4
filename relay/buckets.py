"""Durations sorted into buckets: many may be added up, and their quantiles told.

Counted once, by fine bounds, of which each histogram's own are a part.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

__all__ = ["FINE", "RUN_BOUNDS", "STAT_BOUNDS", "WAIT_BOUNDS", "coarse", "quantile"]

# Upper bounds in seconds; one bucket more, without one, comes after the last.
# Source: docs/reference/metrics.md.
WAIT_BOUNDS: Final = (
    *(0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
    *(5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0),
)
RUN_BOUNDS: Final = (
    *(0.01, 0.05, 0.1, 0.5, 1.0, 5.0),
    *(10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0),
)
# 24 buckets, each twice as wide as the one before: 1 ms to 70 minutes.
STAT_BOUNDS: Final = tuple(0.001 * 2**place for place in range(23))
FINE: Final = tuple(sorted({*WAIT_BOUNDS, *RUN_BOUNDS, *STAT_BOUNDS}))


def coarse(counts: Sequence[int], bounds: Sequence[float]) -> list[int]:
    """Return counts by FINE as counts by some of its bounds."""
    found = [0] * (len(bounds) + 1)
    for place, count in enumerate(counts):
        if count:
            at = bisect_left(bounds, FINE[place]) if place < len(FINE) else len(bounds)
            found[at] += count
    return found


def quantile(
    counts: Sequence[int], share: float, bounds: Sequence[float] = STAT_BOUNDS
) -> float | None:
    """Return the seconds below which this share of what was counted lies, about.

    Within its bucket it is taken to be spread evenly: never off by more than the
    bucket's width. What lies above the last bound counts as that. None of nothing.
    """
    wanted = share * sum(counts)
    if wanted <= 0:
        return None
    below = 0
    for place, count in enumerate(counts[: len(bounds)]):
        if below + count >= wanted:
            low = bounds[place - 1] if place else 0.0
            return low + (bounds[place] - low) * (wanted - below) / count
        below += count
    return bounds[-1]

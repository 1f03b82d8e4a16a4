"""Percentiles of all samples, exactly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["PERCENTS", "nearest_rank", "summary_ms"]

PERCENTS: Final = (50, 90, 95, 99)


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """Return the smallest sample that at least so many percent of all do not exceed.

    This is the nearest-rank method: always a sample that was measured, never one
    computed between two.

    Args:
        ordered: all samples, in order; at least one.
        percent: from 1 to 100.
    """
    rank = -(-len(ordered) * percent // 100)  # rounded up, in whole numbers
    return ordered[rank - 1]


def summary_ms(seconds: Iterable[float]) -> dict[str, float] | None:
    """Return p50 to p99 and max in milliseconds; None of no samples."""
    ordered = sorted(seconds)
    if not ordered:
        return None
    found = {f"p{percent}": nearest_rank(ordered, percent) for percent in PERCENTS}
    found["max"] = ordered[-1]
    return {name: round(value * 1_000, 3) for name, value in found.items()}

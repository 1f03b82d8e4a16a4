"""How long before its lease may have run out a worker stops what it runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

__all__ = ["fence_margin"]

# So that nobody else can hold the jobs while they run here.
# Source: docs/explanation/leases.md.
FENCE_MARGIN: Final = timedelta(seconds=5)
FENCE_PART_OF_LEASE: Final = 1 / 4


def fence_margin(lease: timedelta) -> timedelta:
    """Return the margin for leases of this length."""
    return min(FENCE_MARGIN, lease * FENCE_PART_OF_LEASE)

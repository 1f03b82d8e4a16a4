"""By when, in leases, a worker stops what it runs, and is held to be stuck."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

__all__ = ["LONGEST_WAIT", "fence_margin", "stall_limit"]

# So that nobody else can hold the jobs while they run here.
# Source: docs/explanation/leases.md.
FENCE_MARGIN: Final = timedelta(seconds=5)
FENCE_PART_OF_LEASE: Final = 1 / 4
# A keeper that has not gone round for this many leases is stuck.
STALLED_LEASES: Final = 2
# But it may wait for a server that does not answer: to connect, 3 s for each of two
# addresses, and then for the first answer. Source: docs/explanation/leases.md.
LONGEST_WAIT: Final = timedelta(seconds=10)


def fence_margin(lease: timedelta) -> timedelta:
    """Return the margin for leases of this length."""
    return min(FENCE_MARGIN, lease * FENCE_PART_OF_LEASE)


def stall_limit(lease: timedelta) -> timedelta:
    """Return how long a keeper may take to go round, before it is killed for it."""
    return max(lease * STALLED_LEASES, LONGEST_WAIT)

"""What a worker's keeper says to those who watch it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from relay.conf import get_settings
from relay.worker.fence import LONGEST_WAIT
from relay.worker.shared import SharedState

__all__ = ["View", "WorkerHealth"]


class View(NamedTuple):
    """What only the keeper knows.

    Attributes:
        children: by their place: the worker's id, its pid, and whether it has a row.
        claimed_at: when a child last told of jobs claimed, by the monotonic clock.
    """

    name: str
    queues: list[str]
    concurrency: int
    children: dict[int, tuple[UUID, int, bool]]
    is_connected: bool
    is_draining: bool
    claimed_at: float


class WorkerHealth:
    """A worker's health, from any thread of its keeper.

    Three renewals of a lease are the time of one lease: so long a loop may take to go
    round, and 10 s where leases are shorter, as a server that does not answer is waited
    for. A long job or a lost database keeps none of them from that.

    Args:
        view: returns what the keeper knows now.
    """

    def __init__(self, shared: SharedState, view: Callable[[], View]) -> None:
        self._shared = shared
        self._view = view
        self._limit = max(get_settings().lease, LONGEST_WAIT).total_seconds()

    def ills(self) -> list[str]:
        """Return which loop does not go round; empty if both do."""
        now = time.monotonic()
        ticks = {
            "keeper": self._shared.keeper_ticked_at,
            "parent": self._shared.parent_ticked_at,
        }
        return [
            f"the {who}'s loop has not gone round for {now - at:.0f} s"
            for who, at in ticks.items()
            if now - at > self._limit
        ]

    def wants(self) -> list[str]:
        """Return what is missing before every child can run jobs; empty if nothing."""
        view, now = self._view(), time.monotonic()
        wanted = self.ills()
        if view.is_draining:
            wanted.append("draining")
        if not view.is_connected:
            wanted.append("no connection to the database")
        for place, table in enumerate(self._shared.tables):
            child = view.children.get(place)
            if child is None or not child[2]:
                wanted.append(f"child {place + 1} is not registered")
            elif now - table.ticked_at > self._limit:
                stuck = now - table.ticked_at
                wanted.append(f"child {place + 1} has not gone round for {stuck:.0f} s")
        return wanted

    def status(self) -> Mapping[str, Any]:
        """Return what the worker does."""
        view, now = self._view(), time.monotonic()
        lease = get_settings().lease.total_seconds()
        safe_until = self._shared.lease_safe_until
        return {
            "name": view.name,
            "pid": os.getppid(),
            "queues": view.queues,
            "slots": view.concurrency * len(self._shared.tables),
            "draining": view.is_draining,
            "connected": view.is_connected,
            "last_claim_s": _ago(view.claimed_at, now),
            "last_beat_s": _ago(safe_until and safe_until - lease, now),
            "children": [
                {
                    "worker_id": str(worker_id),
                    "pid": pid,
                    "jobs": [
                        {"job_id": str(job_id), "attempt": attempt}
                        for job_id, attempt in self._shared.tables[place].started()
                    ],
                }
                for place, (worker_id, pid, _) in sorted(view.children.items())
            ],
        }


def _ago(instant: float, now: float) -> float | None:
    """Return how many seconds ago it was; None of 0, which is never."""
    return round(now - instant, 3) if instant else None

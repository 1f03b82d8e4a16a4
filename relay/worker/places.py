"""The processes of a worker, from fork to wait, and when the next may start."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from relay.worker.brood import Brood

__all__ = ["Place", "Process"]

# A process that ends sooner than this is restarted a little later each time.
SHORT_LIFE_SECONDS: Final = 5.0
FIRST_RESTART_SECONDS: Final = 0.1
LONGEST_RESTART_SECONDS: Final = 10.0


@dataclass(slots=True)
class Process:
    """A child or the keeper, between fork and wait."""

    pid: int
    started_at: float
    worker_id: UUID | None = None
    # Why relay killed it: then its jobs are not charged.
    killed_for: str | None = None
    # The isolated processes of a child, if it may have any.
    brood: Brood | None = None


@dataclass(slots=True)
class Place:
    """Where a process belongs, and when the next one may start."""

    process: Process | None = None
    start_at: float = 0.0
    backoff_seconds: float = FIRST_RESTART_SECONDS

    def ended(self, *, was_clean: bool) -> None:
        """Plan the next start: at once, or later if it keeps dying young."""
        process, self.process = self.process, None
        now = time.monotonic()
        lived = now - process.started_at if process else 0.0
        if was_clean or lived >= SHORT_LIFE_SECONDS:
            self.backoff_seconds = FIRST_RESTART_SECONDS
            self.start_at = now
        else:
            self.put_off()

    def put_off(self) -> None:
        """Start the next one a little later each time."""
        self.start_at = time.monotonic() + self.backoff_seconds
        self.backoff_seconds = min(2 * self.backoff_seconds, LONGEST_RESTART_SECONDS)

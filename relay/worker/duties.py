"""What must be done now and then by somebody: promote, reap, prune.

Each is safe in every worker at once: rows locked by others are skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final, Protocol

from relay.conf import get_settings
from relay.engine import lease, prune
from relay.engine.connection import EngineConnection
from relay.engine.promote import PROMOTE_BATCH, promote
from relay.engine.wakeup import notify_with

__all__ = ["Duty", "Promote", "Prune", "Reap"]

logger = logging.getLogger("relay.worker")

# Batches per tick, so that a duty with much to do does not keep the keeper from
# renewing: each takes tens of milliseconds. The next tick goes on.
_BATCHES: Final = 10
_TICKS_PER_SWEEP: Final = 5


class Duty(Protocol):
    """Something to do every interval, over a connection of the keeper's."""

    interval: timedelta

    def tick(self, connection: EngineConnection) -> None:
        """Do it once, in short transactions of its own."""


class Promote:
    """Make jobs ready whose time has come."""

    interval = timedelta(milliseconds=500)

    def tick(self, connection: EngineConnection) -> None:
        """Promote what is due and wake the workers for it."""
        for _ in range(_BATCHES):
            count, ready = promote(connection)
            wake(connection, ready)
            if count < PROMOTE_BATCH:
                return


class Reap:
    """Give up workers whose lease ran out, and take back their jobs.

    Args:
        is_sound: whether this connection has been sound for one full lease; before
            that nobody is given up, as an outage lets every lease run out.
    """

    def __init__(self, is_sound: Callable[[], bool]) -> None:
        self.interval = min(timedelta(seconds=1), get_settings().lease / 3)
        self._is_sound = is_sound
        self._ticks_to_sweep = 0

    def tick(self, connection: EngineConnection) -> None:
        """Mark lost workers, then take what they and others before them held."""
        if not self._is_sound():
            return
        lost = lease.give_up(connection)
        for worker_id in lost:
            logger.warning(
                "worker lost: its lease ran out",
                extra={"event": "worker.lost", "worker_id": str(worker_id)},
            )
        # What a crash between the two halves, or a claim gone astray, has left.
        if not lost and self._ticks_to_sweep > 0:
            self._ticks_to_sweep -= 1
            return
        self._ticks_to_sweep = _TICKS_PER_SWEEP
        settings = get_settings()
        for worker_id in lease.orphan_holders(connection):
            taken = 0
            for _ in range(_BATCHES):
                count, ready = lease.take(
                    connection,
                    worker_id,
                    loss_limit=settings.loss_limit,
                    keep=settings.retention_failed,
                )
                wake(connection, ready)
                taken += count
                if count < lease.TAKE_BATCH:
                    break
            logger.warning(
                "jobs taken back from a lost worker",
                extra={
                    "event": "worker.reaped",
                    "worker_id": str(worker_id),
                    "jobs": taken,
                },
            )


class Prune:
    """Delete what has outlived its keep time."""

    interval = timedelta(seconds=5)

    def tick(self, connection: EngineConnection) -> None:
        """Prune jobs, occurrences, workers and the history of queues."""
        for one_batch in (
            prune.prune_jobs,
            prune.prune_occurrences,
            prune.prune_workers,
            prune.prune_queue_history,
        ):
            for _ in range(_BATCHES):
                if one_batch(connection) < prune.PRUNE_BATCH:
                    break


def wake(connection: EngineConnection, ready: Iterable[lease.Ready]) -> None:
    """Tell every listening worker what became ready."""
    notify_with(connection, [(at.queue, at.priority, at.ready_seq) for at in ready])

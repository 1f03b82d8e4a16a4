"""What must be done now and then by somebody: promote, expire, reap, prune.

Each is safe in every worker at once: rows locked by others are skipped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final, Protocol
from uuid import UUID

from relay import counts
from relay.conf import get_settings
from relay.engine import lease, prune, stats, workers
from relay.engine.connection import EngineConnection
from relay.engine.expire import EXPIRE_BATCH, NEXT_DEADLINE_AT, expire
from relay.engine.promote import NEXT_DUE_AT, PROMOTE_BATCH, promote
from relay.engine.wakeup import notify_with

__all__ = ["Duty", "Expire", "Heed", "Promote", "Prune", "PruneRecords", "Reap"]

logger = logging.getLogger("relay.worker")

# Of one tick, so that a duty with much to do does not keep the keeper from renewing:
# a batch takes tens of milliseconds, or the statement timeout. The next tick goes on.
BUDGET_SECONDS: Final = 0.5
# Of pruning: little at a time, so that promotion is never far away. Source:
# docs/explanation/tables.md, "What is pruned".
PRUNE_INTERVAL: Final = timedelta(seconds=5)
PRUNE_BUDGET_SECONDS: Final = 0.1
LEAST_PRUNE_SHARE: Final = 0.2
MOST_PRUNE_SHARE: Final = 0.8
PRUNE_LATE_SECONDS: Final = 60.0
# A duty that no look has asked for ticks all the same, this often.
REST: Final = timedelta(seconds=60)


class Duty(Protocol):
    """Something to do now and then, over a connection of the keeper's.

    Attributes:
        interval: how long after the end of one tick the next one starts at the
            earliest.
        rest: how long after it at the latest.
        next_at: SQL of the instant from which a tick has something to do, or null. A
            look at the first entry of an index, as all workers ask once a second.
    """

    interval: timedelta
    rest: timedelta
    next_at: str

    def tick(self, connection: EngineConnection) -> bool:
        """Do it once, in short transactions; tell whether something was left over."""


class Budget:
    """The time of one tick. One batch is always done."""

    def __init__(self, seconds: float = BUDGET_SECONDS) -> None:
        self._ends_at = time.monotonic() + seconds

    @property
    def is_spent(self) -> bool:
        """Whether the rest is for the next tick."""
        return time.monotonic() >= self._ends_at


class Promote:
    """Make jobs ready whose time has come."""

    interval = timedelta(milliseconds=250)
    rest = REST
    next_at = NEXT_DUE_AT

    def tick(self, connection: EngineConnection) -> bool:
        """Promote what is due and wake the workers for it."""
        budget = Budget()
        while True:
            count, ready = promote(connection)
            wake(connection, ready)
            if count < PROMOTE_BATCH:
                return False
            if budget.is_spent:
                return True


class Expire:
    """Fail jobs whose deadline has passed before they started."""

    interval = timedelta(seconds=1)
    rest = REST
    next_at = NEXT_DEADLINE_AT

    def tick(self, connection: EngineConnection) -> bool:
        """Fail what waits and is too late now."""
        budget, failed = Budget(), 0
        while True:
            count = expire(connection)
            failed += count
            if count < EXPIRE_BATCH or budget.is_spent:
                break
        if failed:
            logger.warning(
                "jobs failed: their deadlines passed before they started",
                extra={"event": "job.expired", "jobs": failed},
            )
        return count >= EXPIRE_BATCH


class Reap:
    """Give up workers whose lease ran out, and take back their jobs.

    Args:
        is_sound: whether this connection has been sound for one full lease; before
            that nobody is given up, as an outage lets every lease run out.
    """

    # What a crash between the two halves, or a claim gone astray, has left.
    rest = timedelta(seconds=5)
    next_at = lease.NEXT_LEASE_END_AT

    def __init__(self, is_sound: Callable[[], bool]) -> None:
        self.interval = min(timedelta(seconds=1), get_settings().lease / 3)
        self._is_sound = is_sound

    def tick(self, connection: EngineConnection) -> bool:
        """Mark lost workers, then take what they and others before them held."""
        if not self._is_sound():
            return False
        lost = lease.give_up(connection)
        counts.add("relay_leases_expired_total", amount=len(lost))
        for worker_id in lost:
            logger.warning(
                "worker lost: its lease ran out",
                extra={"event": "worker.lost", "worker_id": str(worker_id)},
            )
        budget = Budget()
        for worker_id in lease.orphan_holders(connection):
            self._take(connection, worker_id, budget)
            if budget.is_spent:
                return True
        return False

    def _take(
        self, connection: EngineConnection, worker_id: UUID, budget: Budget
    ) -> None:
        settings = get_settings()
        taken = 0
        while True:
            count, ready = lease.take(
                connection,
                worker_id,
                loss_limit=settings.loss_limit,
            )
            wake(connection, ready)
            taken += count
            if count < lease.TAKE_BATCH or budget.is_spent:
                break
        if taken:  # else others were faster
            logger.warning(
                "jobs taken back from a lost worker",
                extra={
                    "event": "worker.reaped",
                    "worker_id": str(worker_id),
                    "jobs": taken,
                },
            )


class Heed:
    """Do what somebody has asked of this worker: be quiet, go on, stop.

    Args:
        supervisor: of the worker's rows.
        on_asked: does it; it may be called with the same again.
    """

    interval = timedelta(milliseconds=250)
    rest = REST

    def __init__(
        self, supervisor: UUID, on_asked: Callable[[workers.Request], None]
    ) -> None:
        self.next_at = workers.asked_at(supervisor)
        self._supervisor = supervisor
        self._on_asked = on_asked

    def tick(self, connection: EngineConnection) -> bool:
        """Do the latest request, then take it off the rows."""
        asked = workers.read_asked(connection, self._supervisor)
        if asked is not None:
            self._on_asked(asked.request)
            workers.note_done(connection, self._supervisor, asked)
            logger.info(
                "asked by an operator",
                extra={"event": "worker.asked", "request": asked.request},
            )
        return False


class Prune:
    """Delete jobs, and drop results, that have outlived their keep time.

    Where more is due than a tick may do it takes a share of the time, the larger the
    later it is: so it keeps pace with any rate that one connection can.
    """

    rest = REST

    def __init__(self) -> None:
        self._pruner = prune.Pruner()
        self.interval = PRUNE_INTERVAL
        self.next_at = self._pruner.next_at

    def tick(self, connection: EngineConnection) -> bool:
        """Prune results and jobs, the oldest first."""
        begun_at, budget = time.monotonic(), Budget(PRUNE_BUDGET_SECONDS)
        while has_more := self._pruner.prune(connection) >= prune.PRUNE_BATCH:
            if budget.is_spent:
                break
        self.next_at = self._pruner.next_at
        self.interval = PRUNE_INTERVAL
        if has_more:
            worked = timedelta(seconds=time.monotonic() - begun_at)
            self.interval = worked * (1 / prune_share(self._pruner.late_seconds) - 1)
        return has_more


def prune_share(late_seconds: float) -> float:
    """Return the part of the time that pruning may take when it is so late."""
    lateness = min(1.0, max(0.0, late_seconds) / PRUNE_LATE_SECONDS)
    return LEAST_PRUNE_SHARE + (MOST_PRUNE_SHARE - LEAST_PRUNE_SHARE) * lateness


class PruneRecords:
    """Delete what else has outlived its keep time."""

    interval = timedelta(seconds=5)
    rest = REST
    next_at = "NULL::timestamptz"

    def tick(self, connection: EngineConnection) -> bool:
        """Prune rows of workers, queues' histories, schedules, requests and acts."""
        budget = Budget()
        for one_batch in (
            prune.prune_workers,
            prune.prune_queue_history,
            prune.prune_occurrences,
            prune.prune_requests,
            stats.prune_stats,
            prune.prune_operations,
            prune.prune_audit,  # last: a role may be denied to delete there
        ):
            while one_batch(connection) >= prune.PRUNE_BATCH:
                if budget.is_spent:
                    return True
        return False


def wake(connection: EngineConnection, ready: Iterable[lease.Ready]) -> None:
    """Tell every listening worker what became ready."""
    notify_with(connection, [(at.queue, at.priority, at.ready_seq) for at in ready])

"""What children tell of their work, added up by the keeper: for metrics and charts."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from relay import counts
from relay.buckets import STAT_BOUNDS, coarse
from relay.conf import get_settings
from relay.engine.connection import EngineConnection
from relay.engine.stats import NewStat, add_stats
from relay.worker.tally import Cell, Key, Told, read_told

__all__ = ["RollUp", "meter"]

LARGEST_BYTES: Final = 1 << 20
# Between two writes of one worker: charts are so much behind.
WRITE_SECONDS: Final = 10.0
# Rows of one statement.
ROWS_AT_ONCE: Final = 500

# What is kept in the database; the others are no ends of attempts.
_KEPT: Final = frozenset(("completed", "failed", "cancelled", "retried", "snoozed"))
_COUNTERS: Final = {
    "retried": "relay_jobs_retried_total",
    "snoozed": "relay_jobs_snoozed_total",
}


def meter(told: Told) -> None:
    """Add what a child has told to this process's metrics."""
    for (queue, task, outcome), cell in told.cells.items():
        if outcome in _COUNTERS:
            counts.add(_COUNTERS[outcome], queue, task, amount=cell.count)
        elif outcome in _KEPT:
            name = "relay_jobs_finished_total"
            counts.add(name, queue, task, outcome, amount=cell.count)
        counts.add_times(
            "relay_job_duration_seconds",
            *(queue, task),
            counts=cell.run,
            seconds=cell.run_seconds,
        )
        counts.add_times(
            "relay_job_queue_wait_seconds",
            queue,
            counts=cell.wait,
            seconds=cell.wait_seconds,
        )
    for key, jobs in told.errors.items():
        counts.add("relay_job_errors_total", *key, amount=jobs)
    for queue, jobs in told.claimed.items():
        counts.add("relay_claim_jobs_total", queue, amount=jobs)
    for queue, claims in told.empty.items():
        counts.add("relay_claim_empty_total", queue, amount=claims)
    name = "relay_claim_duration_seconds"
    counts.add_times(name, counts=told.claims, seconds=told.claim_seconds)
    counts.add("relay_leases_lost_total", amount=told.lost)
    for (name, *labels), amount in told.sums.items():
        counts.add(name, *labels, amount=amount)


class RollUp:
    """A duty: takes in what children tell, and writes it to relay_stat now and then.

    Args:
        children: one datagram socket a child, on which it tells.
        is_metered: whether the metrics are kept in this process, and not in theirs.

    Attributes:
        claimed_at: when a child last told of jobs that it had claimed, by the
            monotonic clock; 0 if none ever did.
    """

    interval = rest = timedelta(seconds=WRITE_SECONDS)
    next_at = "NULL::timestamptz"

    def __init__(self, children: Sequence[socket.socket], *, is_metered: bool) -> None:
        self._children = children
        self._is_metered = is_metered
        self._names = counts.Names(get_settings().metrics_max_tasks)
        self._cells: dict[Key, Cell] = {}
        self._running: list[Counter[str]] = [Counter() for _ in children]
        self.claimed_at = 0.0

    def read(self, child: socket.socket) -> None:
        """Take in what one child has told."""
        index = self._children.index(child)
        with suppress(BlockingIOError, ConnectionError):
            while True:
                self._take_in(index, read_told(child.recv(LARGEST_BYTES)))

    def read_all(self) -> None:
        """Take in what all of them have told."""
        for child in self._children:
            self.read(child)

    def forget(self, index: int) -> None:
        """Take it that this child holds no job: it is gone."""
        self._set_running(index, Counter())

    def _take_in(self, index: int, told: Told) -> None:
        if told.claimed:
            self.claimed_at = time.monotonic()
        if self._is_metered:
            meter(told)
        before = self._running[index] if told.goes_on else Counter[str]()
        self._set_running(index, before + told.running)
        for (queue, task, outcome), cell in told.cells.items():
            if outcome in _KEPT:
                key = queue, self._names.fold(task), outcome
                self._cells.setdefault(key, Cell()).add(cell)

    def _set_running(self, index: int, running: Counter[str]) -> None:
        """Set the gauges of what all children hold; they are those of one process."""
        before, self._running[index] = self._running[index], running
        if self._is_metered and before != running:
            together = sum(self._running, Counter[str]())
            for queue in before.keys() | running.keys():
                counts.put("relay_jobs_running", queue, value=together[queue])

    def tick(self, connection: EngineConnection) -> bool:
        """Write what has been told since the last time."""
        self.read_all()
        for (queue, task, outcome), jobs in counts.take_ended().items():
            key = queue, self._names.fold(task), outcome
            self._cells.setdefault(key, Cell()).unstarted += jobs
        while self._cells:
            keys = list(self._cells)[:ROWS_AT_ONCE]
            add_stats(connection, [_stat(key, self._cells[key]) for key in keys])
            for key in keys:
                del self._cells[key]
        return False


def _stat(key: Key, cell: Cell) -> NewStat:
    return NewStat(
        *key,
        jobs=cell.count,
        run_s=cell.run_seconds,
        wait_s=cell.wait_seconds,
        run=coarse(cell.run, STAT_BOUNDS),
        wait=coarse(cell.wait, STAT_BOUNDS),
    )

"""Attempts that do not stop when they are told to, and what they cost their process.

A thread that waits in C, or holds the interpreter's lock there, cannot be stopped from
inside. What is here runs in the parent, which needs no word of the child for it.
Source: docs/explanation/cancelling.md, "What does not stop".
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from relay.conf import get_settings
from relay.engine.claim import ClaimedJob
from relay.engine.finish import Settled, Verb
from relay.exceptions import JobTimeout, UnknownTask
from relay.retry import NO_RULES
from relay.tasks import get_task
from relay.worker.shared import SlotTable, Started
from relay.worker.verdict import judge

__all__ = [
    "KILLED_FOR",
    "NOT_STOPPED",
    "Stuck",
    "in_hand",
    "read_timed_out",
    "verdict_if_killed",
]

logger = logging.getLogger("relay.worker")

KILLED_FOR: Final = "one of its jobs did not stop when it was told to"
NOT_STOPPED: Final = (
    "the job ran longer than its timeout and did not stop when it was told to: its "
    "process was killed"
)

# The keeper names cancelled jobs once a second until they have ended. What it has not
# named for this long has, or the database is away: then nobody is killed for it.
_FRESH_SECONDS: Final = 3.0


@dataclass(slots=True)
class _Child:
    """What is known of one child process.

    Attributes:
        asked_at: when its jobs were first named that are to stop.
        named_at: when they were last.
        kill_at: when it is killed at the latest, once a job of its is stuck.
    """

    asked_at: dict[tuple[UUID, int], float] = field(default_factory=dict)
    named_at: float = 0.0
    kill_at: float | None = None


class Stuck:
    """Which children hold an attempt that does not stop, and when that ends them.

    Such a child is told to drain: it claims no more, and its other jobs may go on for
    RELAY["GRACE"]. It is killed then, or as soon as it has no other.
    """

    def __init__(self) -> None:
        settings = get_settings()
        self._grace = settings.grace.total_seconds()
        self._cancel_grace = settings.cancel_grace.total_seconds()
        self._children: dict[UUID, _Child] = {}

    def note_cancels(self, worker_id: UUID, jobs: Iterable[tuple[str, int]]) -> None:
        """Take in which of a child's jobs are to stop, all of them."""
        now = time.monotonic()
        child = self._children.setdefault(worker_id, _Child())
        keys = [(UUID(job_id), attempt) for job_id, attempt in jobs]
        child.asked_at = {key: child.asked_at.get(key, now) for key in keys}
        child.named_at = now

    def forget(self, worker_id: UUID) -> None:
        """Forget a child that is gone."""
        self._children.pop(worker_id, None)

    def must_kill(self, pid: int, table: SlotTable) -> bool:
        """Tell whether a child must be killed; before that, tell it to drain."""
        worker_id, now = table.worker_id, time.monotonic()
        child = self._children.get(worker_id)
        if child is None and not table.has_limits:
            return False
        started = list(table.entries())
        stuck = [each for each in started if self._is_stuck(each, child, now)]
        if child is None or child.kill_at is None:
            if not stuck:
                return False
            child = self._children.setdefault(worker_id, _Child())
            child.kill_at = now + self._grace
            os.kill(pid, signal.SIGTERM)
            logger.error(
                "a job does not stop: its process takes no more, and is killed when "
                "the other jobs in it have ended",
                extra={
                    "event": "worker.stuck",
                    "worker_id": str(worker_id),
                    "job_ids": [str(each.job_id) for each in stuck],
                    "others": len(started) - len(stuck),
                },
            )
        return now >= child.kill_at or 0 < len(stuck) == len(started)

    def _is_stuck(self, each: Started, child: _Child | None, now: float) -> bool:
        if each.is_late(now):
            return True
        if each.is_over or child is None or now - child.named_at > _FRESH_SECONDS:
            return False
        asked_at = child.asked_at.get((each.job_id, each.attempt))
        return asked_at is not None and now - asked_at >= self._cancel_grace


# --- what becomes of a job whose process is killed -----------------------------------


# The child decides it as the job starts, by the task's own rules, as the keeper runs
# no user code: the delay of the retry, or a negative one if there is none; and how
# long retries may start, in seconds from the job's creation, or the negative of an
# instant's.
def verdict_if_killed(job: ClaimedJob) -> tuple[float, float]:
    """Return what becomes of a job whose process is killed for its timeout."""
    try:
        rules = get_task(job.task).retries
    except UnknownTask:
        rules = NO_RULES
    ruling = partial(
        judge,
        JobTimeout(NOT_STOPPED),
        failures=job.failures,
        max_retries=job.max_retries,
    )
    try:
        verb, delay = ruling(rules=rules)
    except BaseException:  # an edge: a backoff that exits must not cost the slot
        verb, delay = ruling()
    if verb != "retry":
        return -1.0, 0.0
    if isinstance(rules.until, datetime):
        return delay.total_seconds(), -rules.until.timestamp()
    until = timedelta(0) if rules.until is None else rules.until
    return delay.total_seconds(), until.total_seconds()


def in_hand(table: SlotTable) -> dict[str, list[Any]]:
    """Return what a child that is gone had started, as a message's fields."""
    now = time.monotonic()
    started: list[Any] = []
    timed_out: list[Any] = []
    for each in table.entries():
        if each.is_late(now):
            timed_out.append([str(each.job_id), each.attempt, *each.verdict])
        else:
            started.append((str(each.job_id), each.attempt))
    return {"started": started, "timed_out": timed_out}


def read_timed_out(message: Mapping[str, Any]) -> list[Settled]:
    """Return the outcomes of a message's attempts that were killed for a timeout."""
    outcomes: list[Settled] = []
    for job_id, attempt, delay_seconds, until in message["timed_out"]:
        verb: Verb = "fail" if delay_seconds < 0 else "retry"
        outcomes.append(
            Settled(
                id=UUID(job_id),
                attempt=attempt,
                verb=verb,
                is_charged=True,
                delay_seconds=max(0.0, delay_seconds),
                until=_read_until(until),
                error_class=JobTimeout.__name__,
                error_message=NOT_STOPPED,
            )
        )
    return outcomes


def _read_until(until: float) -> timedelta | datetime | None:
    if until > 0:
        return timedelta(seconds=until)
    return datetime.fromtimestamp(-until, UTC) if until else None

"""Telling the project's receivers what has become of jobs, once it is committed.

Receivers run in a thread of their own: one that is slow must not hold up the loop that
flushes and claims. A loop with many ends untold claims no more until they are told.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import connections
from django.dispatch import Signal

from relay.conf import LONGEST, get_settings
from relay.engine.claim import ClaimedJob
from relay.engine.finish import Outcome, Settled, Written
from relay.handles import JobHandle
from relay.signals import (
    job_cancelled,
    job_completed,
    job_failed,
    job_retrying,
    job_started,
)
from relay.tasks import Task, all_tasks
from relay.worker.attempt_log import log_failed_after_all
from relay.worker.sessions import clean_connections
from relay.worker.threads import begin

__all__ = [
    "Announcer",
    "News",
    "atell_started",
    "is_heard",
    "log_if_unforeseen",
    "news_of",
    "tell_end",
    "tell_started",
]

logger = logging.getLogger("relay.worker")

# Ends that may wait for their receivers before a child claims no more.
BACKLOG: Final = 1_000
# That a child claims no more for this is reported so often at most.
REPORT_SECONDS: Final = 60.0

_OF_STATES: Final = {
    "completed": job_completed,
    "failed": job_failed,
    "retrying": job_retrying,
    "cancelled": job_cancelled,
}


class News(NamedTuple):
    """One announcement: a signal, its sender and its arguments."""

    signal: Signal
    sender: Task[..., Any] | None
    values: dict[str, Any]


def tell_started(job: ClaimedJob, task: Task[..., Any]) -> None:
    """Announce an attempt that is about to begin, to be called in its thread."""
    tell(News(job_started, task, _values(job, job.attempt)))


async def atell_started(job: ClaimedJob, task: Task[..., Any]) -> None:
    """As tell_started, in its coroutine."""
    await job_started.asend_robust(task, **_values(job, job.attempt))


def is_heard() -> bool:
    """Tell whether anybody listens to how jobs end."""
    return any(signal.receivers for signal in _OF_STATES.values())


def news_of(
    ends: Iterable[tuple[ClaimedJob, Outcome, float]], states: Mapping[UUID, str]
) -> Iterator[News]:
    """Give what there is to announce of attempts that have ended.

    Args:
        ends: each with the seconds that it took.
        states: of the jobs that were written, what they are now; those that were not
            have another owner, or have ended before.
    """
    for job, outcome, seconds in ends:
        state = states.get(job.id)
        if isinstance(outcome, Written):
            state = None if outcome.result is None else "completed"
        signal = _OF_STATES.get(state or "")
        # Put off or handed back, a job is retrying too, but no attempt of it failed.
        is_left = state == "retrying" and not _has_failed(outcome)
        if signal is None or is_left or not signal.receivers:
            continue
        values = _values(job, outcome.attempt) | {"seconds": seconds}
        if isinstance(outcome, Settled) and state in ("failed", "retrying"):
            values |= {
                "error_class": outcome.error_class,
                "error_message": outcome.error_message,
            }
            if state == "retrying":
                # As the row has it: a timedelta's largest value is none in seconds.
                delay_seconds = min(outcome.delay_seconds, LONGEST.total_seconds())
                values["delay"] = timedelta(seconds=delay_seconds)
        yield News(signal, all_tasks().get(job.task), values)


def log_if_unforeseen(job: ClaimedJob, outcome: Outcome) -> None:
    """Log the failure of a job whose attempt's end was to be another.

    It was put off or handed back too often, had no time left, or its process died once
    too often: only the statement that wrote the end knew.
    """
    if isinstance(outcome, Settled) and outcome.verb != "fail":
        log_failed_after_all(job, outcome)


def _has_failed(outcome: Outcome) -> bool:
    return isinstance(outcome, Settled) and outcome.verb == "retry"


def _values(job: ClaimedJob, attempt: int) -> dict[str, Any]:
    handle = JobHandle[Any](job.id, job.task, using=get_settings().database)
    return {"job": handle, "queue": job.queue, "attempt": attempt}


def tell(news: News) -> None:
    """Call the receivers; what they raise is logged, by Django or here."""
    try:
        news.signal.send_robust(news.sender, **news.values)
    except BaseException:  # an edge: Django lets SystemExit and the like pass
        with suppress(Exception):
            logger.exception("a receiver of a signal broke off")


def tell_end(
    job: ClaimedJob, outcome: Outcome, seconds: float, states: Mapping[UUID, str]
) -> None:
    """Announce how one attempt ended, here and now: for tests."""
    if states.get(job.id) == "failed":
        log_if_unforeseen(job, outcome)
    for news in news_of([(job, outcome, seconds)], states):
        tell(news)


class Announcer:
    """Calls receivers in a thread, which starts with the first announcement.

    Args:
        on_told: called, from that thread, when it is no longer behind or busy.
    """

    def __init__(self, on_told: Callable[[], None] = lambda: None) -> None:
        self._on_told = on_told
        self._queue: queue.SimpleQueue[News | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._put = 0
        self._told = 0
        self._reported_at = float("-inf")
        self._over_by: float | None = None

    @property
    def is_busy(self) -> bool:
        """Whether something was put and is not told yet."""
        return self._told < self._put

    @property
    def is_behind(self) -> bool:
        """Whether so much is not told that no more should be added."""
        return self._put - self._told >= BACKLOG

    def is_over(self, grace: timedelta) -> bool:
        """Tell whether all is told, or was asked for so long that the rest is lost."""
        now = time.monotonic()
        if not self.is_busy:
            return True
        if self._over_by is None:
            self._over_by = now + grace.total_seconds()
        if now < self._over_by:
            return False
        logger.error(
            "receivers of signals did not return in time: what they were to hear is "
            "lost",
            extra={
                "event": "worker.receivers_stuck",
                "untold": self._put - self._told,
            },
        )
        return True

    def put(self, news: Iterable[News]) -> None:
        """Announce, soon and in this order. One caller."""
        for one in news:
            self._put += 1
            self._queue.put(one)
        if self.is_behind:
            self._report()
        self.see_to_thread()

    def see_to_thread(self) -> None:
        """Start the thread if there is something to tell and it could not start yet."""
        if self._thread is None and self._put:
            thread = threading.Thread(
                target=self._run, name="relay-signals", daemon=True
            )
            if begin(thread):
                self._thread = thread

    def _report(self) -> None:
        """Log that nothing is claimed here: a receiver may never return."""
        now = time.monotonic()
        if now - self._reported_at >= REPORT_SECONDS:
            self._reported_at = now
            logger.warning(
                "receivers of signals are behind: no job is claimed until they have "
                "heard of those that ended",
                extra={
                    "event": "worker.receivers_behind",
                    "untold": self._put - self._told,
                },
            )

    def close(self) -> None:
        """End the thread once what was put is told."""
        if self._thread is not None:
            self._queue.put(None)

    def _run(self) -> None:
        while (news := self._queue.get()) is not None:
            tell(news)
            with suppress(Exception):  # a session that was lost: made anew when needed
                clean_connections()
            was_behind = self.is_behind
            self._told += 1
            if was_behind != self.is_behind or not self.is_busy:
                self._on_told()
        connections.close_all()

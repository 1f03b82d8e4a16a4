"""What is told of a schedule's occurrences after the commit: logs, counts."""

from __future__ import annotations

import logging
from typing import Any, Final

from relay import counts, origin
from relay.engine import enqueue_log
from relay.engine.new_job import NewJob

__all__ = ["News"]

logger = logging.getLogger("relay.scheduler")

_EVENTS: Final = {
    "schedule planned": "schedule.planned",
    "schedule fired": "schedule.fired",
    "schedule caught up": "schedule.caught_up",
    "occurrence was there already": "schedule.duplicate",
    "occurrence skipped": "schedule.skipped",
    "occurrence waits": "schedule.waiting",
    "occurrences missed": "schedule.missed",
}
# Of relay_schedule_fires_total, by what is logged.
_RESULTS: Final = {
    "schedule fired": "fired",
    "schedule caught up": "caught_up",
    "occurrence was there already": "duplicate",
    "occurrence skipped": "skipped",
    "occurrences missed": "missed",
}


class News:
    """What one transaction has done of one schedule.

    Told only once it is committed: else it would say what a rollback takes back, and a
    log's handler is somebody else's code, which must not run under the row's lock.
    """

    def __init__(self) -> None:
        self._events: list[tuple[int, str, dict[str, Any]]] = []
        self._jobs: list[NewJob] = []

    def note(self, level: int, message: str, **values: Any) -> None:
        """Take in what is to be logged."""
        self._events.append((level, message, values))

    def enqueues(self, job: NewJob) -> None:
        """Take in a job that is inserted."""
        self._jobs.append(job)

    def tell(self, schedule: str) -> None:
        """Log and count what has been committed."""
        if self._jobs and enqueue_log.is_on():
            with origin.asked_by("schedule", None):
                enqueue_log.log_jobs(self._jobs, {})
        for level, message, values in self._events:
            fields = {"event": _EVENTS[message], "schedule": schedule, **values}
            logger.log(level, message, extra=fields)
            if (result := _RESULTS.get(message)) is not None:
                count = values.get("missed", 1)
                counts.add("relay_schedule_fires_total", schedule, result, amount=count)

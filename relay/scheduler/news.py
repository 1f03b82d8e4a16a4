"""What is told of a schedule's occurrences after the commit: spans, logs, counts."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from relay import counts, origin, traces
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
        self._spans: list[traces.Fired] = []

    def note(self, level: int, message: str, **values: Any) -> None:
        """Take in what is to be logged."""
        self._events.append((level, message, values))

    def enqueues(self, schedule: str, job: NewJob, due_at: datetime) -> NewJob:
        """Take in a job to insert for an instant; return it, with its trace if any."""
        if (tracer := traces.tracer()) is not None:
            span = tracer.fire(schedule, due_at.astimezone(UTC).isoformat(), job)
            self._spans.append(span)
            if span.carrier:
                job = job._replace(meta=traces.with_carrier(job.meta, span.carrier))
        self._jobs.append(job)
        return job

    @contextmanager
    def told_after(self) -> Iterator[None]:
        """Surround the transaction; its spans end with it."""
        try:
            yield
        except BaseException as error:
            for span in self._spans:
                span.end(error)
            raise
        for span in self._spans:
            span.end()

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

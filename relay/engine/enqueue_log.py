"""What is told of each job that is enqueued, or was there already: counts and logs.

Logged is at DEBUG alone.

Whoever inserts asks is_on() once for a call, not for each job.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

from relay import counts, origin
from relay.conf import get_settings
from relay.engine.new_job import KeyHolder, NewJob
from relay.redaction import logged_arguments

__all__ = ["ENQUEUED", "has_arguments", "is_on", "log_jobs", "log_rows", "note"]

logger = logging.getLogger("relay.engine")

ENQUEUED: Final = "relay_jobs_enqueued_total"
_DEDUPLICATED: Final = "relay_jobs_deduplicated_total"


def is_on() -> bool:
    """Tell whether anybody wants to hear of each job."""
    return logger.isEnabledFor(logging.DEBUG)


def has_arguments() -> bool:
    """Tell whether anybody wants to see what each job is called with."""
    return is_on() and get_settings().log_args


def note(jobs: Sequence[NewJob], holders: Mapping[int, KeyHolder]) -> None:
    """Count jobs, those at some places as held back by their unique keys; log them."""
    if is_on():
        log_jobs(jobs, holders)
    if counts.is_on():
        for place, job in enumerate(jobs):
            name = _DEDUPLICATED if place in holders else ENQUEUED
            counts.add(name, job.queue, job.task)


def log_rows(rows: Iterable[tuple[UUID, str, str, int, int, str]]) -> None:
    """Log plain jobs that were inserted, as enqueue.ReadyRow has them."""
    for job_id, task, queue, priority, max_retries, args in rows:
        job = NewJob(job_id, task, queue, args, max_retries, priority)
        _log(job, job_id, "job enqueued", "job.enqueued")


def log_jobs(jobs: Sequence[NewJob], holders: Mapping[int, KeyHolder]) -> None:
    """Log jobs that were inserted, but at some places those that hold their keys."""
    for place, job in enumerate(jobs):
        holder = holders.get(place)
        if holder is None:
            _log(job, job.id, "job enqueued", "job.enqueued")
        else:
            _log(job, holder.id, "job was there already", "job.deduplicated")


def _log(job: NewJob, job_id: UUID, message: str, event: str) -> None:
    """Log a job; of its unique key the hash, of its arguments what LOG_ARGS says."""
    delay = None if job.run_in is None else max(job.run_in, timedelta(0))
    told = {}
    if get_settings().log_args:
        told["arguments"] = logged_arguments(job.task, job.args)
    logger.debug(
        message,
        extra={
            "event": event,
            "job_id": str(job_id),
            "task": job.task,
            "queue": job.queue,
            "priority": job.priority,
            "run_at": None if job.run_at is None else job.run_at.isoformat(),
            "delay_s": None if delay is None else delay.total_seconds(),
            "unique_key": None if job.unique is None else job.unique.key.hex(),
            "source": origin.source(),
            "request_id": origin.request_id(),
            **told,
        },
    )

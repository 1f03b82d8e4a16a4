"""What is counted, under which names: a contract, as dashboards and rules read it.

No label holds a worker, a host, a job, an error's text, a tag or a user.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from relay.buckets import RUN_BOUNDS, WAIT_BOUNDS

__all__ = [
    "API_BOUNDS",
    "CLAIM_BOUNDS",
    "COUNTERS",
    "DATABASE",
    "HISTOGRAMS",
    "RUNNING",
    "Histogram",
]

# Parts of relay.buckets.FINE. Few of the API: each address has a histogram.
API_BOUNDS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
CLAIM_BOUNDS: Final = (0.001, 0.002, 0.004, 0.008, 0.016, 0.05, 0.1, 0.5, 1.0)

_JOB: Final = ("queue", "task")

# By name: what it says, and its labels.
COUNTERS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "relay_jobs_enqueued_total": (
        "Jobs inserted by this process, also by transactions rolled back later.",
        _JOB,
    ),
    "relay_jobs_deduplicated_total": (
        "Jobs not inserted, as another one held their unique key.",
        _JOB,
    ),
    "relay_jobs_finished_total": (
        "Jobs that ended for good, by outcome: completed, failed or cancelled.",
        (*_JOB, "outcome"),
    ),
    "relay_jobs_retried_total": ("Attempts after which a job runs again.", _JOB),
    "relay_jobs_snoozed_total": ("Jobs that their handlers put off.", _JOB),
    "relay_job_errors_total": (
        "Attempts that failed, by reason: exception, timeout, deadline, lost, killed.",
        (*_JOB, "reason"),
    ),
    "relay_claim_jobs_total": ("Jobs claimed.", ("queue",)),
    "relay_claim_empty_total": ("Claims of this queue that found none.", ("queue",)),
    "relay_api_requests_total": (
        "Requests to the REST API that were answered.",
        ("route", "method", "status"),
    ),
    "relay_notify_total": (
        "Wake-ups, by kind: sent after enqueues, received by workers.",
        ("kind",),
    ),
    "relay_leases_renewed_total": ("Leases of workers renewed.", ()),
    "relay_leases_expired_total": ("Workers given up: their leases ran out.", ()),
    "relay_leases_lost_total": ("Results dropped: another worker had the job.", ()),
    "relay_schedule_fires_total": (
        "Occurrences, by result: fired, caught_up, skipped, missed or duplicate.",
        ("schedule", "result"),
    ),
}


@dataclass(frozen=True, slots=True)
class Histogram:
    """What a histogram says, its labels, and the upper bounds of its buckets."""

    text: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...]


HISTOGRAMS: Final[Mapping[str, Histogram]] = {
    "relay_job_queue_wait_seconds": Histogram(
        "From when a job was due to its claim; counted when the attempt ends.",
        ("queue",),
        WAIT_BOUNDS,
    ),
    "relay_job_duration_seconds": Histogram("How long attempts ran.", _JOB, RUN_BOUNDS),
    "relay_claim_duration_seconds": Histogram(
        "Round trips that flush what has ended and claim what comes next.",
        (),
        CLAIM_BOUNDS,
    ),
    "relay_api_request_duration_seconds": Histogram(
        "How long answers of the REST API took.", ("route", "method"), API_BOUNDS
    ),
}

RUNNING: Final = "relay_jobs_running"

# Gauges of the database, by name: what it says, and its labels.
DATABASE: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "relay_queue_latency_seconds": (
        "Age of the oldest job that is due and not claimed; 0 if there is none.",
        ("queue",),
    ),
    "relay_jobs": (
        "Jobs by state; queued ones up to 100,001 a queue, those of the other states "
        "but running among the 10,001 that are next or were last.",
        ("queue", "state"),
    ),
    "relay_queue_paused": ("1 while nothing is claimed of the queue.", ("queue",)),
    "relay_workers": ("Workers of the last day by state.", ("state",)),
    "relay_worker_slots": (
        "Slots busy with jobs of the queue, and free in workers that serve it.",
        ("queue", "use"),
    ),
    "relay_schedule_late_seconds": (
        "How long ago the oldest occurrence was due that nobody has dealt with.",
        ("schedule",),
    ),
    "relay_schedule_last_success_timestamp_seconds": (
        "When a job of the schedule last completed.",
        ("schedule",),
    ),
    "relay_table_bytes": ("Size on disk, with indexes.", ("table",)),
    "relay_table_dead_rows": ("Dead rows, as PostgreSQL estimates them.", ("table",)),
    "relay_postgres_info": ("1; the label says which PostgreSQL it is.", ("version",)),
    "relay_collector_duration_seconds": ("How long the last collection took.", ()),
    "relay_collector_success": ("1 if the last collection read all of it.", ()),
}

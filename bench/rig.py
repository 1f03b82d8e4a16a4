"""What the measurements share: an emptied database, a worker, the raw ceiling."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from django.db import connection

from relay.engine import lease
from relay.engine.claim import Marks, read_claimed, send_claim
from relay.engine.connection import connect
from relay.engine.finish import Completed, read_finished, send_completed
from relay.ids import uuid7
from relay.requests import JobRequest, enqueue_many

__all__ = ["empty", "enqueue_all", "pace", "raw_drain", "settle", "worker"]

CHUNK = 1_000
_LEASE = timedelta(minutes=10)
_LONGEST_SECONDS = 600
_TABLES = (
    "relay_job, relay_attempt, relay_history, relay_worker, relay_queue, "
    "relay_occurrence, relay_schedule, relay_output, relay_step"
)


def empty() -> None:
    """Remove every row, and what earlier measurements left in statistics and WAL."""
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {_TABLES}")
    settle()


def settle() -> None:
    """Vacuum and write back, as autovacuum and the checkpointer would soon have."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE relay_job")
        cursor.execute("CHECKPOINT")


def enqueue_all(requests: Sequence[JobRequest[None]]) -> float:
    """Enqueue in calls of 1,000; return jobs a second."""
    begun_at = time.perf_counter()
    for start in range(0, len(requests), CHUNK):
        enqueue_many(requests[start : start + CHUNK])
    return len(requests) / (time.perf_counter() - begun_at)


@contextmanager
def worker(*arguments: str) -> Iterator[int]:
    """Run relay_worker with these arguments; drain it at the end. Gives its pid."""
    process = subprocess.Popen(  # noqa: S603 - relay's own command
        [sys.executable, "-m", "django", "relay_worker", *arguments],
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "bench.settings"},
        stdout=subprocess.DEVNULL,
    )
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(40)


def pace(jobs: int, *, task: str | None = None) -> float:
    """Wait until so many jobs have completed; return jobs a second.

    From the first start to the last end, by the database's clock.

    Raises:
        TimeoutError: they did not, as when the worker has ended.
    """
    deadline = time.monotonic() + _LONGEST_SECONDS
    while time.monotonic() < deadline:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*), extract(epoch FROM max(finished_at) - "
                "min(started_at))::float8 FROM relay_job "
                "WHERE state = 'completed' AND task = coalesce(%s, task)",
                [task],
            )
            count, seconds = cursor.fetchone()
        if count >= jobs:
            return float(jobs / seconds)
        time.sleep(0.2)
    raise TimeoutError(f"{jobs} jobs were not done within {_LONGEST_SECONDS} s")


def raw_drain(batch: int = 100) -> float:
    """Drain the default queue by the engine's statements alone; jobs a second.

    One process, one thread, no handler: finish and claim of batch jobs in one round
    trip, as a worker does.
    """
    row = lease.WorkerRow(
        id=uuid7(),
        name="raw",
        supervisor=uuid7(),
        host="bench",
        pid=os.getpid(),
        queues=["default"],
        concurrency=1,
        version="bench",
    )
    with connect("default", role="duty", name="bench") as duty:
        lease.register(duty, row, lease=_LEASE)
    marks = Marks()
    queues = ["default"]
    jobs = 0
    ended: list[Completed] = []
    with connect("default", role="hot", name="bench") as hot:
        begun_at = time.perf_counter()
        while True:
            with hot.block():
                finishing = send_completed(hot, ended, worker_id=row.id)
                claiming = send_claim(
                    hot, marks.spans(queues), limit=batch, worker_id=row.id
                )
            read_finished(finishing)
            claimed = read_claimed(claiming, queues)
            marks.note(claimed, limit=batch)
            if not claimed:
                return jobs / (time.perf_counter() - begun_at)
            jobs += len(claimed)
            ended = [
                Completed(job.id, job.attempt, "null", 86_400.0) for job in claimed
            ]

"""The ceiling: the engine's own statements by psycopg, with nothing around them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg

from bench import ours
from bench.contenders import EnqueueMany, EnqueueOne
from bench.record import note_all
from relay.engine import lease
from relay.engine.claim import Marks, read_claimed, send_claim
from relay.engine.connection import connect
from relay.engine.finish import Completed, read_finished, send_completed
from relay.ids import uuid7

__all__ = ["enqueuing", "enqueuing_many", "set_up", "time_claims", "work"]

BATCH = 100
# Between two looks at an empty queue.
IDLE_SECONDS = 0.005
_KEEP_SECONDS = 86_400.0
_QUEUES = ["default"]
_INSERT = """
INSERT INTO relay_job (id, task, queue, priority, max_retries, args)
VALUES (%b, %b, %b, %b, %b, %b::jsonb)
"""
_COPY = "COPY relay_job (id, task, queue, priority, max_retries, args) FROM STDIN"

set_up = ours.set_up


def _row(number: int) -> tuple[Any, ...]:
    args = f'{{"args": [], "kwargs": {{"n": {number}}}}}'
    return uuid7(), "bench.tasks.noop", "default", 0, 25, args


@contextmanager
def enqueuing() -> Iterator[EnqueueOne]:
    """Connect; give a prepared INSERT of what relay's single enqueue inserts."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as session:
        cursor = session.cursor()
        yield lambda number: cursor.execute(_INSERT, _row(number), prepare=True)


@contextmanager
def enqueuing_many() -> Iterator[EnqueueMany]:
    """Connect; give a COPY of as many, committed."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as session:

        def enqueue(numbers: Iterable[int]) -> None:
            with session.cursor() as cursor, cursor.copy(_COPY) as copy:
                for number in numbers:
                    copy.write_row(_row(number))

        yield enqueue


def work() -> None:
    """Finish and claim in one round trip, over and over, until SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    worker_id = _register()
    marks = Marks()
    ended: list[Completed] = []
    with connect("default", role="hot", name="bench") as hot:
        while not stop.is_set():
            with hot.block():
                finishing = send_completed(hot, ended, worker_id=worker_id)
                claiming = send_claim(
                    hot, marks.spans(_QUEUES), limit=BATCH, worker_id=worker_id
                )
            read_finished(finishing)
            claimed = read_claimed(claiming, _QUEUES)
            marks.note(claimed, limit=BATCH)
            note_all(job.args["kwargs"]["n"] for job in claimed if job.args)
            ended = [
                Completed(job.id, job.attempt, "null", _KEEP_SECONDS) for job in claimed
            ]
            if not claimed:
                stop.wait(IDLE_SECONDS)


def time_claims() -> list[float]:
    """Drain the queue, finish and claim apart; return each full claim's seconds."""
    worker_id = _register()
    marks = Marks()
    seconds: list[float] = []
    with connect("default", role="hot", name="bench") as hot:
        while True:
            begun_at = time.perf_counter()
            claimed = read_claimed(
                send_claim(hot, marks.spans(_QUEUES), limit=BATCH, worker_id=worker_id),
                _QUEUES,
            )
            ended_at = time.perf_counter()
            marks.note(claimed, limit=BATCH)
            if not claimed:
                return seconds
            seconds.append(ended_at - begun_at)
            read_finished(
                send_completed(
                    hot,
                    [
                        Completed(job.id, job.attempt, "null", _KEEP_SECONDS)
                        for job in claimed
                    ],
                    worker_id=worker_id,
                )
            )


def _register() -> UUID:
    row = lease.WorkerRow(
        id=uuid7(),
        name="raw",
        supervisor=uuid7(),
        host="bench",
        pid=os.getpid(),
        queues=_QUEUES,
        concurrency=1,
        version="bench",
    )
    with connect("default", role="duty", name="bench") as duty:
        lease.register(duty, row, lease=timedelta(minutes=10))
    return row.id

"""Rows that become visible late, below what others have claimed, at full rate."""

from __future__ import annotations

import threading
import time
from typing import Any

from django.db import connection, transaction

from bench.figures import interleave, row
from bench.rig import Plan, Store, let_wakeups_leave
from bench.tasks import late, noop
from relay import enqueue, enqueue_many

__all__ = ["run"]

ROWS = 100_000
QUICK_ROWS = 20_000
OPEN_SECONDS = 3.0
CHUNKS = 20
# Live traffic meanwhile: one job, then this pause.
PAUSE_SECONDS = 0.002
_TRAFFIC_JOBS = 100
_POLL_SECONDS = 0.2

_PACE = """
SELECT count(*), extract(epoch FROM max(finished_at) - min(started_at))::float8,
       extract(epoch FROM min(started_at) - %s)::float8
FROM relay_job WHERE state = 'completed' AND task = %s
"""


def run(plan: Plan) -> dict[str, Any]:
    """Compare a late bulk with the same rows drained from a queue at rest.

    Late: bulk-enqueued in one transaction that stays open for 3 s while single jobs
    are enqueued and claimed beside it, so that the rows lie below all marks when
    they become visible.
    """
    rows = plan.size(ROWS, QUICK_ROWS)
    store = plan.relay()
    waits: list[float] = []
    found = interleave(
        "late bulk",
        plan.round_count(),
        {
            "at rest": lambda: _at_rest(store, rows),
            "late": lambda: _beside_traffic(store, rows, waits),
        },
    )
    return {
        "jobs": rows,
        "rows": [
            row(
                "drain of a late bulk",
                "jobs/s",
                found["late"],
                ceiling=("at rest", found["at rest"]),
            ),
            row("late bulk: commit to first claim", "s", waits, is_less_better=True),
        ],
    }


def _at_rest(store: Store, rows: int) -> float:
    store.fresh()
    store.bulk(rows)
    store.settle()
    return store.drain(rows).rate


def _beside_traffic(store: Store, rows: int, waits: list[float]) -> float:
    store.fresh()
    stop = threading.Event()
    traffic = threading.Thread(target=_enqueue_singly, args=(stop,))
    with store.workers():
        traffic.start()
        try:
            store.wait_for(_TRAFFIC_JOBS)
            with transaction.atomic():
                for chunk in range(CHUNKS):
                    _late_chunk(chunk, rows // CHUNKS)
                    time.sleep(OPEN_SECONDS / CHUNKS)
            with connection.cursor() as cursor:
                cursor.execute("SELECT clock_timestamp()")
                (committed_at,) = cursor.fetchone()
            rate, wait = _pace(rows // CHUNKS * CHUNKS, committed_at)
        finally:
            stop.set()
            traffic.join()
            let_wakeups_leave()
            connection.close()
    waits.append(max(0.0, wait))
    return rate


def _pace(jobs: int, committed_at: Any) -> tuple[float, float]:
    """Return the late jobs a second, first start to last end, and the first wait."""
    while True:
        with connection.cursor() as cursor:
            cursor.execute(_PACE, [committed_at, late.name])
            count, seconds, wait = cursor.fetchone()
        if count >= jobs:
            return jobs / seconds, wait
        time.sleep(_POLL_SECONDS)


def _late_chunk(chunk: int, size: int) -> None:
    enqueue_many([late.job(chunk * size + number) for number in range(size)])


def _enqueue_singly(stop: threading.Event) -> None:
    try:
        while not stop.wait(PAUSE_SECONDS):
            enqueue(noop.name, 0)
    finally:
        connection.close()

"""Rows that become visible late, below what others have claimed, at full rate."""

from __future__ import annotations

import threading
import time
from statistics import median
from typing import Any

from django.db import connection, transaction

from bench import rig
from bench.tasks import late, noop
from relay import enqueue, enqueue_many

__all__ = ["run"]

ROWS = 100_000
OPEN_SECONDS = 3.0
CHUNKS = 30
# Live traffic meanwhile: one job, then this pause.
PAUSE_SECONDS = 0.002


def run(*, rounds: int, is_quick: bool) -> dict[str, Any]:
    """Compare a late bulk with the same rows drained from a queue at rest.

    Late: bulk-enqueued in one transaction that stays open for 3 s while single jobs
    are enqueued and claimed beside it, so that the rows lie below all marks when
    they become visible.
    """
    rows = ROWS // 5 if is_quick else ROWS
    rest: list[float] = []
    late: list[float] = []
    waits: list[float] = []
    for _ in range(rounds):
        rest.append(_at_rest(rows))
        rate, wait = _beside_traffic(rows)
        late.append(rate)
        waits.append(wait)
    return {
        "rows": rows,
        "rounds": rounds,
        "at rest /s": round(median(rest)),
        "late bulk /s": round(median(late)),
        "late / at rest": round(median(late) / median(rest), 2),
        "commit to first claim, s": round(median(waits), 3),
    }


def _at_rest(rows: int) -> float:
    rig.empty()
    rig.enqueue_all([noop.job(number) for number in range(rows)])
    rig.settle()
    with rig.worker("--processes", "1"):
        return rig.pace(rows)


def _beside_traffic(rows: int) -> tuple[float, float]:
    rig.empty()
    stop = threading.Event()
    traffic = threading.Thread(target=_enqueue_singly, args=(stop,))
    with rig.worker("--processes", "1"):
        traffic.start()
        try:
            rig.pace(100)
            with transaction.atomic():
                for chunk in range(CHUNKS):
                    _late_chunk(chunk, rows // CHUNKS)
                    time.sleep(OPEN_SECONDS / CHUNKS)
            with connection.cursor() as cursor:
                cursor.execute("SELECT clock_timestamp()")
                (committed_at,) = cursor.fetchone()
            rate = rig.pace(rows // CHUNKS * CHUNKS, task=late.name)
        finally:
            stop.set()
            traffic.join()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM min(started_at) - %s)::float8 "
            "FROM relay_job WHERE task = %s",
            [committed_at, late.name],
        )
        (wait,) = cursor.fetchone()
    return rate, max(0.0, wait)


def _late_chunk(chunk: int, size: int) -> None:
    enqueue_many([late.job(chunk * size + number) for number in range(size)])


def _enqueue_singly(stop: threading.Event) -> None:
    try:
        while not stop.wait(PAUSE_SECONDS):
            enqueue(noop.name, 0)
    finally:
        connection.close()

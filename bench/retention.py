"""Prune by expires_at or by finished_at? What the retention index costs and saves.

    python -m bench.retention --jobs 50000 --runs 3

Works on copies of the tables in a schema of its own, dropped at the end.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

import django

SCHEMA: Final = "bench_retention"
BATCH: Final = 100
TABLES: Final = ("relay_job", "relay_attempt", "relay_history", "relay_worker")

# What pruning would be without the index: the oldest finished first, each looked at.
PRUNE_BY_FINISHED: Final = """
WITH old AS MATERIALIZED (
    SELECT id FROM relay_job
    WHERE state IN ('completed', 'failed', 'cancelled')
      AND finished_at <= statement_timestamp() AND expires_at <= statement_timestamp()
      AND (unique_until IS NULL OR unique_until <= statement_timestamp())
    ORDER BY finished_at, id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), attempts AS (
    DELETE FROM relay_attempt USING old WHERE job_id = old.id
), history AS (
    DELETE FROM relay_history USING old WHERE job_id = old.id
)
DELETE FROM relay_job USING old WHERE relay_job.id = old.id
"""


def make_tables(session: Any, *, has_index: bool) -> None:
    session.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    session.execute(f"CREATE SCHEMA {SCHEMA}")
    for table in (*TABLES, "relay_queue"):
        session.execute(
            f"CREATE TABLE {SCHEMA}.{table} (LIKE public.{table} INCLUDING ALL)"
        )
    session.execute(
        f"ALTER TABLE {SCHEMA}.relay_job "
        "SET (fillfactor = 50, autovacuum_enabled = off)"
    )
    if not has_index:
        [[name]] = session.execute(
            "SELECT indexname FROM pg_indexes "
            "WHERE schemaname = %s AND indexdef LIKE '%%(expires_at)%%'",
            (SCHEMA,),
        ).fetchall()
        session.execute(f"DROP INDEX {SCHEMA}.{name}")


def wal_bytes(session: Any) -> int:
    [value] = session.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchone()
    return int(value)


def drain(hot: Any, worker_id: Any, keep: Callable[[int], float]) -> int:
    from relay.engine.claim import Marks, read_claimed, send_claim
    from relay.engine.finish import Completed, send_completed

    marks = Marks()
    done: list[Completed] = []
    total = 0
    while True:
        with hot.block():
            send_completed(hot, done, worker_id=worker_id)
            spans = marks.spans(["default"])
            claiming = send_claim(hot, spans, limit=BATCH, worker_id=worker_id)
        jobs = read_claimed(claiming, ["default"])
        marks.note(jobs, limit=BATCH)
        if not jobs:
            return total
        done = [
            Completed(job.id, job.attempt, "1", keep(total + place))
            for place, job in enumerate(jobs)
        ]
        total += len(jobs)


def prune_all(duty: Any, *, has_index: bool) -> int:
    from relay.engine.prune import prune_jobs

    total = 0
    while count := prune_jobs(duty) if has_index else prune_by_finished(duty):
        total += count
    return total


def prune_by_finished(duty: Any) -> int:
    return int(duty.execute(PRUNE_BY_FINISHED, {"limit": 1_000}).rowcount)


def run(jobs: int, *, has_index: bool, is_mixed: bool) -> tuple[float, float, float]:
    """Return drained jobs/s, bytes of WAL per drained job, pruned jobs/s."""
    from relay.engine.connection import connect
    from relay.ids import uuid7

    worker_id = uuid7()
    with (
        connect("default", role="hot", name="bench") as hot,
        connect("default", role="duty", name="bench") as duty,
    ):
        duty.execute("SET statement_timeout = 0")
        make_tables(duty, has_index=has_index)
        for session in (hot, duty):
            session.execute(f"SET search_path = {SCHEMA}, public")
        duty.execute(
            "INSERT INTO relay_worker (id, name, host, pid, queues, concurrency, "
            "version, lease_expires_at) VALUES (%s, 'b', 'b', 1, '{}', 1, '0', now())",
            (worker_id,),
        )
        duty.execute(
            "INSERT INTO relay_job (id, task, args) SELECT gen_random_uuid(), 'bench', "
            '\'{"args": [1], "kwargs": {}}\' FROM generate_series(1, %s)',
            (jobs,),
        )
        duty.execute("CHECKPOINT")
        wal, began = wal_bytes(duty), time.perf_counter()
        kept = jobs // 2 if is_mixed else 0
        drain(hot, worker_id, lambda place: 2_592_000.0 if place < kept else 1e-3)
        seconds = time.perf_counter() - began
        wal = wal_bytes(duty) - wal
        duty.execute("VACUUM ANALYZE relay_job")
        began = time.perf_counter()
        pruned = prune_all(duty, has_index=has_index)
        rate = pruned / (time.perf_counter() - began)
        duty.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
    return jobs / seconds, wal / jobs, rate


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    django.setup()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    for is_mixed in (False, True):
        found: dict[bool, list[tuple[float, float, float]]] = {True: [], False: []}
        for _ in range(options.runs):
            for has_index in (True, False):
                found[has_index].append(
                    run(options.jobs, has_index=has_index, is_mixed=is_mixed)
                )
        for has_index, results in found.items():
            drained, wal, pruned = (
                median(column) for column in zip(*results, strict=True)
            )
            print(  # noqa: T201 - a command's output
                f"{'half kept a month' if is_mixed else 'all of one retention'}, "
                f"by {'expires_at' if has_index else 'finished_at'}: "
                f"drain {drained:,.0f}/s, WAL {wal:,.0f} B/job, prune {pruned:,.0f}/s"
            )


if __name__ == "__main__":
    main()

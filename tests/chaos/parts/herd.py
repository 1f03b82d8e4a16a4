"""F17: many workers wait on an empty queue, and one job comes."""

from __future__ import annotations

import time
from collections import Counter
from typing import Final

from tests.chaos.parts.site import Site
from tests.chaos.report import Report

__all__ = ["ABOUT", "run"]

ABOUT: Final = "F17: one job for many idle workers"

POLL_SECONDS: Final = 5.0
# Each worker that is told looks once, and once more after it has found something.
CLAIMS_PER_WORKER: Final = 3
PAUSE_SECONDS: Final = 0.2

_CLAIMS: Final = """
SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements
WHERE query LIKE '%AS span(queue, high, low, mark)%'
  AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_DELAYS: Final = """
SELECT extract(epoch FROM started_at - created_at)::float8
FROM relay_job ORDER BY 1
"""


def run(site: Site, report: Report, *, workers: int, jobs: int) -> list[str]:
    database = site.database
    database.session.execute("CREATE EXTENSION pg_stat_statements")
    started = [
        site.workers.start("-c", "1", is_awaited=False, POLL_INTERVAL=POLL_SECONDS)
        for _ in range(workers)
    ]
    for worker in started:
        worker.wait_until_ready()
    time.sleep(1)
    idle = _claims_of(site, seconds=POLL_SECONDS)
    waits = site.lock_waits()
    before = database.ask(_CLAIMS)
    began = time.monotonic()
    for _ in range(jobs):
        database.wait_for(database.enqueue_one("quick"))
        time.sleep(PAUSE_SECONDS)
    seconds = time.monotonic() - began
    # What they ask for without any job is none of the jobs' doing.
    claims = (database.ask(_CLAIMS) - before - idle * seconds) / jobs
    delays = [row[0] for row in database.session.execute(_DELAYS)]
    waits = site.lock_waits() - waits
    starts = Counter(each.job for each in database.effects() if each.phase == "start")
    report.table(
        f"{ABOUT}: {workers} workers, {jobs} jobs",
        ["what", "found"],
        [
            ["claims per job, of all workers", f"{claims:.1f}"],
            ["claims per second while nothing comes", f"{idle:.1f}"],
            ["waits for locks of more than 0.1 s", waits],
            ["from enqueue to start, p50", f"{1000 * delays[len(delays) // 2]:.1f} ms"],
            ["from enqueue to start, longest", f"{1000 * delays[-1]:.1f} ms"],
        ],
    )
    return [
        *(
            [f"{claims:.1f} claims per job of {workers} workers"]
            if claims > CLAIMS_PER_WORKER * workers
            else []
        ),
        *([f"{waits} waits for locks"] if waits else []),
        *[
            f"job {job} started {count} times"
            for job, count in starts.items()
            if count > 1
        ],
    ]


def _claims_of(site: Site, *, seconds: float) -> float:
    """Return the claims per second of so long."""
    before = site.database.ask(_CLAIMS)
    time.sleep(seconds)
    return float(site.database.ask(_CLAIMS) - before) / seconds

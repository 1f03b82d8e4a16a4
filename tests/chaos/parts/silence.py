"""F18: no wake-up is ever heard, and jobs start all the same."""

from __future__ import annotations

import random
import time
from typing import Final

from tests.chaos.checker import percentile
from tests.chaos.parts.site import Site
from tests.chaos.report import Report

__all__ = ["ABOUT", "run"]

ABOUT: Final = "F18: every wake-up is lost (J14 by polling)"

POLL_SECONDS: Final = 1.0
SWEEP_SECONDS: Final = 1.0
# From the claim's statement to the handler, on a busy machine.
HAND_OVER_SECONDS: Final = 0.5

_KILL_LISTENERS: Final = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE application_name = 'relay listen' AND datname = current_database()
"""
_DELAYS: Final = """
SELECT extract(epoch FROM started_at - created_at)::float8 FROM relay_job
"""


def run(site: Site, report: Report, *, seed: int, jobs: int) -> list[str]:
    """Insert jobs at random times and tell nobody; sessions that listen are ended."""
    database = site.database
    site.workers.start("-c", "4", processes=2, POLL_INTERVAL=POLL_SECONDS)
    rng = random.Random(seed)
    ended = 0
    killed_at = time.monotonic()
    for _ in range(jobs):
        priority = rng.choice((-10, 0, 0, 10))
        database.enqueue("quick", wake=False, priority=priority)
        time.sleep(rng.uniform(0, 0.4))
        if time.monotonic() - killed_at >= 1:
            ended += database.ask(_KILL_LISTENERS)
            killed_at = time.monotonic()
    database.wait_for_all(jobs)
    delays = [row[0] for row in database.session.execute(_DELAYS)]
    bound = POLL_SECONDS + SWEEP_SECONDS + HAND_OVER_SECONDS
    report.table(
        f"{ABOUT}: {jobs} jobs",
        ["what", "found"],
        [
            ["listening sessions ended", ended],
            ["from insert to start, p50", f"{percentile(delays, 0.5):.2f} s"],
            ["from insert to start, p99", f"{percentile(delays, 0.99):.2f} s"],
            ["from insert to start, longest", f"{max(delays):.2f} s"],
            ["poll, sweep and hand-over", f"{bound:.2f} s"],
        ],
    )
    late = sum(delay > bound for delay in delays)
    return [f"{late} of {jobs} jobs started later than {bound} s"] if late else []

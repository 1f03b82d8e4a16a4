"""Minutes of enqueue, drain and prune at the drain rate: are size and rate flat?"""

from __future__ import annotations

import time
from typing import Any

from bench.figures import row
from bench.rig import Plan, Store, let_wakeups_leave, progress

__all__ = ["run"]

MINUTES = 10.0
QUICK_MINUTES = 1.0
RETENTION_SECONDS = 15.0
# Until as many go as come, and autovacuum has looked once.
WARM_UP_SECONDS = 60.0
# A sample each; a minute, unless there is less than that in all.
SAMPLE_SECONDS = 60.0
CHUNK = 1_000
BACKLOG = 20_000
_PAUSE_SECONDS = 0.005

_SAMPLE = """
SELECT pg_total_relation_size('relay_job') / 1048576.0::float8,
       greatest(0, extract(epoch FROM clock_timestamp() - (
           SELECT min(expires_at) FROM relay_job
           WHERE expires_at IS NOT NULL)))::float8
"""


def run(plan: Plan) -> dict[str, Any]:
    """Keep a worker busy, its jobs kept for 15 s, and sample every minute."""
    minutes = plan.prune_minutes or (QUICK_MINUTES if plan.is_quick else MINUTES)
    store = plan.relay()
    store.fresh()
    samples: list[dict[str, float]] = []
    variables = {"BENCH_RETENTION_SECONDS": str(RETENTION_SECONDS)}
    with store.workers(environment=variables):
        feed = _Feed(store)
        warm_up = min(WARM_UP_SECONDS, minutes * 60)
        progress(f"prune: warm up for {warm_up:.0f} s\n")
        feed.keep_busy(warm_up)
        each = min(SAMPLE_SECONDS, minutes * 30)
        for _ in range(max(2, round(minutes * 60 / each))):
            samples.append(feed.keep_busy(each))
            progress(f"prune: {samples[-1]}\n")
        let_wakeups_leave()
    half = len(samples) // 2
    return {
        "minutes": minutes,
        "sample_seconds": each,
        "retention_seconds": RETENTION_SECONDS,
        "samples": samples,
        "rows": [
            row(
                f"{minutes:g} min of enqueue, drain, prune: {what}, last half",
                unit,
                [sample[key] for sample in samples[-half:]],
                ceiling=("first half", [sample[key] for sample in samples[:half]]),
                is_less_better=key == "table_mib",
            )
            for what, unit, key in (
                ("rate", "jobs/s", "rate"),
                ("table size", "MiB", "table_mib"),
            )
        ],
    }


class _Feed:
    """Keeps a backlog before the worker, from this process."""

    def __init__(self, store: Store) -> None:
        from bench.tasks import noop  # of a process where Django is set up
        from relay import enqueue_many

        self._enqueue_many = enqueue_many
        self._task = noop
        self._store = store
        self._enqueued = 0

    def keep_busy(self, seconds: float) -> dict[str, float]:
        """Feed it for so long; return the rate, the size and how late pruning is."""
        begun_at = time.monotonic()
        before = self._store.started()
        while time.monotonic() < begun_at + seconds:
            if self._enqueued - self._store.started() < BACKLOG:
                numbers = range(self._enqueued, self._enqueued + CHUNK)
                self._enqueue_many([self._task.job(n=number) for number in numbers])
                self._enqueued += CHUNK
            else:
                time.sleep(_PAUSE_SECONDS)
        started = self._store.started() - before
        rate = started / (time.monotonic() - begun_at)
        with self._store.server.session(self._store.name) as session:
            row = session.execute(_SAMPLE).fetchone()
        size_mib, late_seconds = row or (0.0, 0.0)
        return {
            "rate": round(rate),
            "table_mib": round(size_mib, 1),
            "prune_late_seconds": round(late_seconds or 0.0, 1),
        }

"""A task of one ORM read and one write, beside its function in a bare thread pool."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import django

from bench import record
from bench.figures import interleave, row
from bench.processes import ask
from bench.rig import Plan, Store, rate_of

__all__ = ["run"]

JOBS = 5_000
THREADS = 10
# Connections are made in the first of them.
WARM_UP = 0.1


def run(plan: Plan) -> dict[str, Any]:
    """Compare the starts per second of both, after the first tenth."""
    jobs = plan.size(JOBS, JOBS)
    store = plan.relay()
    cases = {
        "relay": lambda: _relay(store, jobs),
        "bare threads": lambda: _bare(store, jobs),
    }
    found = interleave("orm", plan.round_count(), cases)
    return {
        "jobs": jobs,
        "rows": [
            row(
                f"ORM read + write, {THREADS} threads",
                "jobs/s",
                found["relay"],
                ceiling=("bare threads", found["bare threads"]),
            )
        ],
    }


def _relay(store: Store, jobs: int) -> float:
    store.fresh()
    store.bulk(jobs, variant="touch")
    store.settle()
    drained = store.drain(jobs, arguments=("--concurrency", str(THREADS)))
    return rate_of(drained.starts[int(jobs * WARM_UP) :])


def _bare(store: Store, jobs: int) -> float:
    store.fresh()
    ask(["-m", "bench.orm", str(jobs)], store.environment)
    starts = sorted(at for _, at in record.read(store.record))
    return rate_of(starts[int(jobs * WARM_UP) :])


def _call_in_threads(jobs: int) -> None:
    from bench.tasks import touch_item  # of a process where Django is set up

    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(touch_item, range(jobs)):
            pass


if __name__ == "__main__":
    django.setup()
    _call_in_threads(int(sys.argv[1]))

"""Single enqueues through the usual call, each committed before the next."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.figures import interleave, row
from bench.rig import Plan, Store

__all__ = ["run"]

JOBS = 5_000
QUICK_JOBS = 1_000


def run(plan: Plan) -> dict[str, Any]:
    """Measure jobs {"n": i}, from one process."""
    jobs = plan.size(JOBS, QUICK_JOBS)
    cases = {store.name: partial(_enqueue, store, jobs) for store in plan.stores()}
    found = interleave("enqueue", plan.round_count(), cases)
    relay, raw = found.pop("relay"), found.pop("raw")
    return {
        "jobs": jobs,
        "rows": [
            row(
                "enqueue, one by one",
                "jobs/s",
                relay,
                ceiling=("INSERT", raw),
                rivals=found,
            )
        ],
    }


def _enqueue(store: Store, jobs: int) -> float:
    store.fresh()
    return store.enqueue(jobs, warms_up=True)[0]

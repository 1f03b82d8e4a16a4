"""Bulk enqueues of 1,000 jobs a call, the making of the requests included."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.figures import interleave, row
from bench.rig import Plan, Store

__all__ = ["run"]

JOBS = 50_000
QUICK_JOBS = 10_000
KEYED = "with unique keys"


def run(plan: Plan) -> dict[str, Any]:
    """Measure relay without and with unique keys, COPY, and rivals' bulk calls."""
    jobs = plan.size(JOBS, QUICK_JOBS)
    stores = plan.stores(has_bulk=True)
    cases = {store.name: partial(_bulk, store, jobs) for store in stores}
    relay = stores[0]
    cases[KEYED] = partial(_bulk, relay, jobs, "keyed")
    found = interleave("bulk", plan.round_count(), cases)
    plain, keyed, raw = found.pop("relay"), found.pop(KEYED), found.pop("raw")
    return {
        "jobs": jobs,
        "rows": [
            row(
                "enqueue, 1,000 a call",
                "jobs/s",
                plain,
                ceiling=("COPY", raw),
                rivals=found,
            ),
            row(
                f"enqueue, 1,000 a call, {KEYED}",
                "jobs/s",
                keyed,
                ceiling=("COPY", raw),
            ),
        ],
    }


def _bulk(store: Store, jobs: int, variant: str = "") -> float:
    store.fresh()
    return store.bulk(jobs, variant=variant)

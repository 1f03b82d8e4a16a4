"""From the return of the enqueue call to the start of the handler, worker idle."""

from __future__ import annotations

import time
from typing import Any

from bench import record
from bench.figures import percentile, row
from bench.rig import Plan, Store, progress

__all__ = ["run"]

JOBS = 200
QUICK_JOBS = 100
PAUSE_SECONDS = 0.05
# After the first job, until the worker waits for the next at rest.
REST_SECONDS = 1.5
PERCENTILES = (50, 95, 99)


def run(plan: Plan) -> dict[str, Any]:
    """Measure one job every 50 ms, in milliseconds."""
    jobs = plan.size(JOBS, QUICK_JOBS)
    stores = [store for store in plan.stores() if store.name != "raw"]
    found: dict[str, list[list[float]]] = {store.name: [] for store in stores}
    rounds = plan.round_count()
    for number in range(1, rounds + 1):
        for store in stores:
            progress(f"latency, round {number} of {rounds}: {store.name} … ")
            found[store.name].append(_latencies(store, jobs))
            progress(f"{percentile(found[store.name][-1], 50):.2f} ms\n")
    rows = []
    for percent in PERCENTILES:
        figures = {
            name: [percentile(each, percent) for each in of_rounds]
            for name, of_rounds in found.items()
        }
        relay = figures.pop("relay")
        rows.append(
            row(
                f"idle to start, p{percent}",
                "ms",
                relay,
                rivals=figures,
                is_less_better=True,
            )
        )
    return {"jobs": jobs, "rows": rows}


def _latencies(store: Store, jobs: int) -> list[float]:
    store.fresh()
    with store.workers():
        store.enqueue(1)
        store.wait_for(1)
        time.sleep(REST_SECONDS)
        _, returned = store.enqueue(jobs, pause_seconds=PAUSE_SECONDS)
        store.wait_for(1 + jobs)
    started = dict(record.read(store.record))
    return [(started[number] - at) / 1e6 for number, at in returned.items()]

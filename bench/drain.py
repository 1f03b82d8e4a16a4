"""How fast one and two worker processes drain a queue of jobs that do nothing."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.figures import interleave, row
from bench.rig import Plan, Store

__all__ = ["run"]

COROUTINE = "relay, coroutine"


def run(plan: Plan) -> dict[str, Any]:
    """Measure sync and coroutine tasks beside the engine's statements and rivals."""
    rows: list[dict[str, Any]] = []
    stores = plan.stores()
    for workers in (1, 2):
        cases = {store.name: partial(_drain, plan, store, workers) for store in stores}
        cases[COROUTINE] = partial(_drain, plan, stores[0], workers, "coroutine")
        title = f"drain, {workers} process{'' if workers == 1 else 'es'}"
        found = interleave(title, plan.round_count(), cases)
        relay = {"function": found.pop("relay"), "coroutine": found.pop(COROUTINE)}
        raw = ("statements", found.pop("raw"))
        rows += [
            row(f"{title}, {kind}", "jobs/s", each, ceiling=raw, rivals=found)
            for kind, each in relay.items()
        ]
    jobs = {store.name: plan.drain_size(store.contender) for store in stores}
    return {"jobs": jobs, "rows": rows}


def _drain(plan: Plan, store: Store, workers: int, variant: str = "") -> float:
    jobs = plan.drain_size(store.contender)
    store.fresh()
    store.bulk(jobs, variant=variant)
    store.settle()
    return store.drain(jobs, workers).rate

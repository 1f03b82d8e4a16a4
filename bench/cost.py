"""What a job costs the database: commits, statements, WAL and buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.figures import row
from bench.rig import Plan, Store, progress
from bench.statements import Counted, counted, counting

__all__ = ["run"]

ENQUEUED = 5_000
BULK = 50_000
UNITS = {"WAL bytes": "B"}


def run(plan: Plan) -> dict[str, Any]:
    """Count single enqueue, bulk enqueue and drain; statements where they are counted.

    Once unless --rounds says otherwise: a count has little noise.
    """
    rounds = plan.rounds or 1
    stores = [store for store in plan.stores() if store.name != "raw"]
    acts: dict[str, Callable[[Plan, Store], tuple[int, Counted]]] = {
        "enqueue, one by one": _enqueue,
        "enqueue, 1,000 a call": _bulk,
        "drain": _drain,
    }
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    top: dict[str, Any] = {}
    with counting(plan.server):
        for _ in range(rounds):
            for act, measure in acts.items():
                for store in stores:
                    if measure is _bulk and not store.contender.has_bulk:
                        continue
                    progress(f"cost of {act}: {store.name} … ")
                    jobs, result = measure(plan, store)
                    each = result.per_job(jobs)
                    progress(f"{each['WAL bytes']:,.0f} B of WAL per job\n")
                    for what, value in each.items():
                        by_name = found.setdefault((act, what), {})
                        by_name.setdefault(store.name, []).append(value)
                    if store.name == "relay":
                        top[act] = result.top(jobs)
    rows = [
        row(
            f"{act}: {what} per job",
            UNITS.get(what, ""),
            figures.pop("relay"),
            rivals=figures,
            is_less_better=True,
        )
        for (act, what), figures in found.items()
    ]
    rows += [
        row(
            f"drain, the {each['kind']} alone: {what} per job",
            UNITS.get(what, ""),
            [each[what]],
            is_less_better=True,
        )
        for each in top["drain"]
        if each["kind"]
        for what in ("WAL bytes", "buffers hit", "buffers dirtied")
    ]
    return {"rows": rows, "statements": top}


def _enqueue(plan: Plan, store: Store) -> tuple[int, Counted]:
    jobs = plan.size(ENQUEUED, ENQUEUED)
    store.fresh()
    store.settle()
    with counted(store) as counter:
        store.enqueue(jobs)
    return jobs, counter.counted


def _bulk(plan: Plan, store: Store) -> tuple[int, Counted]:
    jobs = plan.size(BULK, BULK)
    store.fresh()
    store.settle()
    with counted(store) as counter:
        store.bulk(jobs)
    return jobs, counter.counted


def _drain(plan: Plan, store: Store) -> tuple[int, Counted]:
    jobs = plan.drain_size(store.contender)
    store.fresh()
    store.bulk(jobs)
    store.settle()
    with counted(store) as counter:
        store.drain(jobs)
    return jobs, counter.counted

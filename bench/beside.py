"""The drain beside rows that it must not touch: finished, or due much later."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.contenders import RELAY
from bench.figures import interleave, row
from bench.filling import fill_finished, fill_scheduled
from bench.rig import Plan, Store

__all__ = ["run"]

FINISHED = 1_000_000
SCHEDULED = 500_000
FRESH = "fresh"


def run(plan: Plan) -> dict[str, Any]:
    """Hold the drain by one worker beside such rows against relay's own fresh rate."""
    store = plan.relay()
    jobs = plan.drain_size(RELAY)
    finished = plan.size(FINISHED, FINISHED)
    scheduled = plan.size(SCHEDULED, SCHEDULED)
    fills = {
        f"{finished:,} finished": partial(fill_finished, store, finished),
        f"{scheduled:,} scheduled": partial(fill_scheduled, store, scheduled),
    }
    with store.templates(fills) as templates:
        cases = {
            title: partial(_drain, store, template, jobs)
            for title, template in {FRESH: None, **templates}.items()
        }
        found = interleave("beside", plan.round_count(), cases)
    return {
        "jobs": jobs,
        "rows": [
            row(
                f"drain beside {title}",
                "jobs/s",
                found[title],
                ceiling=(FRESH, found[FRESH]),
            )
            for title in fills
        ],
    }


def _drain(store: Store, template: str | None, jobs: int) -> float:
    store.fresh(template)
    store.bulk(jobs)
    store.settle()
    return store.drain(jobs).rate

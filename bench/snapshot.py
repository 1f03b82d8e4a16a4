"""The drain while an old snapshot is held, so that vacuum removes nothing."""

from __future__ import annotations

from typing import Any

from bench.figures import interleave, row
from bench.rig import Plan, Store

__all__ = ["run"]

JOBS = 500_000
QUICK_JOBS = 100_000


def run(plan: Plan) -> dict[str, Any]:
    """Hold its rate against the free one, and its last tenth against its first."""
    jobs = plan.size(JOBS, QUICK_JOBS)
    store = plan.relay()
    first: list[float] = []
    last: list[float] = []

    def held() -> float:
        store.fresh(queued)
        with store.server.session(store.name) as session:
            session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            session.execute("SELECT FROM relay_queue")
            drained = store.drain(jobs)
        first.append(drained.tenth(0))
        last.append(drained.tenth(9))
        return drained.rate

    def fill() -> None:
        store.bulk(jobs)

    title = f"{jobs:,} queued jobs"
    with store.templates({title: fill}) as templates:
        queued = templates[title]
        cases = {"free": lambda: _free(store, queued, jobs), "held": held}
        found = interleave("snapshot", plan.round_count(), cases)
    return {
        "jobs": jobs,
        "rows": [
            row(
                f"drain of {jobs:,}, old snapshot held",
                "jobs/s",
                found["held"],
                ceiling=("free", found["free"]),
            ),
            row("its last tenth", "jobs/s", last, ceiling=("first tenth", first)),
        ],
    }


def _free(store: Store, template: str, jobs: int) -> float:
    store.fresh(template)
    return store.drain(jobs).rate

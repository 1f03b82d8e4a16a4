"""Growth: more finished rows kept, and more processes, in paired rounds."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench import raw
from bench.contenders import RELAY
from bench.figures import interleave, percentile, row
from bench.filling import fill_finished
from bench.rig import Plan, Store

__all__ = ["run"]

ROUNDS = 9
KEPT = (100_000, 1_000_000, 5_000_000)
PROCESSES = (4, 8)
NONE = "none kept"
AGAIN = "none kept, again"
TWO = "2 processes"


def run(plan: Plan) -> dict[str, Any]:
    """Hold each against its like of the same round; a repeat of one is the noise."""
    rounds = plan.round_count(ROUNDS, ROUNDS)
    kept = _beside_kept(plan, rounds)
    return {
        "jobs": _jobs(plan),
        "rows": [*kept, *_by_processes(plan, rounds)],
    }


def _jobs(plan: Plan) -> int:
    """Return the full size, also of a quick run: it was asked for by name."""
    return plan.size(RELAY.drain_jobs, RELAY.drain_jobs)


def _beside_kept(plan: Plan, rounds: int) -> list[dict[str, Any]]:
    store = plan.relay()
    jobs = _jobs(plan)
    claims: dict[str, list[float]] = {}

    def measure(title: str, template: str | None) -> float:
        store.fresh(template)
        store.bulk(jobs)
        store.settle()
        rate = store.drain(jobs).rate
        store.bulk(jobs)
        store.settle()
        p99 = percentile(raw.time_claims(), 99) * 1_000
        claims.setdefault(title, []).append(p99)
        return rate

    # As many times the jobs as usual: what is printed is what there is.
    sizes = [max(1, rows * jobs // RELAY.drain_jobs) for rows in KEPT]
    fills = {f"{rows:,} kept": partial(fill_finished, store, rows) for rows in sizes}
    with store.templates(fills) as templates:
        cases = {
            title: partial(measure, title, template)
            for title, template in {NONE: None, **templates, AGAIN: None}.items()
        }
        rates = interleave("growth", rounds, cases)
    found = []
    for title in (*fills, AGAIN):
        found += [
            row(f"drain, {title}", "jobs/s", rates[title], ceiling=(NONE, rates[NONE])),
            row(
                f"claim of {raw.BATCH} p99, {title}",
                "ms",
                claims[title],
                ceiling=(NONE, claims[NONE]),
                is_less_better=True,
            ),
        ]
    return found


def _by_processes(plan: Plan, rounds: int) -> list[dict[str, Any]]:
    store = plan.relay()
    jobs = _jobs(plan)
    counts = {TWO: 2, **{f"{count} processes": count for count in PROCESSES}}
    again = f"{TWO}, again"
    cases = {
        title: partial(_drain, store, jobs, count)
        for title, count in {**counts, again: 2}.items()
    }
    rates = interleave("growth", rounds, cases)
    return [
        row(f"drain, {title}", "jobs/s", rates[title], ceiling=(TWO, rates[TWO]))
        for title in cases
        if title != TWO
    ]


def _drain(store: Store, jobs: int, processes: int) -> float:
    store.fresh()
    store.bulk(jobs)
    store.settle()
    return store.drain(jobs, arguments=("--processes", str(processes))).rate

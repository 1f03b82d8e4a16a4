"""How fast one worker process drains a queue, beside PostgreSQL's own limit."""

from __future__ import annotations

from statistics import median
from typing import Any

from bench import rig
from bench.tasks import anoop, noop
from relay.tasks import Task

__all__ = ["run"]

JOBS = 50_000


def run(*, rounds: int, is_quick: bool) -> dict[str, Any]:
    """Drain no-op jobs: raw statements, thread tasks, coroutine tasks; interleaved.

    The completed rows are kept, fsync and synchronous_commit are on.
    """
    jobs = JOBS // 5 if is_quick else JOBS
    raw: list[float] = []
    plain: list[float] = []
    coroutine: list[float] = []
    bulk: list[float] = []
    for _ in range(rounds):
        bulk.append(_fill(noop, jobs))
        raw.append(rig.raw_drain())
        plain.append(_drained(noop, jobs))
        coroutine.append(_drained(anoop, jobs))
    ceiling = median(raw)
    return {
        "jobs": jobs,
        "rounds": rounds,
        "bulk enqueue /s": round(median(bulk)),
        "raw statements, batch 100 /s": round(ceiling),
        "thread tasks /s": round(median(plain)),
        "thread tasks / raw": round(median(plain) / ceiling, 2),
        "coroutine tasks /s": round(median(coroutine)),
        "coroutine tasks / raw": round(median(coroutine) / ceiling, 2),
        "each": {
            "raw": [round(rate) for rate in raw],
            "thread": [round(rate) for rate in plain],
            "coroutine": [round(rate) for rate in coroutine],
        },
    }


def _fill(task: Task[[int], None], jobs: int) -> float:
    rig.empty()
    rate = rig.enqueue_all([task.job(number) for number in range(jobs)])
    rig.settle()
    return rate


def _drained(task: Task[[int], None], jobs: int) -> float:
    _fill(task, jobs)
    with rig.worker("--processes", "1"):
        return rig.pace(jobs)

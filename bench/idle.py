"""What a worker with default settings costs while there is nothing to do."""

from __future__ import annotations

import time
from typing import Any

from bench.figures import row
from bench.processes import pss_mib, tree
from bench.rig import Plan, Store, progress
from bench.statements import counted, counting

__all__ = ["run"]

SECONDS = 30.0
QUICK_SECONDS = 10.0
REST_SECONDS = 3.0
_LOOK_SECONDS = 0.02

# How long the oldest snapshot of a session has been held, and how many sessions.
_SESSIONS = """
SELECT count(*),
       max(extract(epoch FROM clock_timestamp() - xact_start) * 1000)
           FILTER (WHERE backend_xmin IS NOT NULL)::float8
FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'
"""


def run(plan: Plan) -> dict[str, Any]:
    """Weigh its processes, count its statements and look for snapshots it holds."""
    seconds = QUICK_SECONDS if plan.is_quick or plan.jobs else SECONDS
    rounds = plan.rounds or 1
    store = plan.relay()
    found: dict[str, list[float]] = {}
    with counting(plan.server):
        for number in range(1, rounds + 1):
            progress(f"idle, round {number} of {rounds}: {seconds:.0f} s … ")
            for what, value in _watch(store, seconds).items():
                found.setdefault(what, []).append(value)
            progress(f"{found['memory'][-1]:.0f} MiB\n")
    units = {"memory": "MiB", "longest snapshot": "ms"}
    return {
        "seconds_each": seconds,
        "rows": [
            row(f"idle worker: {what}", units.get(what, ""), each, is_less_better=True)
            for what, each in found.items()
        ],
    }


def _watch(store: Store, seconds: float) -> dict[str, float]:
    store.fresh()
    with store.workers() as [pid]:
        store.enqueue(1)
        store.wait_for(1)
        time.sleep(REST_SECONDS)
        with counted(store) as counter:
            sessions, longest_ms, seen = _look(store, seconds)
        memory, processes = pss_mib(pid), len(tree(pid))
    counts = counter.counted.per_job(1)
    return {
        "memory": memory,
        "processes": processes,
        "sessions": sessions,
        **{
            f"{what} per second": counts[what] / counter.counted.seconds
            for what in ("statements", "commits")
            if what in counts
        },
        "looks that saw a snapshot, of 100": seen,
        "longest snapshot": longest_ms,
    }


def _look(store: Store, seconds: float) -> tuple[int, float, float]:
    """Return sessions, the longest snapshot seen, and how many looks saw one."""
    longest_ms, seen, looks, sessions = 0.0, 0, 0, 0
    ends_at = time.monotonic() + seconds
    question = _SESSIONS.encode()
    name = store.server.full_name(store.name)
    with store.server.session() as session:
        while time.monotonic() < ends_at:
            row = session.execute(question, [name]).fetchone()
            if row is not None:
                sessions = max(sessions, row[0])
                looks += 1
                seen += row[1] is not None
                longest_ms = max(longest_ms, row[1] or 0.0)
            time.sleep(_LOOK_SECONDS)
    return sessions, longest_ms, 100 * seen / looks

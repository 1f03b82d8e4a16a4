"""F19: retention, REINDEX CONCURRENTLY and VACUUM, FULL too, beside running jobs."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.chaos.checker import Findings, check_parts
from tests.chaos.cluster import Cluster
from tests.chaos.fleet import Fleet
from tests.chaos.histories import RECORD_TRANSITIONS, Histories, read_parts
from tests.chaos.lockwatch import LockWatch, Obstacle
from tests.chaos.nemesis import HARNESS
from tests.chaos.report import Report

__all__ = ["ABOUT", "run"]

ABOUT: Final = "F19: upkeep during load (D1)"

DATABASE: Final = "upkeep"
KEEP_SECONDS: Final = 5.0
LOCK_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 60.0
SIZES: Final = (2, 2, 1)
PAUSE_SECONDS: Final = 0.1

# What retention deletes is kept here for the checker, with the time of it.
_KEEP_PRUNED: Final = """
CREATE TABLE chaos_pruned (LIKE relay_job);
CREATE TABLE chaos_pruned_at (
    id uuid, state text, finished_at timestamptz,
    at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE FUNCTION chaos_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos_pruned SELECT OLD.*;
    INSERT INTO chaos_pruned_at VALUES (OLD.id, OLD.state, OLD.finished_at);
    RETURN NULL;
END
$$;
CREATE TRIGGER chaos_keep AFTER DELETE ON relay_job
FOR EACH ROW EXECUTE FUNCTION chaos_keep()
"""
_PUT_BACK: Final = """
SET session_replication_role = 'replica';
INSERT INTO relay_job SELECT * FROM chaos_pruned
"""
_WRONGLY_PRUNED: Final = """
SELECT id::text, state, extract(epoch FROM at - finished_at)::float8
FROM chaos_pruned_at
WHERE finished_at IS NULL OR state NOT IN ('completed', 'failed', 'cancelled')
   OR at - finished_at < make_interval(secs => %(keep)s)
"""
_INDEXES: Final = """
SELECT format('REINDEX INDEX CONCURRENTLY %I', indexname) FROM pg_indexes
WHERE tablename IN ('relay_job', 'relay_attempt', 'relay_history') ORDER BY 1
"""
_INVALID: Final = """
SELECT count(*) FROM pg_index WHERE NOT indisvalid
"""
_TABLES: Final = ("relay_job", "relay_attempt", "relay_history", "relay_worker")


@dataclass(slots=True)
class _Work:
    """What was done, and the longest that it took."""

    times: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)

    def do(self, session: psycopg.Connection[Any], statement: str) -> None:
        kind = statement.rpartition(" ")[0]
        began = time.monotonic()
        session.execute(statement.encode())
        took = time.monotonic() - began
        self.times[kind] += 1
        self.longest[kind] = max(self.longest.get(kind, 0.0), took)


def run(
    cluster: Cluster, folder: Path, report: Report, *, seconds: float, jobs: int
) -> list[str]:
    cluster.create(DATABASE)
    keep = {"RELAY_CHAOS_KEEP_SECONDS": str(KEEP_SECONDS)}
    fleet = Fleet(cluster, folder, DATABASE, seed=report.seed, environment=keep)
    fleet.migrate()
    fleet.session.execute(RECORD_TRANSITIONS)
    fleet.session.execute(_KEEP_PRUNED)
    work = _Work()
    try:
        with LockWatch(cluster.connect(DATABASE)) as watch:
            quiet = _load(fleet, work, cluster, seconds=seconds, jobs=jobs)
    finally:
        fleet.supervisor.close()
    pruned = fleet.ask("SELECT count(*) FROM chaos_pruned_at")
    wrongly = fleet.session.execute(
        _WRONGLY_PRUNED, {"keep": KEEP_SECONDS - 0.1}
    ).fetchall()
    invalid = fleet.ask(_INVALID)
    fleet.session.execute(_PUT_BACK)
    fleet.write()
    findings = check_parts(_without_pruning(folder))
    late = [each for each in watch.obstacles() if _is_for_long(each)]
    _tell(report, findings, work, watch.obstacles(), pruned)
    return [
        *([] if quiet else ["jobs did not come to rest"]),
        *([] if pruned else ["retention deleted nothing"]),
        *([f"{invalid} indexes are invalid"] if invalid else []),
        *[f"D1: pruned after {age} s as {state}: {job}" for job, state, age in wrongly],
        *[f"D1: {obstacle}" for obstacle in late],
        *[str(each) for each in findings.violations],
    ]


def _load(
    fleet: Fleet, work: _Work, cluster: Cluster, *, seconds: float, jobs: int
) -> bool:
    """Run jobs, and the upkeep beside them; tell whether all came to rest."""
    workers = fleet.start_workers("worker", SIZES)
    fleet.wait_until_up(workers)
    fleet.start_producer(jobs=jobs, seconds=seconds)
    with cluster.connect(DATABASE) as session:
        rebuilds = [row[0] for row in session.execute(_INDEXES)]
        turns = itertools.cycle(
            [
                *rebuilds,
                *(f"VACUUM (ANALYZE, FREEZE) {table}" for table in _TABLES),
                *(f"VACUUM FULL {table}" for table in _TABLES),
            ]
        )
        while not fleet.is_produced:
            work.do(session, next(turns))
            fleet.idle(PAUSE_SECONDS)
    quiet = fleet.wait_until_quiet(QUIET_SECONDS)
    fleet.idle(KEEP_SECONDS)
    fleet.stop(workers)
    return quiet


def _without_pruning(folder: Path) -> Iterator[Histories]:
    """Yield what the checker shall judge: as if nothing had been deleted."""
    for part in read_parts(folder):
        kept = [row for row in part.transitions if row.new is not None]
        yield replace(part, transitions=kept)


def _is_for_long(obstacle: Obstacle) -> bool:
    """Whether a process of relay's stood in the way, or had to wait, for long.

    A rebuild waits for those that are there, and is waited for by nobody.
    """
    return obstacle.session != HARNESS and obstacle.seconds > LOCK_SECONDS


def _tell(
    report: Report,
    findings: Findings,
    work: _Work,
    obstacles: list[Obstacle],
    pruned: int,
) -> None:
    waits = [each.seconds for each in obstacles if each.session != HARNESS]
    report.table(
        ABOUT,
        ["what", "how often", "longest"],
        [
            *[
                [kind, count, f"{work.longest[kind]:.2f} s"]
                for kind, count in sorted(work.times.items())
            ],
            [
                "waits of relay's sessions for a lock",
                len(waits),
                f"{max(waits, default=0):.2f} s",
            ],
            ["jobs committed", findings.ledger["ok"], ""],
            ["executions", findings.executions, ""],
            ["jobs deleted by retention", pruned, ""],
        ],
    )

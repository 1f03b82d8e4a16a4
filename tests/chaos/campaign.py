"""One run: processes, load, faults, rest, histories, verdict."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.rows import class_row

from tests.chaos.checker import FenceWatch, Findings, Violation, check_parts
from tests.chaos.cluster import Cluster
from tests.chaos.histories import (
    RECORD_TRANSITIONS,
    TRANSITIONS_AFTER,
    Transition,
    dump,
    read_parts,
    write_lines,
)
from tests.chaos.logs import complaints_of
from tests.chaos.nemesis import Nemesis
from tests.chaos.profiles import LEASE_SECONDS, Profile, plan
from tests.chaos.supervisor import Owned, Supervisor

__all__ = ["Outcome", "run"]

REPOSITORY: Final = Path(__file__).resolve().parents[2]
GRACE_SECONDS: Final = 1.0
STARTED_WITHIN_SECONDS: Final = 30.0
# After the last fault every job must have ended within this: lease, reap, the longest
# backoff and job, and what is queued by then.
QUIET_WITHIN_SECONDS: Final = 30.0
# Schedulers run in peace this long before they are told to stop, so that all seconds
# up to then must have fired.
SETTLED_SECONDS: Final = 2.5
CAUGHT_AFTER: Final = 3

_NOT_ENDED = """
SELECT count(*) FROM relay_job WHERE state NOT IN ('completed', 'failed', 'cancelled')
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run came to."""

    profile: Profile
    folder: Path
    findings: Findings
    faults: dict[str, int]
    missed: int
    seconds: float
    # For a mutant: the stale writes seen while it ran.
    caught: tuple[Violation, ...] = ()


class _Run:
    def __init__(
        self,
        profile: Profile,
        seeds: tuple[int, ...],
        cluster: Cluster,
        code: Path,
        folder: Path,
    ) -> None:
        self._profile = profile
        self._seeds = seeds
        self._cluster = cluster
        self._folder = folder
        self._database = folder.name.replace("-", "_")
        self._supervisor = Supervisor(
            folder,
            {
                **cluster.environment(self._database),
                "DJANGO_SETTINGS_MODULE": "tests.chaos.settings",
                "PYTHONPATH": f"{code}:{REPOSITORY}",
                "RELAY_CHAOS_CODE": str(code),
                "RELAY_CHAOS_EFFECTS": str(folder / "effects-?.txt"),
            },
        )
        self._watch = FenceWatch()
        self._watched = 0
        self._looked_at = 0.0
        self._caught: list[Violation] = []

    def go(self) -> Outcome:
        began = time.monotonic()
        self._cluster.create(self._database)
        log_bytes = self._cluster.log.stat().st_size
        self._supervisor.run("migrate", ["django", "migrate", "-v0"])
        with self._cluster.connect(self._database) as connection:
            connection.execute(RECORD_TRANSITIONS)
            try:
                nemesis, missed, scheduled = self._faults(connection)
            finally:
                self._supervisor.close()
            dump(connection, self._folder)
        complaints = complaints_of(self._folder, self._cluster.log, log_bytes)
        write_lines(self._folder / "complaints.jsonl", complaints)
        self._write(nemesis, scheduled)
        return Outcome(
            profile=self._profile,
            folder=self._folder,
            findings=check_parts(read_parts(self._folder)),
            faults=dict(nemesis.counts()),
            missed=missed,
            seconds=time.monotonic() - began,
            caught=tuple(self._caught),
        )

    def _faults(
        self, connection: psycopg.Connection[Any]
    ) -> tuple[Nemesis, int, tuple[float, float] | None]:
        profile = self._profile
        workers = [
            self._supervisor.start(
                f"worker{number}",
                [
                    "django",
                    "relay_worker",
                    "-c",
                    str(profile.concurrency),
                    "--processes",
                    str(processes),
                ],
                children=processes,
            )
            for number, processes in enumerate(profile.workers)
        ]
        schedulers = [
            self._supervisor.start(f"scheduler{number}", ["django", "relay_scheduler"])
            for number in range(profile.schedulers)
        ]
        self._wait_until_up(connection, workers)
        producers = self._start_producers()
        first = time.time()
        nemesis = Nemesis(
            self._supervisor,
            connection,
            workers,
            schedulers,
            plan(profile, self._seeds),
        )
        ends_at = time.monotonic() + profile.seconds
        while time.monotonic() < ends_at or any(each.is_up for each in producers):
            self._supervisor.tick()
            nemesis.tick()
            if profile.until_caught and self._is_caught(connection):
                return nemesis, 0, None
            time.sleep(0.01)
        missed = nemesis.end()
        scheduled = None
        if schedulers:
            self._idle(SETTLED_SECONDS)
            scheduled = (first, time.time() - 1.5)
            self._supervisor.stop(schedulers, GRACE_SECONDS + 6)
        self._wait_until_quiet(connection)
        self._watch_rows(connection)
        self._supervisor.stop(workers, GRACE_SECONDS + 6)
        return nemesis, missed, scheduled

    def _start_producers(self) -> list[Owned]:
        profile = self._profile
        return [
            self._supervisor.start(
                f"producer{number}",
                [
                    "tests.chaos.producer",
                    f"--profile={profile.name}",
                    f"--number={number}",
                    f"--seed={self._seeds[-1] + number}",
                    f"--jobs={profile.jobs // profile.producers}",
                    f"--seconds={profile.seconds * 0.9}",
                    f"--ledger={self._folder / f'ledger-{number}.txt'}",
                ],
                restarts=False,
            )
            for number in range(profile.producers)
        ]

    def _idle(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            self._supervisor.tick()
            time.sleep(0.02)

    def _wait_until_up(
        self, connection: psycopg.Connection[Any], workers: Sequence[Owned]
    ) -> None:
        wanted = sum(worker.children for worker in workers)
        deadline = time.monotonic() + STARTED_WITHIN_SECONDS
        query = "SELECT count(*) FROM relay_worker WHERE state = 'running'"
        while True:
            row = connection.execute(query).fetchone()
            if row is not None and row[0] >= wanted:
                return
            if time.monotonic() > deadline or any(worker.exits for worker in workers):
                raise RuntimeError(
                    f"the workers did not start: see {self._folder}/worker0.log"
                )
            self._idle(0.1)

    def _wait_until_quiet(self, connection: psycopg.Connection[Any]) -> None:
        deadline = time.monotonic() + QUIET_WITHIN_SECONDS
        while time.monotonic() < deadline:
            row = connection.execute(_NOT_ENDED).fetchone()
            if row is not None and not row[0]:
                return
            self._idle(0.1)

    def _is_caught(self, connection: psycopg.Connection[Any]) -> bool:
        now = time.monotonic()
        if now - self._looked_at < 0.5:
            return False
        self._looked_at = now
        self._watch_rows(connection)
        return len(self._caught) >= CAUGHT_AFTER

    def _watch_rows(self, connection: psycopg.Connection[Any]) -> None:
        with connection.cursor(row_factory=class_row(Transition)) as cursor:
            for row in cursor.execute(TRANSITIONS_AFTER, {"seq": self._watched}):
                self._watched = row.seq
                self._caught += self._watch.feed(row)

    def _write(self, nemesis: Nemesis, scheduled: tuple[float, float] | None) -> None:
        write_lines(self._folder / "faults.jsonl", nemesis.faults)
        write_lines(self._folder / "processes.jsonl", self._supervisor.events)
        write_lines(
            self._folder / "run.jsonl",
            [
                {
                    "profile": self._profile.name,
                    "seeds": self._seeds,
                    "scheduled": scheduled,
                    "lease_seconds": LEASE_SECONDS,
                    "grace_seconds": GRACE_SECONDS,
                }
            ],
        )


def run(
    profile: Profile,
    seeds: tuple[int, ...],
    *,
    cluster: Cluster,
    code: Path,
    folder: Path,
) -> Outcome:
    """Do one run of a profile against the relay in `code`; histories go to folder.

    Raises:
        RuntimeError: the processes of the run did not come up.
    """
    folder.mkdir()
    return _Run(profile, seeds, cluster, code, folder).go()

"""The run of the volume campaign: one long stretch of work, kills, and one crash."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.chaos.campaign import GRACE_SECONDS
from tests.chaos.histories import RECORD_TRANSITIONS, Fault, dump, write_lines
from tests.chaos.logs import complaints_of
from tests.chaos.nemesis import Nemesis
from tests.chaos.profiles import VOLUME, Planned
from tests.chaos.servers import ROLE, Server, quiet_environment
from tests.chaos.supervisor import Owned, Supervisor

__all__ = ["run_volume"]

# Jobs that wait: the workers are never short of work, and the first and the last job
# enqueued are claimed under the same conditions.
BACKLOG: Final = 5_000
# Where in the run the server crashes: not in the tenths that are compared.
CRASH_AT: Final = 0.55
LOOK_SECONDS: Final = 0.2
KILLS_OF_A_TENTH: Final = ("child", "child", "child", "parent", "keeper")
STARTED_WITHIN_SECONDS: Final = 30.0
QUIET_WITHIN_SECONDS: Final = 90.0

_GRANT: Final = f"""
GRANT ALL ON ALL TABLES IN SCHEMA public TO {ROLE};
GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {ROLE};
"""
_RUNNING: Final = "SELECT count(*) FROM relay_worker WHERE state = 'running'"
# One row for each job, one for its claim, one for its end.
_CHANGES: Final = "SELECT last_value FROM chaos_transition_seq_seq"
_ROWS_OF_A_JOB: Final = 3
_NOT_ENDED: Final = """
SELECT count(*) FROM relay_job WHERE state NOT IN ('completed', 'failed', 'cancelled')
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    jobs: int
    kills: int
    seed: int


class _Run:
    def __init__(self, size: _Size, server: Server, folder: Path) -> None:
        self._size = size
        self._server = server
        self._folder = folder
        self._supervisor = Supervisor(
            folder, quiet_environment(server, folder, VOLUME.lease_seconds)
        )
        self._done = 0.0
        self._looked_at = 0.0
        self._faults: list[Fault] = []

    def go(self) -> None:
        self._supervisor.run("migrate", ["django", "migrate", "-v0"])
        with self._server.session() as session:
            session.execute(RECORD_TRANSITIONS)
            session.execute(_GRANT)
        try:
            self._work()
        finally:
            self._supervisor.close()
        with self._server.session() as session:
            dump(session, self._folder)
        self._write()

    def _work(self) -> None:
        workers = [
            self._supervisor.start(
                f"worker{number}",
                [
                    *("django", "relay_worker", "-c", str(VOLUME.concurrency)),
                    *("--processes", str(processes)),
                ],
                children=processes,
            )
            for number, processes in enumerate(VOLUME.workers)
        ]
        self._wait_until_up(workers)
        producers = self._start_producers()
        kills = _plan(self._size)
        crash_at = CRASH_AT * self._size.jobs
        before = [kill for kill in kills if kill.at_seconds < crash_at]
        self._strike(before, workers, producers, until=crash_at)
        self._crash(workers)
        self._strike(kills[len(before) :], workers, producers, until=None)
        with self._server.session() as session:
            deadline = time.monotonic() + QUIET_WITHIN_SECONDS
            while _ask(session, _NOT_ENDED) and time.monotonic() < deadline:
                self._idle(0.5)
        self._supervisor.stop(workers, GRACE_SECONDS + 6)

    def _strike(
        self,
        kills: Sequence[Planned],
        workers: Sequence[Owned],
        producers: Sequence[Owned],
        *,
        until: float | None,
    ) -> None:
        """Let kills strike when their jobs have come, until all or so many have."""
        with self._server.session() as session:
            nemesis = Nemesis(
                self._supervisor,
                session,
                workers,
                [],
                kills,
                clock=lambda: self._done,
            )
            while any(each.is_up for each in producers) and (
                until is None or self._done < until
            ):
                self._look(session)
                self._supervisor.tick()
                nemesis.tick()
                time.sleep(0.01)
            nemesis.end()
        self._faults += nemesis.faults

    def _look(self, session: psycopg.Connection[Any]) -> None:
        now = time.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            self._done = _ask(session, _CHANGES) / _ROWS_OF_A_JOB

    def _crash(self, workers: Sequence[Owned]) -> None:
        """Kill the server's first process and start it again; all jobs feel it."""
        self._supervisor.scan()
        pids = tuple(each.pid for worker in workers for each in worker.tree)
        began, mono_began = time.time(), time.monotonic()
        self._server.kill()
        self._faults.append(
            Fault(
                kind="crash",
                victim="the database",
                pids=pids,
                began=began,
                ended=time.time(),
                mono_began=mono_began,
                mono_ended=time.monotonic(),
            )
        )

    def _start_producers(self) -> list[Owned]:
        return [
            self._supervisor.start(
                f"producer{number}",
                [
                    "tests.chaos.bulk",
                    f"--profile={VOLUME.name}",
                    f"--number={number}",
                    f"--seed={self._size.seed + number}",
                    f"--jobs={self._size.jobs // VOLUME.producers}",
                    f"--backlog={BACKLOG}",
                    f"--ledger={self._folder / f'ledger-{number}.txt'}",
                ],
                restarts=False,
            )
            for number in range(VOLUME.producers)
        ]

    def _wait_until_up(self, workers: Sequence[Owned]) -> None:
        wanted = sum(worker.children for worker in workers)
        deadline = time.monotonic() + STARTED_WITHIN_SECONDS
        with self._server.session() as session:
            while _ask(session, _RUNNING) < wanted:
                if time.monotonic() > deadline or any(each.exits for each in workers):
                    raise RuntimeError(f"the workers did not start: see {self._folder}")
                self._idle(0.1)

    def _idle(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            self._supervisor.tick()
            time.sleep(0.02)

    def _write(self) -> None:
        write_lines(self._folder / "faults.jsonl", self._faults)
        write_lines(self._folder / "processes.jsonl", self._supervisor.events)
        complaints = complaints_of(self._folder, self._server.log, 0)
        write_lines(self._folder / "complaints.jsonl", complaints)
        write_lines(
            self._folder / "run.jsonl",
            [
                {
                    "profile": VOLUME.name,
                    "seeds": [self._size.seed],
                    "scheduled": None,
                    "lease_seconds": VOLUME.lease_seconds,
                    "grace_seconds": GRACE_SECONDS,
                }
            ],
        )


def _plan(size: _Size) -> list[Planned]:
    """Return the kills, at equal distances in jobs: each tenth has the same ones."""
    rng = random.Random(size.seed)
    kinds = []
    for _ in range(size.kills // len(KILLS_OF_A_TENTH)):
        kinds += rng.sample(KILLS_OF_A_TENTH, len(KILLS_OF_A_TENTH))
    stretch = size.jobs / len(kinds)
    return [
        Planned(
            at_seconds=(place + 0.4) * stretch,
            kind=kind,
            slot=rng.randrange(len(VOLUME.workers)),
            dice=rng.random(),
            leases=0.0,
        )
        for place, kind in enumerate(kinds)
    ]


def _ask(session: psycopg.Connection[Any], query: str) -> int:
    row = session.execute(query.encode()).fetchone()
    return 0 if row is None else int(row[0])


def run_volume(
    server: Server, *, jobs: int, kills: int, seed: int, folder: Path
) -> None:
    """Run the campaign's load in an empty folder, which then holds its histories.

    Raises:
        RuntimeError: the processes of the run did not come up.
    """
    folder.mkdir()
    _Run(_Size(jobs=jobs, kills=kills, seed=seed), server, folder).go()

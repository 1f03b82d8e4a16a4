"""One segment of the database campaign: processes, load, faults, rest, verdict."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from relay.standalone.postgres.binaries import Binaries
from tests.chaos.campaign import GRACE_SECONDS, REPOSITORY, SETTLED_SECONDS
from tests.chaos.histories import RECORD_TRANSITIONS, Fault, dump, write_lines
from tests.chaos.logs import complaints_of
from tests.chaos.outages import INJECT, Outages
from tests.chaos.pooler import PORT, Pooler
from tests.chaos.profiles import LEASE_SECONDS
from tests.chaos.proxy import FaultProxy
from tests.chaos.segments import (
    LOAD,
    REST_SECONDS,
    Segment,
    Strike,
    length_of,
    strikes_of,
)
from tests.chaos.servers import DATABASE, ROLE, Room, Server
from tests.chaos.supervisor import Owned, Supervisor

__all__ = ["Unable", "run_segment"]

DISK_MIB: Final = 512
WAL_MIB: Final = 192
STARTED_WITHIN_SECONDS: Final = 30.0
# Jobs that met an outage come back after up to a minute.
QUIET_WITHIN_SECONDS: Final = 150.0
# For what the producers still have to do when the faults are over.
PRODUCED_WITHIN_SECONDS: Final = 120.0

_GRANT: Final = f"""
GRANT ALL ON ALL TABLES IN SCHEMA public TO {ROLE};
GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {ROLE};
"""
_NOT_ENDED: Final = """
SELECT count(*) FROM relay_job WHERE state NOT IN ('completed', 'failed', 'cancelled')
"""
_RUNNING: Final = "SELECT count(*) FROM relay_worker WHERE state = 'running'"


class Unable(Exception):
    """This machine does not let the segment's faults strike; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    jobs: int
    seconds: float
    seed: int


class _Run:
    def __init__(
        self, segment: Segment, size: _Size, outages: Outages, folder: Path
    ) -> None:
        self._segment = segment
        self._size = size
        self._outages = outages
        self._server = outages.server
        self._folder = folder
        self._supervisor = Supervisor(folder, self._environment())
        self._faults: list[Fault] = []

    def _environment(self) -> dict[str, str]:
        host, port = self._server.socket_folder, ""
        if self._outages.proxy is not None:
            host, port = "127.0.0.1", str(self._outages.proxy.port)
        if self._outages.pooler is not None:
            host, port = str(self._outages.pooler.folder), str(PORT)
        return {
            "RELAY_CHAOS_HOST": host,
            "RELAY_CHAOS_PORT": port,
            "RELAY_CHAOS_POOLER": "1" if self._outages.pooler is not None else "",
            "RELAY_CHAOS_USER": ROLE,
            "RELAY_CHAOS_DATABASE": DATABASE,
            "RELAY_CHAOS_CODE": str(REPOSITORY),
            "RELAY_CHAOS_EFFECTS": str(self._folder / "effects-?.txt"),
            "DJANGO_SETTINGS_MODULE": "tests.chaos.settings",
            "PYTHONPATH": str(REPOSITORY),
        }

    def go(self, strikes: Sequence[Strike], rng: random.Random) -> None:
        self._supervisor.run("migrate", ["django", "migrate", "-v0"])
        with self._server.session() as session:
            session.execute(RECORD_TRANSITIONS)
            if self._segment.name == "errors":
                session.execute(INJECT)
            session.execute(_GRANT)
        try:
            scheduled = self._strike_all(strikes, rng)
        finally:
            self._supervisor.close()
        with self._server.session() as session:
            dump(session, self._folder)
        self._write(scheduled)

    def _strike_all(
        self, strikes: Sequence[Strike], rng: random.Random
    ) -> tuple[float, float]:
        workers = [
            self._supervisor.start(
                f"worker{number}",
                ["django", "relay_worker", "-c", "4", "--processes", str(processes)],
                children=processes,
            )
            for number, processes in enumerate(LOAD.workers)
        ]
        schedulers = [
            self._supervisor.start(f"scheduler{number}", ["django", "relay_scheduler"])
            for number in range(LOAD.schedulers)
        ]
        self._wait_until_up(workers)
        producers = self._start_producers()
        first = time.time()
        self._idle(rng.uniform(*REST_SECONDS))
        for strike in strikes:
            self._do(strike, workers)
            self._idle(rng.uniform(*REST_SECONDS))
        self._wait_for(
            lambda: not any(each.is_up for each in producers), PRODUCED_WITHIN_SECONDS
        )
        self._idle(SETTLED_SECONDS)
        scheduled = (first, time.time() - 1.5)
        self._supervisor.stop([*producers, *schedulers], GRACE_SECONDS + 6)
        self._wait_for(self._is_quiet, QUIET_WITHIN_SECONDS)
        self._supervisor.stop(workers, GRACE_SECONDS + 6)
        return scheduled

    def _start_producers(self) -> list[Owned]:
        return [
            self._supervisor.start(
                f"producer{number}",
                [
                    "tests.chaos.repeating",
                    f"--number={number}",
                    f"--seed={self._size.seed + number}",
                    f"--jobs={self._size.jobs // LOAD.producers}",
                    f"--seconds={self._size.seconds}",
                    f"--ledger={self._folder / f'ledger-{number}.txt'}",
                ],
                restarts=False,
            )
            for number in range(LOAD.producers)
        ]

    def _do(self, strike: Strike, workers: Sequence[Owned]) -> None:
        """Let one fault strike; it ends when the server may be used again."""
        self._supervisor.scan()
        pids = tuple(each.pid for worker in workers for each in worker.tree)
        began, mono_began = time.time(), time.monotonic()
        for seconds in self._outages.begin(strike.kind, strike.seconds):
            self._idle(seconds)
        self._faults.append(
            Fault(
                kind=strike.kind,
                victim="the database",
                pids=pids,
                began=began,
                ended=time.time(),
                mono_began=mono_began,
                mono_ended=time.monotonic(),
            )
        )

    def _idle(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            self._supervisor.tick()
            time.sleep(0.02)

    def _wait_for(self, condition: Any, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            self._idle(0.2)

    def _wait_until_up(self, workers: Sequence[Owned]) -> None:
        wanted = sum(worker.children for worker in workers)
        self._wait_for(lambda: self._ask(_RUNNING) >= wanted, STARTED_WITHIN_SECONDS)
        if self._ask(_RUNNING) < wanted or any(worker.exits for worker in workers):
            raise RuntimeError(f"the workers did not start: see {self._folder}")

    def _is_quiet(self) -> bool:
        return not self._ask(_NOT_ENDED)

    def _ask(self, query: str) -> int:
        with self._server.session() as session:
            row = session.execute(query).fetchone()
        return int(row[0]) if row is not None else 0

    def _write(self, scheduled: tuple[float, float]) -> None:
        write_lines(self._folder / "faults.jsonl", self._faults)
        write_lines(self._folder / "processes.jsonl", self._supervisor.events)
        complaints = complaints_of(
            self._folder, self._server.log, 0, allowed=self._segment.errors
        )
        write_lines(self._folder / "complaints.jsonl", complaints)
        proxy = self._outages.proxy
        write_lines(
            self._folder / "run.jsonl",
            [
                {
                    "profile": LOAD.name,
                    "seeds": [self._size.seed],
                    "scheduled": scheduled,
                    "lease_seconds": LEASE_SECONDS,
                    "grace_seconds": GRACE_SECONDS,
                    "commits_cut": 0 if proxy is None else proxy.commits_cut,
                    "panics": self._server.log.read_text().count(" PANIC:  "),
                }
            ],
        )


def run_segment(
    segment: Segment,
    binaries: Binaries,
    *,
    jobs: int,
    seconds: float,
    seed: int,
    folder: Path,
) -> None:
    """Run a segment in an empty folder, which then holds its histories.

    Args:
        jobs, seconds: of the whole campaign; the segment has its share of them.

    Raises:
        Unable: its faults cannot strike on this machine.
        RuntimeError: the processes of the run did not come up.
    """
    rng = random.Random(f"{seed} {segment.name} {binaries.major}")
    strikes = strikes_of(segment, scale=seconds / LOAD.seconds, rng=rng)
    size = _Size(
        jobs=round(jobs * segment.share),
        seconds=length_of(strikes),
        seed=rng.randrange(1_000_000),
    )
    folder.mkdir(parents=True)
    with _outages(segment, binaries, folder) as outages:
        _Run(segment, size, outages, folder).go(strikes, rng)


@contextmanager
def _outages(segment: Segment, binaries: Binaries, folder: Path) -> Iterator[Outages]:
    with ExitStack() as stack:
        disk = wal = None
        if segment.has_rooms:
            disk, wal = Room(DISK_MIB), Room(WAL_MIB)
            for room in (disk, wal):
                stack.callback(room.remove)
                if not room.mount():
                    raise Unable("mounting a tmpfs is not permitted here")
        if segment.network == "pooler" and not Pooler.is_installed():
            raise Unable("pgbouncer is not installed (apt-get install pgbouncer)")
        server = Server(folder / "postgres", binaries, disk=disk, wal=wal)
        stack.enter_context(server.running())
        proxy = pooler = None
        if segment.network == "proxy":
            proxy = stack.enter_context(
                FaultProxy(f"{server.socket_folder}/.s.PGSQL.5432")
            )
        if segment.network == "pooler":
            pooler = stack.enter_context(
                Pooler(server.socket_folder, database=DATABASE, user=ROLE)
            )
        yield Outages(server=server, proxy=proxy, pooler=pooler)

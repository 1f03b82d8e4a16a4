"""A million jobs beside a transaction that is held open, and the same without."""

from __future__ import annotations

import argparse
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.chaos.campaign import GRACE_SECONDS
from tests.chaos.findings import percentile
from tests.chaos.profiles import BLOAT
from tests.chaos.report import Report
from tests.chaos.servers import ROLE, Server, installations, quiet_environment
from tests.chaos.supervisor import Supervisor

__all__ = ["ABOUT", "add_arguments", "claims_of", "run"]

ABOUT: Final = "1,000,000 jobs beside a transaction that is held open"

# What may become of the free run's figures beside a held snapshot.
SLOWER_CLAIM: Final = 3.0
LEAST_RATE: Final = 0.8
TENTHS: Final = 10
LONGEST_SECONDS: Final = 1_800.0
LOOK_SECONDS: Final = 1.0

_HOLD: Final = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "SELECT count(*) FROM relay_job",
)
_GRANT: Final = f"""
GRANT ALL ON ALL TABLES IN SCHEMA public TO {ROLE};
GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {ROLE};
"""
# Indexes: relay_job_ready_idx, relay_job_held_idx.
_IS_AT_WORK: Final = """
SELECT EXISTS (
    SELECT FROM relay_job WHERE state = 'queued' AND concurrency_key IS NULL
) OR EXISTS (SELECT FROM relay_job WHERE state = 'running')
"""
# The moments at which each tenth of the jobs had ended, the start first.
_MOMENTS: Final = """
SELECT extract(epoch FROM min(started_at))::float8 FROM relay_job
UNION ALL
(SELECT extract(epoch FROM finished_at)::float8 FROM (
    SELECT finished_at, row_number() OVER (ORDER BY finished_at) AS place,
        count(*) OVER () AS jobs
    FROM relay_job WHERE state = 'completed'
) AS ended
WHERE mod(place, greatest(jobs / 10, 1)) = 0 ORDER BY place)
"""
_COMPLETED: Final = "SELECT count(*) FROM relay_job WHERE state = 'completed'"
_DEAD: Final = """
SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'relay_job'
"""

_DURATION: Final = re.compile(r"duration: ([\d.]+) ms  execute [^:]*:\s*$")
_CLAIM: Final = "WITH picked AS MATERIALIZED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What a drain came to; claims in ms, as the server took over them, in order."""

    completed: int
    rates: list[float]
    rate: float
    dead_rows: int
    claims: list[float]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=BLOAT.jobs)


def run(options: argparse.Namespace, report: Report) -> bool:
    binaries = installations()[0]
    report.say(f"PostgreSQL {binaries.version} from {binaries.origin}.")
    found = {}
    for name, is_held in (("free", False), ("held", True)):
        kept = report.kept(name)
        if kept is None:
            folder = report.folder / name
            folder.mkdir()
            with ExitStack() as stack:
                server = Server(folder / "postgres", binaries)
                stack.enter_context(server.running())
                phase = _Phase(server, folder, options.jobs, report.seed)
                stack.callback(phase.close)
                kept = asdict(phase.go(is_held=is_held))
            shutil.rmtree(folder)
            report.keep(name, kept)
        found[name] = Drained(**kept)
        report.say(f"{name}: {found[name].rate:,.0f} jobs a second.")
    return _judge(options.jobs, found["free"], found["held"], report)


class _Phase:
    """One drain in a server of its own."""

    def __init__(self, server: Server, folder: Path, jobs: int, seed: int) -> None:
        self._server = server
        self._folder = folder
        self._jobs = jobs
        self._seed = seed
        self._supervisor = Supervisor(
            folder, quiet_environment(server, folder, BLOAT.lease_seconds)
        )

    def close(self) -> None:
        self._supervisor.close()

    def go(self, *, is_held: bool) -> Drained:
        self._supervisor.run("migrate", ["django", "migrate", "-v0"])
        with self._server.session() as session, self._server.session() as holder:
            session.execute(_GRANT)
            if is_held:
                for statement in _HOLD:
                    holder.execute(statement.encode())
            self._enqueue()
            # Of claims and finishes, and of little else: nobody enqueues any more.
            self._server.set("log_parameter_max_length", "0")
            self._server.set("log_min_duration_statement", "0")
            offset = self._server.log.stat().st_size
            self._drain(session)
            self._server.set("log_min_duration_statement", None)
            return self._read(session, offset)

    def _enqueue(self) -> None:
        self._supervisor.run(
            "the producer",
            [
                *("tests.chaos.bulk", f"--profile={BLOAT.name}", "--number=0"),
                *(f"--seed={self._seed}", f"--jobs={self._jobs}"),
                f"--ledger={self._folder / 'ledger-0.txt'}",
            ],
        )

    def _drain(self, session: psycopg.Connection[Any]) -> None:
        workers = [
            self._supervisor.start(
                f"worker{number}",
                [
                    *("django", "relay_worker", "-c", str(BLOAT.concurrency)),
                    *("--processes", str(processes)),
                ],
                children=processes,
            )
            for number, processes in enumerate(BLOAT.workers)
        ]
        session.execute("SET enable_seqscan = off")
        deadline = time.monotonic() + LONGEST_SECONDS
        while _ask(session, _IS_AT_WORK):
            if time.monotonic() > deadline or any(each.exits for each in workers):
                raise RuntimeError(f"the queue was not drained: see {self._folder}")
            self._supervisor.tick()
            time.sleep(LOOK_SECONDS)
        self._supervisor.stop(workers, GRACE_SECONDS + 6)
        session.execute("RESET enable_seqscan")

    def _read(self, session: psycopg.Connection[Any], offset: int) -> Drained:
        moments = [float(row[0]) for row in session.execute(_MOMENTS.encode())]
        tenth = self._jobs / TENTHS
        return Drained(
            completed=_ask(session, _COMPLETED),
            rates=[tenth / (after - before) for before, after in pairwise(moments)],
            rate=self._jobs / (moments[-1] - moments[0]),
            dead_rows=_ask(session, _DEAD),
            claims=list(claims_of(self._server.log, offset)),
        )


def claims_of(log: Path, offset: int) -> Iterator[float]:
    """Yield how many ms the server took over each claim, read from its log."""
    duration: float | None = None
    with log.open("rb") as file:
        file.seek(offset)
        for line in file:
            text = line.decode(errors="replace")
            if duration is not None and text.lstrip().startswith(_CLAIM):
                yield duration
            found = _DURATION.search(text)
            duration = None if found is None else float(found[1])


def _ask(session: psycopg.Connection[Any], query: str) -> int:
    row = session.execute(query.encode()).fetchone()
    return 0 if row is None else int(row[0])


def _judge(jobs: int, free: Drained, held: Drained, report: Report) -> bool:
    report.say(
        "The same jobs, drained by the same workers, one run after the other. A "
        "claim's time is the server's for the statement, of every one, from its log."
    )
    rows: list[tuple[str, Callable[[Drained], float], str]] = [
        ("jobs completed", lambda one: one.completed, ",.0f"),
        ("dead rows at the end", lambda one: one.dead_rows, ",.0f"),
        ("jobs a second", lambda one: one.rate, ",.0f"),
        ("claims", lambda one: len(one.claims), ",.0f"),
        ("claim p50, ms", lambda one: percentile(one.claims, 0.5), ".2f"),
        ("claim p95, ms", lambda one: percentile(one.claims, 0.95), ".2f"),
        ("claim p99, ms", lambda one: percentile(one.claims, 0.99), ".2f"),
        ("longest claim, ms", lambda one: percentile(one.claims, 1.0), ".2f"),
    ]
    report.table(
        "Beside a held snapshot",
        ["", "free", "held"],
        [
            [title, *(format(of(one), as_) for one in (free, held))]
            for title, of, as_ in rows
        ],
    )
    report.table(
        "Jobs a second, in tenths of the jobs",
        ["", *(str(place + 1) for place in range(TENTHS))],
        [
            [name, *(f"{rate:,.0f}" for rate in one.rates)]
            for name, one in (("free", free), ("held", held))
        ],
    )
    violations = [
        f"J1: {jobs - one.completed} jobs of the {name} run did not complete"
        for name, one in (("free", free), ("held", held))
        if one.completed != jobs
    ]
    if percentile(held.claims, 0.99) >= SLOWER_CLAIM * percentile(free.claims, 0.99):
        violations.append(
            f"F14: the claim's p99 is {SLOWER_CLAIM:g} times the free one"
        )
    if held.rate < LEAST_RATE * free.rate:
        violations.append(f"F14: the rate is below {LEAST_RATE:.0%} of the free one")
    report.violations(violations)
    return not violations

"""F20: the database comes back as a backup has it that was taken under load."""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from relay.standalone.postgres import EmbeddedPostgres
from relay.standalone.postgres.binaries import choose_account
from relay.standalone.postgres.binaries import run as run_program
from relay.standalone.postgres.cluster import ROLE
from tests.chaos.checker import check_parts
from tests.chaos.cluster import Cluster
from tests.chaos.fleet import Fleet
from tests.chaos.histories import RECORD_TRANSITIONS, Effect, Histories, read_parts
from tests.chaos.profiles import LEASE_SECONDS
from tests.chaos.report import Report
from tests.chaos.supervisor import Owned

__all__ = ["ABOUT", "judge_tokens", "run"]

ABOUT: Final = "F20: restored from a backup taken under load"

SIZES: Final = (2, 2)
DUMPED: Final = "dumped"
RESTORED: Final = "restored"
COPIED: Final = "copied"
PROGRAM_SECONDS: Final = 120
QUIET_SECONDS: Final = 90.0
# Ready again within lease + 2 s of when some keeper has been sound for a lease.
READY_SECONDS: Final = 2 * LEASE_SECONDS + 2

_HELD: Final = """
SELECT array_agg(id::text), array_agg(attempt) FROM relay_job WHERE state = 'running'
"""
_STILL_HELD: Final = """
SELECT count(*) FROM relay_job AS job
JOIN unnest(%(ids)s::uuid[], %(attempts)s::int[]) AS held(id, attempt)
    USING (id, attempt)
WHERE job.state = 'running'
"""


class _Held:
    """The attempts that a backup has as running."""

    def __init__(self, ids: list[str] | None, attempts: list[int] | None) -> None:
        self.ids = ids or []
        self.attempts = attempts or []


@dataclass(slots=True, kw_only=True)
class _Outcome:
    """What one restore came to.

    Attributes:
        held: jobs that were running in the backup.
        ready_seconds: until none of them was held under its old token.
        lost: jobs acknowledged after the backup had begun, which it does not have.
    """

    way: str
    held: int
    ready_seconds: float
    jobs: int
    lost: int
    violations: list[str]


def run(
    server: EmbeddedPostgres, folder: Path, report: Report, *, seconds: float, jobs: int
) -> list[str]:
    outcomes = [
        _dump_and_restore(server, folder / DUMPED, report, seconds, jobs),
        _put_copy_in_place(server, folder / COPIED, report, seconds, jobs),
    ]
    report.table(
        ABOUT,
        ["way", "jobs", "running in the backup", "ready again after", "not in it"],
        [
            [each.way, each.jobs, each.held, f"{each.ready_seconds:.1f} s", each.lost]
            for each in outcomes
        ],
    )
    return [f"{each.way}: {text}" for each in outcomes for text in each.violations]


def _dump_and_restore(
    server: EmbeddedPostgres, folder: Path, report: Report, seconds: float, jobs: int
) -> _Outcome:
    """A logical dump, restored beside it; no process of before is left."""
    cluster = Cluster(server)
    before = _begin(cluster, folder, DUMPED, report.seed)
    file = server.root / "dump"
    try:
        workers = _load(before, seconds, jobs)
        before.idle(0.4 * seconds)
        taken = time.time()
        _program(server, "pg_dump", "-Fc", f"--file={file}", DUMPED)
        _await_producers(before)
        before.stop(workers)
    finally:
        before.supervisor.close()
    server.create_database(RESTORED)
    _program(server, "pg_restore", f"--dbname={RESTORED}", str(file))
    after = Fleet(cluster, _made(folder / RESTORED), RESTORED, seed=report.seed)
    held = _held(after)
    try:
        workers = after.start_workers("after", SIZES)
        after.wait_until_up(workers)
        ready = _time_until_ready(after, held)
        quiet = after.wait_until_quiet(QUIET_SECONDS)
        after.stop(workers)
    finally:
        after.supervisor.close()
    for ledger in folder.glob("ledger-*.txt"):
        shutil.copy(ledger, folder / RESTORED)
    after.write()
    parts = list(read_parts(folder / RESTORED))
    found, lost = _judge(parts, folder / RESTORED, (taken, time.time()))
    return _Outcome(
        way="pg_dump and pg_restore",
        held=len(held.ids),
        ready_seconds=ready,
        jobs=sum(len(part.jobs) for part in parts),
        lost=lost,
        violations=[*found, *_judge_rest(quiet, ready, len(held.ids))],
    )


def _put_copy_in_place(
    server: EmbeddedPostgres, folder: Path, report: Report, seconds: float, jobs: int
) -> _Outcome:
    """A base backup put in the server's place, under workers that live on."""
    cluster = Cluster(server)
    fleet = _begin(cluster, folder, COPIED, report.seed)
    copy = server.root / "copy"
    try:
        workers = _load(fleet, seconds, jobs)
        fleet.idle(0.3 * seconds)
        taken = time.time()
        _program(
            server, "pg_basebackup", f"--pgdata={copy}", "-X", "stream", "-c", "fast"
        )
        # One that the backup does not know, and work that it has not seen.
        workers += fleet.start_workers("late", (1,))
        fleet.idle(0.3 * seconds)
        fleet.session.close()
        server.stop("immediate")
        data = server.root / "data"
        data.rename(server.root / "lost")
        copy.rename(data)
        server.start(stop_at_exit=False)
        back = time.time()
        # What ran when the copy was taken has long ended for those who live.
        held = _held(fleet)
        ready = _time_until_ready(fleet, held)
        _await_producers(fleet)
        quiet = fleet.wait_until_quiet(QUIET_SECONDS)
        fleet.stop(workers)
    finally:
        fleet.supervisor.close()
    fleet.write()
    parts = list(read_parts(folder))
    found, lost = _judge(
        [replace(part, effects=[]) for part in parts], folder, (taken, back)
    )
    return _Outcome(
        way="base backup under living workers",
        held=len(held.ids),
        ready_seconds=ready,
        jobs=sum(len(part.jobs) for part in parts),
        lost=lost,
        violations=[
            *found,
            *judge_tokens(parts),
            *_judge_rest(quiet, ready, len(held.ids)),
        ],
    )


def _begin(cluster: Cluster, folder: Path, database: str, seed: int) -> Fleet:
    cluster.create(database)
    fleet = Fleet(cluster, _made(folder), database, seed=seed)
    fleet.migrate()
    fleet.session.execute(RECORD_TRANSITIONS)
    return fleet


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _load(fleet: Fleet, seconds: float, jobs: int) -> list[Owned]:
    workers = fleet.start_workers("worker", SIZES)
    fleet.wait_until_up(workers)
    fleet.start_producer(jobs=jobs, seconds=seconds)
    return workers


def _await_producers(fleet: Fleet) -> None:
    while not fleet.is_produced:
        fleet.idle(0.1)


def _program(server: EmbeddedPostgres, name: str, *arguments: str) -> None:
    """Run a program of PostgreSQL's on the server, as its own account.

    Raises:
        RuntimeError: it failed; the message shows what it printed.
    """
    binaries = server.binaries
    host = server.django_settings()["HOST"]
    code, output = run_program(
        [binaries.program(name), f"--host={host}", f"--username={ROLE}", *arguments],
        account=choose_account(server.root, binaries),
        folder=server.root,
        timeout=PROGRAM_SECONDS,
    )
    if code:
        raise RuntimeError(f"{name} ended with {code}:\n{output}")


def _held(fleet: Fleet) -> _Held:
    row = fleet.session.execute(_HELD).fetchone()
    return _Held(*(row or (None, None)))


def _time_until_ready(fleet: Fleet, held: _Held) -> float:
    """Return the seconds until no attempt that the backup had running is so still."""
    began = time.monotonic()
    while time.monotonic() - began < QUIET_SECONDS:
        if not fleet.ask(_STILL_HELD, ids=held.ids, attempts=held.attempts):
            break
        fleet.idle(0.05)
    return time.monotonic() - began


def _judge_rest(quiet: bool, ready: float, held: int) -> Iterator[str]:
    if not held:
        yield "no job was running in the backup: it proves nothing"
    if not quiet:
        yield "jobs did not come to rest"
    if ready > READY_SECONDS:
        yield f"jobs were ready again after {ready:.1f} s only"


def _judge(
    parts: Sequence[Histories], folder: Path, gap: tuple[float, float]
) -> tuple[list[str], int]:
    """Judge what the restored database tells; count what it cannot know of.

    Args:
        gap: from when the backup began until it was the database: what was
            acknowledged then may or may not be in it.
    """
    acknowledged = _acknowledged(folder)
    keys = {job.key for part in parts for job in part.jobs}
    lost = 0
    ledger = []
    for entry in parts[0].ledger:
        at = acknowledged.get(entry.key)
        if at is not None and gap[0] <= at <= gap[1]:
            lost += entry.key not in keys
            entry = replace(entry, word="unknown")
        ledger.append(entry)
    findings = check_parts([replace(part, ledger=ledger) for part in parts])
    return [str(violation) for violation in findings.violations], lost


def _acknowledged(folder: Path) -> dict[str, float]:
    """Return when each commit was acknowledged, by the key of the job."""
    found = {}
    for path in folder.glob("ledger-*.txt"):
        for line in path.read_text(encoding="ascii").splitlines():
            word, key, at = line.split()
            if word == "ok":
                found[key] = float(at)
    return found


def judge_tokens(parts: Sequence[Histories]) -> Iterator[str]:
    """No two runs of one token at once: who still runs a job keeps that run."""
    runs: dict[tuple[str, int, str], list[Effect]] = defaultdict(list)
    for part in parts:
        for effect in sorted(part.effects, key=lambda effect: effect.mono):
            runs[effect.job, effect.attempt, effect.worker].append(effect)
    for (job, attempt, worker), effects in runs.items():
        running = 0
        for effect in effects:
            running += 1 if effect.phase == "start" else -1
            if running > 1:
                yield f"two runs at once of attempt {attempt} of {job} by {worker}"

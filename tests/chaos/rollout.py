"""An older relay is replaced by a newer one, and comes back, under load and kills."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.chaos.campaign import GRACE_SECONDS, REPOSITORY, SETTLED_SECONDS
from tests.chaos.cluster import Cluster
from tests.chaos.histories import RECORD_TRANSITIONS, dump, write_lines
from tests.chaos.lockwatch import LockWatch, Obstacle
from tests.chaos.logs import complaints_of
from tests.chaos.nemesis import Nemesis
from tests.chaos.profiles import LEASE_SECONDS, Profile, plan
from tests.chaos.report import Report
from tests.chaos.supervisor import Owned, Supervisor
from tests.chaos.versions import WIDER_INDEX, Version

__all__ = ["LOCK_SECONDS", "Phase", "Rollout"]

# Nobody may wait for a lock of a migration, nor a migration hold one, for longer.
LOCK_SECONDS: Final = 1.0
# A job that no worker knew waits up to half a minute for its next turn after a while.
QUIET_SECONDS: Final = 150.0
UP_SECONDS: Final = 60.0
DATABASE: Final = "deploy"

# The child processes of each worker, the same of both versions.
_FLEET: Final = (2, 2, 1)
_FAULTS: Final = {"child": 16, "parent": 6, "keeper": 6, "backend": 16}
_ALIVE: Final = "SELECT pid FROM relay_worker WHERE state = 'running'"
_NOT_ENDED: Final = """
SELECT count(*) FROM relay_job
WHERE state NOT IN ('completed', 'failed', 'cancelled')
"""
# For the migrations to have something to do. They end before the run is written down.
_KEEP: Final = """
INSERT INTO relay_job (id, task, queue, priority, state, args, run_at, attempt,
    failures, crashes, losses, max_retries, created_at, started_at, finished_at, result)
SELECT gen_random_uuid(), 'chaos:kept', 'chaos', 0, 'completed',
    '{"args": [], "kwargs": {}}', now(), 1, 0, 0, 0, 25, now(), now(), now(), '1'
FROM generate_series(1, %(count)s)
"""
_FORGET: Final = """
SET session_replication_role = 'replica';
DELETE FROM relay_job WHERE task = 'chaos:kept'
"""
_INDEX_VALID: Final = """
SELECT count(*) FROM pg_index
WHERE indexrelid = to_regclass(%(index)s) AND indisvalid
"""


def _environment(version: Version) -> dict[str, str]:
    newer = {} if version.name == "old" else {"RELAY_CHAOS_NEWER": "1"}
    return {
        "PYTHONPATH": f"{version.code}:{REPOSITORY}",
        "RELAY_CHAOS_CODE": str(version.code),
        **newer,
    }


@dataclass(slots=True, kw_only=True)
class Phase:
    """A stretch of the run, and the versions whose workers must get on in it."""

    about: str
    versions: Sequence[str]
    began: float
    ended: float = 0.0


class Rollout:
    """One deploy, forth and back: go() makes histories; the rest is for the verdict.

    Attributes:
        migrations: what each was for, and how many seconds it took.
        is_index_valid: the wider schema had its index, whole.
    """

    def __init__(
        self,
        report: Report,
        cluster: Cluster,
        folder: Path,
        versions: tuple[Version, Version, Version],
        *,
        jobs: int,
        kept: int,
        seconds: float,
    ) -> None:
        self._seconds = seconds
        self._jobs = jobs
        self._kept = kept
        self._report = report
        self._cluster = cluster
        self._folder = folder
        self._old, self._new, self._wider = versions
        self._supervisor = Supervisor(
            folder,
            {
                **cluster.environment(DATABASE),
                "DJANGO_SETTINGS_MODULE": "tests.chaos.settings",
                "RELAY_CHAOS_EFFECTS": str(folder / "effects-?.txt"),
            },
        )
        self._fleets: dict[str, list[Owned]] = {"old": [], "new": []}
        self._schedulers: dict[str, list[Owned]] = {"old": [], "new": []}
        self._workers: list[Owned] = []
        self._producers: list[Owned] = []
        self._started = 0
        self.is_index_valid = False
        self.phases: list[Phase] = []
        self.faults: Counter[str] = Counter()
        self.obstacles: list[Obstacle] = []
        self.migrations: list[tuple[str, float]] = []
        self.gap = ""

    def go(self) -> None:
        self._cluster.create(DATABASE)
        log_bytes = self._cluster.log.stat().st_size
        self._migrate("the old schema", self._old)
        with self._cluster.connect(DATABASE) as connection:
            self._connection = connection
            connection.execute(_KEEP, {"count": self._kept})
            connection.execute("VACUUM ANALYZE relay_job")
            connection.execute(RECORD_TRANSITIONS)
            try:
                with LockWatch(self._cluster.connect(DATABASE)) as watch:
                    scheduled = self._roll()
            finally:
                self._supervisor.close()
            connection.execute(_FORGET)
            dump(connection, self._folder)
        self.obstacles = watch.obstacles()
        self.gap = f"{watch.longest_gap_seconds:.2f} s, of {watch.samples}"
        complaints = complaints_of(self._folder, self._cluster.log, log_bytes)
        write_lines(self._folder / "complaints.jsonl", complaints)
        self._write(scheduled)

    def _roll(self) -> tuple[float, float]:
        profile = Profile(
            name=DATABASE,
            workers=_FLEET,
            jobs=self._jobs,
            seconds=self._seconds,
            tasks={},
            faults={
                kind: round(count * self._seconds / 200)
                for kind, count in _FAULTS.items()
            },
        )
        self._join("old")
        self._nemesis = Nemesis(
            self._supervisor,
            self._connection,
            self._workers,
            (),
            plan(profile, (self._report.seed,)),
        )
        self._produce(self._old, self._seconds)
        first = time.time()
        self._forth()
        self._back()
        return first, self._finish()

    def _forth(self) -> None:
        """To the newer version: its schema first, its workers, no older ones."""
        self._phase("old workers on the old schema", 0.1, "old")
        self._migrate("the new schema, under load", self._new, "old")
        self._produce(self._new, 0.8 * self._seconds)
        self._phase("old workers on the new schema; jobs they do not know", 0.08, "old")
        self._join("new")
        self._phase("old and new workers", 0.15, "old", "new")
        self._leave("old")
        self._phase("new workers alone", 0.1, "new")

    def _back(self) -> None:
        """The older version again, on this schema and on one wider still."""
        self._join("old")
        self._phase("taken back: old workers again", 0.05, "old", "new")
        self._leave("new")
        self._phase("old workers alone on the new schema", 0.08, "old")
        self._migrate("a wider schema, under load", self._wider, "old")
        row = self._connection.execute(_INDEX_VALID, {"index": WIDER_INDEX}).fetchone()
        self.is_index_valid = row is not None and row[0] == 1
        self._phase("old workers alone on the wider schema", 0.06, "old")
        self._join("new")
        self._phase("old and new workers on the wider schema", 0.1, "old", "new")
        self._migrate(
            "the new schema again, under load",
            self._wider,
            "old",
            "new",
            to=self._new.migrations[-1],
        )
        self._phase("old and new workers", 0.08, "old", "new")
        self._leave("old")
        self._begin("new workers finish what is left", "new")
        while any(each.is_up for each in self._producers):
            self._tick()
        self.phases[-1].ended = time.time()

    def _finish(self) -> float:
        """Let all come to rest; return up to when schedules had to fire."""
        self._nemesis.end()
        self.faults = self._nemesis.counts()
        deadline = time.monotonic() + QUIET_SECONDS
        while time.monotonic() < deadline:
            row = self._connection.execute(_NOT_ENDED).fetchone()
            if row is not None and not row[0]:
                break
            self._idle(0.1)
        self._idle(SETTLED_SECONDS)
        last = time.time() - 1.5
        self._leave("new")
        return last

    def _phase(self, about: str, share: float, *versions: str) -> None:
        self._begin(about, *versions)
        ends_at = time.monotonic() + share * self._seconds
        while time.monotonic() < ends_at:
            self._tick()
        self.phases[-1].ended = time.time()

    def _begin(self, about: str, *versions: str) -> None:
        self._report.say(f"- {about}")
        self.phases.append(Phase(about=about, versions=versions, began=time.time()))

    def _tick(self) -> None:
        self._supervisor.tick()
        self._nemesis.tick()
        time.sleep(0.01)

    def _idle(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            self._supervisor.tick()
            time.sleep(0.02)

    def _migrate(
        self, about: str, version: Version, *versions: str, to: str | None = None
    ) -> None:
        """Migrate; where a lock is not had within LOCK_SECONDS, that fails the run."""
        if versions:
            self._begin(f"a migration to {about}", *versions)
        began = time.monotonic()
        target = [] if to is None else ["relay", to]
        self._supervisor.run(
            "migrate",
            ["django", "migrate", "-v0", *target],
            environment={
                **_environment(version),
                "PGOPTIONS": f"-c lock_timeout={round(LOCK_SECONDS * 1000)}",
            },
        )
        self.migrations.append((about, time.monotonic() - began))
        if versions:
            self.phases[-1].ended = time.time()

    def _produce(self, version: Version, seconds: float) -> None:
        number = len(self._producers)
        extra = ["--also=newer"] if version is self._new else []
        self._producers.append(
            self._supervisor.start(
                f"producer-{version.name}",
                [
                    "tests.chaos.producer",
                    "--profile=smoke",
                    f"--number={number}",
                    f"--seed={self._report.seed + number}",
                    f"--jobs={self._jobs // 2}",
                    f"--seconds={seconds}",
                    f"--ledger={self._folder / f'ledger-{number}.txt'}",
                    *extra,
                ],
                restarts=False,
                environment=_environment(version),
            )
        )

    def _join(self, name: str) -> None:
        version = self._old if name == "old" else self._new
        fleet = []
        for processes in _FLEET:
            self._started += 1
            label = f"{name}{self._started}"
            command = ["django", "relay_worker", "--name", label, "-c", "4"]
            fleet.append(
                self._supervisor.start(
                    label,
                    [*command, "--processes", str(processes)],
                    children=processes,
                    environment=_environment(version),
                )
            )
        self._fleets[name] = fleet
        self._schedulers[name] = [
            self._supervisor.start(
                f"scheduler-{name}{self._started}",
                ["django", "relay_scheduler"],
                environment=_environment(version),
            )
        ]
        self._wait_until_up(fleet)
        self._workers += fleet

    def _leave(self, name: str) -> None:
        """Ask a version's processes to end, none of them in the middle of its start."""
        fleet = self._fleets[name]
        self._wait_until_up(fleet)
        self._workers[:] = [each for each in self._workers if each not in fleet]
        self._supervisor.stop([*fleet, *self._schedulers[name]], GRACE_SECONDS + 6)

    def _wait_until_up(self, fleet: Sequence[Owned]) -> None:
        deadline = time.monotonic() + UP_SECONDS
        while True:
            self._idle(0.1)
            self._supervisor.scan()
            alive = {row[0] for row in self._connection.execute(_ALIVE)}
            if all(
                owned.is_up
                and len(alive & {each.pid for each in owned.tree}) == owned.children
                for owned in fleet
            ):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"workers are not up: see the logs in {self._folder}"
                )

    def _write(self, scheduled: tuple[float, float]) -> None:
        write_lines(self._folder / "faults.jsonl", self._nemesis.faults)
        write_lines(self._folder / "processes.jsonl", self._supervisor.events)
        write_lines(
            self._folder / "run.jsonl",
            [
                {
                    "profile": DATABASE,
                    "seeds": [self._report.seed],
                    "scheduled": scheduled,
                    "lease_seconds": LEASE_SECONDS,
                    "grace_seconds": GRACE_SECONDS,
                }
            ],
        )

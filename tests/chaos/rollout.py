"""An older relay is replaced by a newer one, and comes back, under load and kills."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.chaos.campaign import REPOSITORY, SETTLED_SECONDS
from tests.chaos.cluster import Cluster
from tests.chaos.fleet import Fleet
from tests.chaos.histories import RECORD_TRANSITIONS
from tests.chaos.lockwatch import LockWatch, Obstacle
from tests.chaos.nemesis import Nemesis
from tests.chaos.profiles import Profile, plan
from tests.chaos.report import Report
from tests.chaos.supervisor import Owned
from tests.chaos.versions import WIDER_INDEX, Version

__all__ = ["LOCK_SECONDS", "Phase", "Rollout"]

# Nobody may wait for a lock of a migration, nor a migration hold one, for longer.
LOCK_SECONDS: Final = 1.0
# A job that no worker knew waits up to half a minute for its next turn after a while.
QUIET_SECONDS: Final = 150.0
DATABASE: Final = "deploy"

# The child processes of each worker, the same of both versions.
_SIZES: Final = (2, 2, 1)
_FAULTS: Final = {"child": 16, "parent": 6, "keeper": 6, "backend": 16}
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
        self._old, self._new, self._wider = versions
        cluster.create(DATABASE)
        self._fleet = Fleet(cluster, folder, DATABASE, seed=report.seed)
        self._workers: dict[str, list[Owned]] = {"old": [], "new": []}
        self._schedulers: dict[str, list[Owned]] = {"old": [], "new": []}
        # Whom the faults may strike.
        self._exposed: list[Owned] = []
        self.is_index_valid = False
        self.phases: list[Phase] = []
        self.faults: Counter[str] = Counter()
        self.obstacles: list[Obstacle] = []
        self.migrations: list[tuple[str, float]] = []
        self.gap = ""

    def go(self) -> None:
        fleet = self._fleet
        self._migrate("the old schema", self._old)
        fleet.session.execute(_KEEP, {"count": self._kept})
        fleet.session.execute("VACUUM ANALYZE relay_job")
        fleet.session.execute(RECORD_TRANSITIONS)
        try:
            with LockWatch(self._cluster.connect(DATABASE)) as watch:
                scheduled = self._roll()
        finally:
            fleet.supervisor.close()
        fleet.session.execute(_FORGET)
        fleet.write(faults=self._nemesis.faults, scheduled=scheduled)
        self.obstacles = watch.obstacles()
        self.gap = f"{watch.longest_gap_seconds:.2f} s, of {watch.samples}"

    def _roll(self) -> tuple[float, float]:
        profile = Profile(
            name=DATABASE,
            workers=_SIZES,
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
            self._fleet.supervisor,
            self._fleet.session,
            self._exposed,
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
        valid = self._fleet.ask(_INDEX_VALID, index=WIDER_INDEX)
        self.is_index_valid = valid == 1
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

    def _finish(self) -> float:
        """Let all come to rest; return up to when schedules had to fire."""
        self._begin("new workers finish what is left", "new")
        while not self._fleet.is_produced:
            self._tick()
        self._nemesis.end()
        self.faults = self._nemesis.counts()
        self._fleet.wait_until_quiet(QUIET_SECONDS)
        self._fleet.idle(SETTLED_SECONDS)
        last = time.time() - 1.5
        self.phases[-1].ended = time.time()
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
        self._fleet.supervisor.tick()
        self._nemesis.tick()
        time.sleep(0.01)

    def _migrate(
        self, about: str, version: Version, *versions: str, to: str | None = None
    ) -> None:
        """Migrate; where a lock is not had within LOCK_SECONDS, that fails the run."""
        if versions:
            self._begin(f"a migration to {about}", *versions)
        began = time.monotonic()
        self._fleet.migrate(
            *([] if to is None else ["relay", to]),
            environment={
                **_environment(version),
                "PGOPTIONS": f"-c lock_timeout={round(LOCK_SECONDS * 1000)}",
            },
        )
        self.migrations.append((about, time.monotonic() - began))
        if versions:
            self.phases[-1].ended = time.time()

    def _produce(self, version: Version, seconds: float) -> None:
        self._fleet.start_producer(
            jobs=self._jobs // 2,
            seconds=seconds,
            also="newer" if version is self._new else None,
            environment=_environment(version),
        )

    def _join(self, name: str) -> None:
        environment = _environment(self._old if name == "old" else self._new)
        workers = self._fleet.start_workers(name, _SIZES, environment=environment)
        scheduler = self._fleet.start_scheduler(name, environment=environment)
        self._workers[name] = workers
        self._schedulers[name] = [scheduler]
        self._fleet.wait_until_up(workers)
        self._exposed += workers

    def _leave(self, name: str) -> None:
        workers = self._workers[name]
        self._exposed[:] = [each for each in self._exposed if each not in workers]
        self._fleet.stop(workers, self._schedulers[name])

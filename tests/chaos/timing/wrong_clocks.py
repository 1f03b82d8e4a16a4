"""Real minutes at one second's resolution: processes whose clocks are wrong (F11)."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, LiteralString

import psycopg

from tests.chaos.campaign import REPOSITORY
from tests.chaos.cluster import Cluster
from tests.chaos.histories import RECORD_TRANSITIONS
from tests.chaos.supervisor import Owned, Supervisor
from tests.chaos.timing.skewed import LEASE_SECONDS

__all__ = ["WrongClocks"]

# By how many seconds each clock is wrong; None steps between the two every ten.
SKEWS: Final[tuple[int | None, ...]] = (3_600, -3_600, None)
STEPS: Final = (3_600, -3_600, 0)
STEP_SECONDS: Final = 10.0
LONG_SECONDS: Final = 2 * LEASE_SECONDS
_KILL_SECONDS: Final = 3.0
_STARTED_WITHIN_SECONDS: Final = 60.0
_QUIET_WITHIN_SECONDS: Final = 90.0
# Both clocks are the machine's, but a delay is rounded to a microsecond.
_ROUNDING: Final = 0.001

_UP = "SELECT count(*) FROM relay_worker WHERE state = 'running'"
_TICKING = "SELECT count(*) FROM relay_job WHERE task = 'chaos:tick'"
_TICKING_SINCE = """
SELECT count(*) FROM relay_job
WHERE task = 'chaos:tick' AND occurrence_at >= to_timestamp(%s)
"""
_OPEN = """
SELECT count(*) FROM relay_job
WHERE task = 'chaos:doze' AND state NOT IN ('completed', 'failed', 'cancelled')
"""
_JOBS = """
SELECT id::text, state, attempt, losses, crashes FROM relay_job
WHERE task = 'chaos:doze'
"""
_TICKS = """
SELECT extract(epoch FROM occurrence_at)::float8, extract(epoch FROM made.at)::float8
FROM relay_job JOIN chaos_transition AS made
    ON made.job = relay_job.id AND made.old IS NULL
WHERE task = 'chaos:tick' ORDER BY 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A line that a task wrote as it began."""

    mono: float
    at: float


class WrongClocks:
    """Four schedulers that are killed, three workers that are not, all but one skewed.

    Attributes:
        violations: what was wrong, a line each.
        jobs, ticks, kills: how many there were.
        skews: the smallest and largest error of a clock that a task saw, in seconds.
    """

    def __init__(
        self, cluster: Cluster, folder: Path, seconds: float, rng: random.Random
    ) -> None:
        self._cluster = cluster
        self._folder = folder
        self._seconds = seconds
        self._rng = rng
        self._database = folder.name.replace("-", "_")
        self._effects = folder / "effects.txt"
        self._ledger = folder / "ledger.jsonl"
        self._stepping = folder / "stepping.clock"
        self._supervisor = Supervisor(
            folder,
            {
                **cluster.environment(self._database),
                "DJANGO_SETTINGS_MODULE": "tests.chaos.timing.settings",
                "PYTHONPATH": str(REPOSITORY),
                "RELAY_CHAOS_CODE": str(REPOSITORY),
                "RELAY_CHAOS_EFFECTS": str(self._effects),
            },
        )
        self._stepped_at = self._struck_at = 0.0
        self._steps = 0
        self.violations: list[str] = []
        self.jobs = self.ticks = self.kills = 0
        self.skews = (0.0, 0.0)

    def go(self) -> None:
        """Let the minutes pass, and judge what came of them."""
        self._cluster.create(self._database)
        self._supervisor.run("migrate", ["django", "migrate", "-v0"])
        with self._cluster.connect(self._database) as connection:
            connection.execute(RECORD_TRANSITIONS)
            try:
                ticking = self._run(connection)
            finally:
                self._supervisor.close()
            self.violations += self._judge_jobs(connection)
            self.violations += self._judge_ticks(connection, *ticking)

    def _run(self, connection: psycopg.Connection[Any]) -> tuple[float, float]:
        schedulers = [
            self._start(f"scheduler{number}", ["django", "relay_scheduler"], skew)
            for number, skew in enumerate((*SKEWS, 0))
        ]
        for number, skew in enumerate(SKEWS):
            self._start(
                f"worker{number}",
                ["django", "relay_worker", "-c", "8", "--processes", "1"],
                skew,
            )
        self._until(connection, _UP, len(SKEWS))
        self._until(connection, _TICKING, 1)
        feeder = self._feed()
        first, ends_at = time.time(), time.monotonic() + self._seconds
        while time.monotonic() < ends_at:
            self._turn(schedulers)
        last = time.time()
        deadline = time.monotonic() + _QUIET_WITHIN_SECONDS
        while time.monotonic() < deadline and (
            feeder.is_up
            or _count(connection, _OPEN)
            or not _count(connection, _TICKING_SINCE, last)
        ):
            self._turn(())
        return first, last

    def _start(self, name: str, arguments: list[str], skew: int | None) -> Owned:
        file = self._stepping
        if skew is not None:
            file = self._folder / f"{name}.clock"
            file.write_text(f"{skew:+d}\n")
        else:
            self._step()
        return self._supervisor.start(
            name, ["tests.chaos.timing.skewed", str(file), *arguments]
        )

    def _feed(self) -> Owned:
        return self._supervisor.start(
            "feeder",
            [
                "tests.chaos.timing.feeder",
                f"--seconds={max(self._seconds - LONG_SECONDS, 1)}",
                f"--seed={self._rng.randrange(1_000_000)}",
                f"--long={LONG_SECONDS}",
                f"--ledger={self._ledger}",
            ],
            restarts=False,
        )

    def _step(self) -> None:
        self._stepped_at = time.monotonic()
        new = self._stepping.with_suffix(".new")
        new.write_text(f"{STEPS[self._steps % len(STEPS)]:+d}\n")
        new.replace(self._stepping)
        self._steps += 1

    def _turn(self, victims: Sequence[Owned]) -> None:
        """Do what is due by now; a short pause."""
        self._supervisor.tick()
        now = time.monotonic()
        if now - self._stepped_at > STEP_SECONDS:
            self._step()
        if victims and now - self._struck_at > _KILL_SECONDS:
            self._struck_at = now
            # Now and then all of them.
            struck = (
                victims if self._rng.random() < 0.15 else [self._rng.choice(victims)]
            )
            for victim in struck:
                if victim.is_up:
                    self._supervisor.signal(victim, signal.SIGKILL)
                    self.kills += 1
        time.sleep(0.02)

    def _until(
        self, connection: psycopg.Connection[Any], query: LiteralString, wanted: int
    ) -> None:
        deadline = time.monotonic() + _STARTED_WITHIN_SECONDS
        while _count(connection, query) < wanted:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the processes did not start: see {self._folder}")
            self._turn(())

    # --- judging -----------------------------------------------------------------

    def _judge_jobs(self, connection: psycopg.Connection[Any]) -> Iterator[str]:
        starts = self._starts()
        rows = {row[0]: row[1:] for row in connection.execute(_JOBS)}
        for line in self._ledger.read_text().splitlines():
            entry = json.loads(line)
            job, began = entry["job"], entry["mono"] + entry["run_in"]
            self.jobs += 1
            state, attempt, losses, crashes = rows.get(job, ("lost", 0, 0, 0))
            if state != "completed":
                yield f"J1: job {job} is {state}"
            if (attempt, losses, crashes) != (1, 0, 0):
                yield (
                    f"J8: job {job} was taken from a live worker: attempts {attempt}, "
                    f"losses {losses}, crashes {crashes}"
                )
            runs = starts.get(job, [])
            if len(runs) != 1:
                yield f"J10: job {job} began {len(runs)} times"
            for start in runs:
                if start.mono < began - _ROUNDING:
                    yield f"F11: job {job} began {began - start.mono:.3f} s early"
        lost = _count(
            connection, "SELECT count(*) FROM relay_worker WHERE state = 'lost'"
        )
        if lost:
            yield f"J8: {lost} live workers were given up"
        yield from self._judge_skews(starts)

    def _starts(self) -> dict[str, list[Start]]:
        found: dict[str, list[Start]] = {}
        for line in self._effects.read_text().splitlines():
            phase, job, _, _, _, mono, at = line.split()
            if phase == "start":
                found.setdefault(job, []).append(Start(mono=float(mono), at=float(at)))
        return found

    def _judge_skews(self, starts: dict[str, list[Start]]) -> Iterator[str]:
        """Refuse a run in which no clock was wrong."""
        ahead = time.time() - time.monotonic()
        skews = [
            start.at - start.mono - ahead for runs in starts.values() for start in runs
        ]
        self.skews = (min(skews, default=0.0), max(skews, default=0.0))
        if not (self.skews[0] < -3_500 and self.skews[1] > 3_500):
            yield f"F11: the clocks of the workers were not wrong: {self.skews}"

    def _judge_ticks(
        self, connection: psycopg.Connection[Any], first: float, last: float
    ) -> Iterator[str]:
        made = list(connection.execute(_TICKS))
        self.ticks = len(made)
        counts = Counter(round(due_at) for due_at, _ in made)
        for due_at, at in made:
            if at < due_at:
                yield f"S5: second {due_at:.0f} fired {due_at - at:.3f} s early"
        for second, count in sorted(counts.items()):
            if count > 1:
                yield f"S1: second {second} fired {count} times"
        for second in range(int(first) + 1, int(last)):
            if second not in counts:
                yield f"S2: second {second} never fired"


def _count(
    connection: psycopg.Connection[Any], query: LiteralString, *values: object
) -> int:
    row = connection.execute(query, values).fetchone()
    return 0 if row is None else int(row[0])

"""What the measurements share: a contender's database, its workers, its drain."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from bench import record
from bench.contenders import RAW, RELAY, Contender
from bench.processes import ask, running
from bench.server import Server
from relay.engine.wakeup import WINDOW_SECONDS

__all__ = ["Drained", "Plan", "Store", "let_wakeups_leave", "progress", "rate_of"]

CLIENT = ("-m", "bench.client")
LOOK_SECONDS = 0.005
POLL_SECONDS = 0.02
LONGEST_SECONDS = 900


def let_wakeups_leave() -> None:
    """Wait for what this process's enqueues have gathered, while the database is."""
    time.sleep(10 * WINDOW_SECONDS)


def progress(text: str) -> None:
    """Say on stderr what runs."""
    sys.stderr.write(text)
    sys.stderr.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was asked for on the command line.

    Attributes:
        folder: for records and logs.
        rounds: None where the measurement's own default holds.
        jobs: instead of the usual number of jobs, for the tests.
    """

    server: Server
    folder: Path
    rivals: Sequence[Contender] = ()
    rounds: int | None = None
    is_quick: bool = False
    jobs: int | None = None
    prune_minutes: float | None = None

    def round_count(self, usual: int = 3, quick: int = 1) -> int:
        return self.rounds or (quick if self.is_quick else usual)

    def size(self, usual: int, quick: int) -> int:
        """Return how many jobs a measurement has."""
        return self.jobs or (quick if self.is_quick else usual)

    def drain_size(self, contender: Contender) -> int:
        return self.size(contender.drain_jobs, contender.quick_jobs)

    def stores(self, *, has_bulk: bool = False) -> list[Store]:
        """Return relay, the ceiling and the rivals, in the order of a round."""
        everybody = (RELAY, RAW, *self.rivals)
        return [
            Store(self.server, one, self.folder)
            for one in everybody
            if one.has_bulk or not has_bulk
        ]

    def relay(self) -> Store:
        return Store(self.server, RELAY, self.folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """One drain.

    Attributes:
        rate: jobs a second, from the first start until no unfinished row was left.
        starts: when each handler started, in monotonic nanoseconds, in order.
    """

    rate: float
    starts: Sequence[int] = field(repr=False)

    def tenth(self, place: int) -> float:
        """Return the rate of starts in one tenth of the jobs, counted from 0."""
        size = len(self.starts) // 10
        return rate_of(self.starts[place * size : (place + 1) * size])


def rate_of(starts: Sequence[int]) -> float:
    """Return the starts a second, of ordered monotonic nanoseconds."""
    return (len(starts) - 1) / ((starts[-1] - starts[0]) / 1e9)


class Store:
    """A contender's own database, made anew for each measurement."""

    def __init__(self, server: Server, contender: Contender, folder: Path) -> None:
        self.server = server
        self.contender = contender
        self.name = contender.name
        self.record = folder / f"{self.name}.record"
        self.log = folder / f"{self.name}.log"
        self.environment = {
            "DATABASE_URL": server.url(self.name),
            "DJANGO_SETTINGS_MODULE": contender.settings or "",
            record.PATH_VARIABLE: str(self.record),
        }
        self._serial = 0
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def template(self) -> str:
        """The database with nothing but the schema."""
        return f"{RELAY.name if self.contender is RAW else self.name}_empty"

    def lay(self) -> None:
        """Make the database that fresh() copies, with the contender's schema."""
        self.server.create(self.template)
        self._client("set_up", DATABASE_URL=self.server.url(self.template))

    def fresh(self, template: str | None = None) -> None:
        """Make the database anew: with the schema alone, or as a copy of another."""
        self.server.create(self.name, template or self.template)
        self.clear_record()

    @contextmanager
    def templates(
        self, fills: Mapping[str, Callable[[], None]]
    ) -> Iterator[dict[str, str]]:
        """Fill a database by each function; give their names, for fresh()."""
        made = {title: f"{self.name}_{place}" for place, title in enumerate(fills)}
        try:
            for title, fill in fills.items():
                progress(f"make {title} … ")
                self.fresh()
                fill()
                self.settle()
                self.server.rename(self.name, made[title])
                progress("made\n")
            yield made
        finally:
            for name in made.values():
                self.server.drop(name)

    def clear_record(self) -> None:
        self.record.write_bytes(b"")

    def settle(self) -> None:
        """Vacuum and write back, as autovacuum and the checkpointer soon would."""
        with self.server.session(self.name) as session:
            session.execute("VACUUM ANALYZE")
            # A role that may do no more than make databases goes without.
            with suppress(psycopg.errors.InsufficientPrivilege):
                session.execute("CHECKPOINT")

    def value(self, statement: str, *values: Any) -> Any:
        return self.server.value(statement, *values, name=self.name)

    def enqueue(
        self, jobs: int, *, pause_seconds: float = 0.0, warms_up: bool = False
    ) -> tuple[float, dict[int, int]]:
        """Enqueue one by one; return jobs a second, and when each call returned.

        Args:
            warms_up: enqueue a few more before the clock starts.
        """
        first = self._serial
        self._serial += jobs
        answer = self._client(
            *("enqueue", str(first), str(jobs), "--pause", str(pause_seconds)),
            *(["--warm"] if warms_up else []),
        )
        numbers = range(first, first + jobs)
        returned = dict(zip(numbers, answer["returned"], strict=True))
        return jobs / answer["seconds"], returned

    def bulk(self, jobs: int, *, variant: str = "") -> float:
        """Enqueue by calls of 1,000; return jobs a second."""
        first = self._serial
        self._serial += jobs
        if not self.contender.has_bulk:
            return self.enqueue(jobs)[0]
        answer = self._client("bulk", str(first), str(jobs), "--variant", variant)
        return float(jobs / answer["seconds"])

    def _client(self, *arguments: str, **environment: str) -> Any:
        return ask(
            [*CLIENT, self.name, *arguments], {**self.environment, **environment}
        )

    @contextmanager
    def workers(
        self,
        count: int = 1,
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Iterator[list[int]]:
        """Run workers meanwhile; give their process ids."""
        command = [
            *(self.contender.worker or (*CLIENT, self.name, "work")),
            *arguments,
        ]
        variables = {**self.environment, **(environment or {})}
        with running([command] * count, variables, self.log) as processes:
            self._processes = processes
            yield [process.pid for process in processes]

    def started(self) -> int:
        """Return how many handlers have started."""
        return self.record.stat().st_size // record.SIZE_BYTES

    def wait_for(self, jobs: int) -> None:
        """Wait until so many handlers have started.

        Raises:
            RuntimeError: a worker ended.
            TimeoutError: they did not within a quarter of an hour.
        """
        self._wait(lambda: self.started() >= jobs, LOOK_SECONDS, f"start {jobs} jobs")

    def wait_until_empty(self) -> None:
        """Wait until no unfinished row is left."""
        with self.server.session(self.name) as session:
            # There are few such rows, whatever the statistics say.
            session.execute("SET enable_seqscan = off")
            question = self.contender.unfinished.encode()

            def is_empty() -> bool:
                row = session.execute(question).fetchone()
                return row is not None and not row[0]

            self._wait(is_empty, POLL_SECONDS, "finish")

    def _wait(self, is_done: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + LONGEST_SECONDS
        while not is_done():
            if any(process.poll() is not None for process in self._processes):
                raise RuntimeError(
                    f"a worker of {self.name} ended: {self.log.read_text()[-2_000:]}"
                )
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} did not {what}: see {self.log}")
            time.sleep(seconds)

    def drain(
        self, jobs: int, workers: int = 1, *, arguments: Sequence[str] = ()
    ) -> Drained:
        """Start workers on the jobs that are there, and wait until all have ended."""
        self.clear_record()
        with self.workers(workers, arguments=arguments):
            self.wait_for(jobs)
            self.wait_until_empty()
            ended_at = time.monotonic_ns()
        entries = record.read(self.record)
        starts = sorted(at for _, at in entries)
        if len({number for number, _ in entries}) != len(entries):
            progress(f"{self.name} ran a job twice\n")
        seconds = (ended_at - starts[0]) / 1e9
        return Drained(rate=len(starts) / seconds, starts=starts)

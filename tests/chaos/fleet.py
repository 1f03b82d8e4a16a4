"""Workers, schedulers and producers of a campaign, of any version, on one database."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.chaos.campaign import GRACE_SECONDS, REPOSITORY
from tests.chaos.cluster import Cluster
from tests.chaos.histories import Fault, dump, write_lines
from tests.chaos.logs import complaints_of
from tests.chaos.profiles import LEASE_SECONDS
from tests.chaos.supervisor import Owned, Supervisor

__all__ = ["Fleet"]

UP_SECONDS: Final = 60.0

_ALIVE: Final = "SELECT pid FROM relay_worker WHERE state = 'running'"
_NOT_ENDED: Final = """
SELECT count(*) FROM relay_job
WHERE state NOT IN ('completed', 'failed', 'cancelled')
"""


class Fleet:
    """Owns the processes of a run, and writes down what it was.

    Args:
        environment: what its processes have besides the run's own.
    """

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        database: str,
        *,
        seed: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._cluster = cluster
        self._folder = folder
        self._database = database
        self._seed = seed
        self._session: psycopg.Connection[Any] | None = None
        self._log_bytes = cluster.log.stat().st_size
        self._started = 0
        self.producers: list[Owned] = []
        self.supervisor = Supervisor(
            folder,
            {
                **cluster.environment(database),
                "DJANGO_SETTINGS_MODULE": "tests.chaos.settings",
                "PYTHONPATH": str(REPOSITORY),
                "RELAY_CHAOS_CODE": str(REPOSITORY),
                "RELAY_CHAOS_EFFECTS": str(folder / "effects-?.txt"),
                **(environment or {}),
            },
        )

    @property
    def session(self) -> psycopg.Connection[Any]:
        """The harness's own session, anew where the server has ended it."""
        if self._session is None or self._session.closed:
            self._session = self._cluster.connect(self._database)
        return self._session

    def ask(self, query: str, **values: Any) -> Any:
        """Return the first column of the first row."""
        row = self.session.execute(query.encode(), values or None).fetchone()
        return None if row is None else row[0]

    def migrate(
        self, *target: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.supervisor.run(
            "migrate", ["django", "migrate", "-v0", *target], environment=environment
        )

    def start_workers(
        self,
        name: str,
        sizes: Sequence[int],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> list[Owned]:
        """Start a worker for each number of children; names begin with `name`."""
        fleet = []
        for processes in sizes:
            self._started += 1
            label = f"{name}{self._started}"
            command = ["django", "relay_worker", "--name", label, "-c", "4"]
            fleet.append(
                self.supervisor.start(
                    label,
                    [*command, "--processes", str(processes)],
                    children=processes,
                    environment=environment,
                )
            )
        return fleet

    def start_scheduler(
        self, name: str, *, environment: Mapping[str, str] | None = None
    ) -> Owned:
        self._started += 1
        return self.supervisor.start(
            f"scheduler-{name}{self._started}",
            ["django", "relay_scheduler"],
            environment=environment,
        )

    def start_producer(
        self,
        *,
        jobs: int,
        seconds: float,
        also: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Owned:
        """Start a producer that enqueues so many jobs within about so many seconds."""
        number = len(self.producers)
        producer = self.supervisor.start(
            f"producer{number}",
            [
                "tests.chaos.producer",
                "--profile=smoke",
                f"--number={number}",
                f"--seed={self._seed + number}",
                f"--jobs={jobs}",
                f"--seconds={seconds}",
                f"--ledger={self._folder / f'ledger-{number}.txt'}",
                *([] if also is None else [f"--also={also}"]),
            ],
            restarts=False,
            environment=environment,
        )
        self.producers.append(producer)
        return producer

    @property
    def is_produced(self) -> bool:
        """Whether all producers have ended."""
        return not any(each.is_up for each in self.producers)

    def idle(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            self.supervisor.tick()
            time.sleep(0.02)

    def wait_until_up(self, workers: Sequence[Owned]) -> None:
        """Wait until each has all its children, and those may claim.

        Raises:
            RuntimeError: they have not within a minute.
        """
        deadline = time.monotonic() + UP_SECONDS
        while True:
            self.idle(0.1)
            self.supervisor.scan()
            alive = {row[0] for row in self.session.execute(_ALIVE)}
            if all(
                owned.is_up
                and len(alive & {each.pid for each in owned.tree}) == owned.children
                for owned in workers
            ):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"workers are not up: see the logs in {self._folder}"
                )

    def stop(self, workers: Sequence[Owned], schedulers: Sequence[Owned] = ()) -> None:
        """Ask processes to end, none of them in the middle of its start."""
        self.wait_until_up(workers)
        self.supervisor.stop([*workers, *schedulers], GRACE_SECONDS + 6)

    def wait_until_quiet(self, seconds: float) -> bool:
        """Wait until every job has ended; tell whether all have."""
        deadline = time.monotonic() + seconds
        while self.ask(_NOT_ENDED):
            if time.monotonic() > deadline:
                return False
            self.idle(0.1)
        return True

    def write(
        self,
        *,
        faults: Sequence[Fault] = (),
        scheduled: tuple[float, float] | None = None,
    ) -> None:
        """Write down all but what the processes have written themselves."""
        dump(self.session, self._folder)
        self.session.close()
        complaints = complaints_of(self._folder, self._cluster.log, self._log_bytes)
        write_lines(self._folder / "complaints.jsonl", complaints)
        write_lines(self._folder / "faults.jsonl", faults)
        write_lines(self._folder / "processes.jsonl", self.supervisor.events)
        run = {
            "seeds": [self._seed],
            "scheduled": scheduled,
            "lease_seconds": LEASE_SECONDS,
            "grace_seconds": GRACE_SECONDS,
        }
        write_lines(self._folder / "run.jsonl", [run])

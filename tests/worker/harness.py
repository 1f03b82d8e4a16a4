"""Real workers in processes of their own, and the database they work on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from psycopg.rows import TupleRow

from tests.chaos import proc
from tests.engine import rows
from tests.standstill import Standstill
from tests.waiting import WAIT_SECONDS, until
from tests.worker.effects import Effect, read

__all__ = ["LONG_LEASE", "SHORT_LEASE", "Database", "Worker", "Workers", "until"]

T = TypeVar("T")
ROOT = Path(__file__).parent.parent.parent
# In seconds. A lease that no busy machine lets run out by accident; and one that a
# test can wait for.
LONG_LEASE = 30
SHORT_LEASE = 4


class Database:
    """The database under test, over sessions that no fault is meant for."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self._folder = folder
        self._session: psycopg.Connection[TupleRow] | None = None

    @property
    def session(self) -> psycopg.Connection[TupleRow]:
        if self._session is None or self._session.closed:
            self._session = psycopg.connect(
                self.dsn, autocommit=True, application_name="tests"
            )
        return self._session

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def ask(self, query: str, *values: Any) -> Any:
        """Return the first column of the first row."""
        row = self.session.execute(query.encode(), values or None).fetchone()
        return None if row is None else row[0]

    def enqueue(
        self, task: str, *args: Any, count: int = 1, wake: bool = True, **columns: Any
    ) -> list[UUID]:
        """Insert jobs of one of these tests' tasks, and wake the workers."""
        made = rows.add_jobs(
            self.session,
            count,
            args=json.dumps({"args": args, "kwargs": {}}),
            task=task if "." in task else f"tests.worker.tasks.{task}",
            **{"max_retries": 25, **columns},
        )
        if wake:
            queue = columns.get("queue", "default")
            place = self.ask("SELECT ready_seq FROM relay_job WHERE id = %s", made[0])
            self.session.execute(
                "SELECT pg_notify('relay_wakeup', %s)",
                (f"{queue} {columns.get('priority', 0)} {place}",),
            )
        return made

    def enqueue_one(self, task: str, *args: Any, **options: Any) -> UUID:
        return self.enqueue(task, *args, **options)[0]

    def job(self, job_id: UUID) -> dict[str, Any]:
        return rows.job_row(self.session, job_id)

    def states(self) -> dict[str, int]:
        return rows.states(self.session)

    def wait_for(
        self, job_id: UUID, *states: str, seconds: float = WAIT_SECONDS
    ) -> None:
        wanted = states or ("completed",)
        until(
            lambda: self.job(job_id)["state"] in wanted,
            seconds=seconds,
            what=f"job in {wanted}",
        )

    def wait_for_all(self, count: int, *, seconds: float = WAIT_SECONDS) -> None:
        until(
            lambda: self.states().get("completed", 0) >= count,
            seconds=seconds,
            what=f"{count} jobs completed",
        )

    def assert_nothing_charged(self) -> None:
        """No job was charged for what was not its fault."""
        assert (
            self.session.execute(
                "SELECT id, task, state, failures, crashes, losses, error_message "
                "FROM relay_job WHERE failures + crashes > 0 OR state = 'failed'"
            ).fetchall()
            == []
        )

    def assert_nothing_started_twice(self) -> None:
        """No job did; one handed back before its start has two attempts all the same.

        A child does so with what waits behind a job that takes long, be it for the
        machine.
        """
        starts = Counter(each.job for each in self.effects() if each.phase == "start")
        assert [job for job, count in starts.items() if count > 1] == []

    def effects(self) -> list[Effect]:
        return read(self.effects_file)

    def effects_of(self, job_id: UUID, phase: str | None = None) -> list[Effect]:
        return [
            effect
            for effect in self.effects()
            if effect.job == str(job_id) and phase in (None, effect.phase)
        ]

    def wait_for_start(
        self, job_id: UUID, *, count: int = 1, seconds: float = WAIT_SECONDS
    ) -> Effect:
        """Wait for the job's count-th start; return it."""
        until(
            lambda: len(self.effects_of(job_id, "start")) >= count,
            seconds=seconds,
            what=f"start {count} of {job_id}",
        )
        return self.effects_of(job_id, "start")[count - 1]

    @property
    def effects_file(self) -> Path:
        return self._folder / "effects.jsonl"


@dataclass(slots=True)
class Worker:
    """One `relay_worker` with all its processes."""

    process: subprocess.Popen[bytes]
    name: str
    log: Path
    database: Database

    @property
    def pid(self) -> int:
        return self.process.pid

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def child_pids(self) -> list[int]:
        """Return the children that have leases now."""
        found = self.database.session.execute(
            "SELECT pid FROM relay_worker WHERE name LIKE %s "
            "AND state IN ('running', 'quiet', 'draining') ORDER BY name",
            (f"{self.name}-%",),
        ).fetchall()
        below = {each.pid for each in proc.children_of(self.pid, proc.scan())}
        return [pid for (pid,) in found if pid in below]

    def tree(self) -> list[proc.Process]:
        return proc.descendants_of(self.pid, proc.scan())

    def keeper_pid(self) -> int:
        found: list[int] = []

        def is_one() -> bool:
            children = set(self.child_pids())
            found[:] = [
                each.pid
                for each in proc.children_of(self.pid, proc.scan())
                if each.pid not in children
            ]
            return len(found) == 1

        until(is_one, what="one keeper")
        return found[0]

    def wait_until_ready(self, processes: int = 1) -> None:
        until(
            lambda: self.process.poll() is None and len(self.child_pids()) == processes,
            what=f"{self.name} has {processes} children\n{self.text()}",
        )

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float = WAIT_SECONDS) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} goes on\n{self.text()}") from None

    def stop(self, seconds: float = WAIT_SECONDS) -> int:
        self.send(signal.SIGTERM)
        return self.wait(seconds)

    def end(self) -> None:
        """Kill all of it, whatever state it is in."""
        tree = self.tree()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for each in tree:
            if proc.is_same(each):
                with suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)
        until(lambda: not any(proc.is_same(each) for each in tree))


class Workers:
    """Starts workers on a database, and ends them all."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self._folder = folder
        self.all: list[Worker] = []

    @staticmethod
    def base_environment() -> dict[str, str]:
        ours = {"RELAY_TEST_DATABASE"}
        kept = {key: value for key, value in os.environ.items() if key not in ours}
        return {**kept, "DJANGO_SETTINGS_MODULE": "tests.worker.settings"}

    def environment(
        self, relay: Mapping[str, Any], more: Mapping[str, str]
    ) -> dict[str, str]:
        return {
            **self.base_environment(),
            "DATABASE_URL": self.database.dsn,
            "WORKER_TESTS_RELAY": json.dumps(
                {
                    "LEASE": LONG_LEASE,
                    "POLL_INTERVAL": 0.2,
                    "BACKOFF": (0.2, 1),
                    **relay,
                }
            ),
            "WORKER_TESTS_EFFECTS": str(self.database.effects_file),
            **more,
        }

    def start(
        self,
        *arguments: str,
        processes: int = 1,
        is_awaited: bool = True,
        prefix: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        **relay: Any,
    ) -> Worker:
        """Start a worker; keywords in capitals are of settings.RELAY, in seconds."""
        name = f"worker{len(self.all) + 1}"
        log = self._folder / f"{name}.log"
        command = [
            *prefix,
            sys.executable,
            "-m",
            "testproject",
            "relay_worker",
            "--name",
            name,
            "--processes",
            str(processes),
            *arguments,
        ]
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self.environment(relay, environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        worker = Worker(process, name, log, self.database)
        self.all.append(worker)
        if is_awaited:
            worker.wait_until_ready(processes)
        return worker

    def undisturbed(self, act: Callable[[], T]) -> T:
        """Do what takes some leases, in which no child may be replaced.

        Only on a machine that stood still for a good part of a short lease, by this
        process's own clock, is it done again: a worker ends its children then, as it
        is to, and what they ran is run again.
        """
        incarnations = "SELECT count(*) FROM relay_worker"
        for _ in range(3):
            before = self.database.ask(incarnations)
            with Standstill() as standstill:
                found = act()
                is_same = self.database.ask(incarnations) == before
            if is_same:
                return found
            if standstill.longest_seconds < SHORT_LEASE / 4:
                break
        logs = "\n".join(worker.text() for worker in self.all)
        stood = f"the machine stood still for {standstill.longest_seconds:.1f} s"
        raise AssertionError(f"children were replaced, and {stood}\n{logs}")

    def end(self) -> None:
        for worker in self.all:
            worker.end()
            sys.stderr.write(f"--- {worker.name}\n{worker.text()}")  # if a test fails

"""The two sessions of the state machine, and how their rows are read."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from django.db import connection as django_connection

from relay.engine.connection import EngineConnection, connect
from relay.exceptions import DuplicateJob, StateConflict
from tests.engine.machine.records import Change

__all__ = ["Blocked", "Open", "Seen", "Side", "empty", "let_time_pass", "look"]
__all__ += ["put_in_order"]

# Acts of the other session before an open transaction ends.
ACTS_BESIDE = 3
# A statement may have to wait for the other session for as long as a slow machine
# takes over a few acts: the engine's own limits are for another world.
PATIENCE = "SET lock_timeout = 0; SET statement_timeout = '60s'"


class Side:
    """One session: the connections of a worker, of a duty and of a caller."""

    def __init__(self) -> None:
        self.hot = connect("default", role="hot", name="tests")
        self.duty = connect("default", role="duty", name="tests")
        self.thread = ThreadPoolExecutor(1)  # Django's connections belong to threads
        for connection in (self.hot, self.duty):
            connection.execute(PATIENCE)
        self._django_pid = self.thread.submit(self._pid_of_django).result()

    def close(self) -> None:
        self.hot.close()
        self.duty.close()
        self.thread.submit(self._close_django).result()
        self.thread.shutdown()

    def pid(self, role: str) -> int:
        """Return the server process behind the connection of this role."""
        if role == "django":
            return self._django_pid
        return self._engine(role).info.backend_pid

    def begin(self, role: str) -> None:
        if role == "django":
            self.thread.submit(self._begin_django).result()
        else:
            self._engine(role).execute("BEGIN")

    def end(self, role: str, *, commits: bool) -> None:
        if role == "django":
            self.thread.submit(self._end_django, commits).result()
        else:
            self._engine(role).execute("COMMIT" if commits else "ROLLBACK")

    def run(self, role: str, act: Callable[..., Any]) -> Future[Any]:
        if role == "django":
            return self.thread.submit(_caught, act)
        return self.thread.submit(act, self._engine(role))

    def _engine(self, role: str) -> EngineConnection:
        return self.hot if role == "hot" else self.duty

    # The proxy finds the connection of the thread that asks it: ask in there.
    @staticmethod
    def _close_django() -> None:
        django_connection.close()

    @staticmethod
    def _pid_of_django() -> int:
        with django_connection.cursor() as cursor:
            cursor.execute(PATIENCE)
            cursor.execute("SELECT pg_backend_pid()")
            return int(cursor.fetchone()[0])

    @staticmethod
    def _begin_django() -> None:
        django_connection.set_autocommit(False)

    @staticmethod
    def _end_django(commits: bool) -> None:
        (django_connection.commit if commits else django_connection.rollback)()
        django_connection.set_autocommit(True)


def _caught(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except (DuplicateJob, StateConflict) as error:
        return error


@dataclass(slots=True)
class Open:
    """A transaction that was left open, and what it has done."""

    side: Side
    role: str
    commits: bool
    change: Change
    acts_left: int = ACTS_BESIDE


@dataclass(slots=True)
class Blocked:
    """A call that waits for the open transaction."""

    answer: Future[Any]
    judge: Callable[[Any], Change]


@dataclass(frozen=True, slots=True)
class Seen:
    """One row as it was committed; times in minutes from now."""

    state: str
    queue: str
    priority: int
    attempt: int
    failures: int
    crashes: int
    losses: int
    worker: UUID | None
    key: str | None
    due: int | None
    expires: int | None
    history: tuple[tuple[str, int], ...]
    attempts: tuple[tuple[int, str], ...]


_LOOK = """
SELECT job.id, state, queue, priority, attempt, failures, crashes, losses, worker_id,
       encode(unique_key, 'hex'),
       CASE WHEN state IN ('scheduled', 'retrying')
       THEN round(extract(epoch FROM run_at - now()) / 60)::int END,
       CASE WHEN expires_at < '9000-01-01'
       THEN round(extract(epoch FROM expires_at - now()) / 60)::int
       WHEN expires_at IS NOT NULL THEN 1000000000 END,
       ARRAY(SELECT CASE WHEN event = 'retry' AND detail IS NULL THEN 'manual'
                    ELSE event END || ' ' || attempt
             FROM relay_history WHERE job_id = job.id ORDER BY id),
       ARRAY(SELECT outcome || ' ' || attempt FROM relay_attempt
             WHERE job_id = job.id ORDER BY id)
FROM relay_job AS job ORDER BY ready_seq, id
"""
_PASSES = """
UPDATE relay_job SET run_at = run_at - %(by)s::interval,
    deadline_at = deadline_at - %(by)s::interval,
    expires_at = expires_at - %(by)s::interval,
    unique_until = CASE WHEN unique_until < '9000-01-01'
                   THEN unique_until - %(by)s::interval ELSE unique_until END;
UPDATE relay_worker SET lease_expires_at = lease_expires_at - %(by)s::interval;
UPDATE relay_queue SET paused_until = paused_until - %(by)s::interval;
UPDATE relay_history SET at = at - %(by)s::interval;
"""
_PUT_IN_ORDER = """
UPDATE relay_job AS job SET ready_seq = ordered.ready_seq
FROM (
    SELECT one.id, place.ready_seq
    FROM unnest(%(ids)s::uuid[]) WITH ORDINALITY AS one(id, rank)
    JOIN (
        SELECT ready_seq, row_number() OVER (ORDER BY ready_seq) AS rank
        FROM relay_job WHERE id = ANY(%(ids)s::uuid[])
    ) AS place USING (rank)
) AS ordered
WHERE job.id = ordered.id
"""
_TABLES = ("job", "attempt", "history", "worker", "queue")

Session = psycopg.Connection[Any]


def empty(session: Session) -> None:
    for table in _TABLES:
        session.execute(f"DELETE FROM relay_{table}")


def look(session: Session) -> dict[UUID, Seen]:
    """Return the committed rows, in the order of ready_seq."""
    found = {}
    for job_id, *columns, history, attempts in session.execute(_LOOK):
        values: Any = (
            *columns,
            tuple(_pair(text) for text in history),
            tuple(_pair(text)[::-1] for text in attempts),
        )
        found[job_id] = Seen(*values)
    return found


def let_time_pass(session: Session, minutes: int) -> None:
    with session.transaction():
        for statement in _PASSES.split(";")[:-1]:
            session.execute(statement.encode(), {"by": f"{minutes} minutes"})


def put_in_order(session: Session, ids: list[UUID]) -> None:
    """Give rows that one statement made ready the places that they share, as listed.

    PostgreSQL gives them in the order of its plan, which no promise binds; a run is
    to come out the same whenever it is repeated.
    """
    session.execute(_PUT_IN_ORDER, {"ids": ids})


def _pair(text: str) -> tuple[str, int]:
    name, _, number = text.partition(" ")
    return name, int(number)

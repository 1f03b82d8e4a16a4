"""Rows for the tests of the engine's statements, made and read in plain SQL."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
from django.db import connection as django_connection

from relay.engine import lease
from relay.engine.claim import ClaimedJob, Marks, read_claimed, send_claim
from relay.engine.connection import EngineConnection
from relay.ids import uuid7
from tests.waiting import WAIT_SECONDS, until

LEASE = timedelta(seconds=30)
NO_ARGUMENTS = '{"args": [], "kwargs": {}}'


def add_jobs(
    session: psycopg.Connection[Any],
    count: int = 1,
    *,
    args: str = NO_ARGUMENTS,
    **columns: Any,
) -> list[UUID]:
    """Insert jobs that are alike; return their ids in the order of ready_seq."""
    columns = {"task": "tests.noop", **columns}
    values = ", ".join(f"%({name})s" for name in columns)
    rows = session.execute(
        f"INSERT INTO relay_job (id, args, {', '.join(columns)}) "
        f"SELECT gen_random_uuid(), %(args)s::jsonb, {values} "
        "FROM generate_series(1, %(count)s) RETURNING ready_seq, id",
        {**columns, "args": args, "count": count},
    ).fetchall()
    return [job_id for _, job_id in sorted(rows)]


def add_worker(
    session: EngineConnection,
    *,
    lease_for: timedelta = LEASE,
    state: str = "running",
    worker_id: UUID | None = None,
) -> UUID:
    """Register a worker whose lease runs for so long, or ended so long ago."""
    worker_id = worker_id or uuid7()
    row = lease.WorkerRow(
        id=worker_id,
        name="tests-1",
        supervisor=uuid7(),
        host="tests",
        pid=1,
        queues=["default"],
        concurrency=1,
        version="0",
    )
    lease.register(session, row, lease=lease_for)
    session.execute(
        "UPDATE relay_worker SET state = %s WHERE id = %s", (state, worker_id)
    )
    return worker_id


def hold(
    session: psycopg.Connection[Any], worker_id: UUID, count: int = 1, **columns: Any
) -> list[UUID]:
    """Insert jobs that run under the worker, in their first attempt by default."""
    return add_jobs(
        session,
        count,
        **{"state": "running", "worker_id": worker_id, "attempt": 1, **columns},
    )


def claim(
    session: EngineConnection,
    worker_id: UUID,
    *,
    limit: int = 10,
    queues: Sequence[str] = ("default",),
    marks: Marks | None = None,
) -> list[ClaimedJob]:
    marks = marks or Marks()
    cursor = send_claim(session, marks.spans(queues), limit=limit, worker_id=worker_id)
    jobs = read_claimed(cursor, queues)
    marks.note(jobs, limit=limit)
    return jobs


def job_row(session: psycopg.Connection[Any], job_id: UUID) -> dict[str, Any]:
    """Return the whole row; times as text."""
    row = session.execute(
        "SELECT to_jsonb(job)::text FROM relay_job AS job WHERE id = %s", (job_id,)
    ).fetchone()
    assert row is not None, f"job {job_id} is gone"
    document: dict[str, Any] = json.loads(row[0])
    return document


def states(session: psycopg.Connection[Any]) -> dict[str, int]:
    """Return how many jobs are in each state."""
    return dict(
        session.execute("SELECT state, count(*) FROM relay_job GROUP BY 1").fetchall()
    )


def everything(session: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """Return all jobs, attempts and history: equal before and after no change."""
    return [
        row
        for table in ("relay_job", "relay_attempt", "relay_history")
        for row in session.execute(
            f"SELECT to_jsonb(row)::text FROM {table} AS row ORDER BY id"
        ).fetchall()
    ]


def attempts(session: psycopg.Connection[Any], job_id: UUID) -> list[tuple[Any, ...]]:
    """Return (attempt, outcome, error class) of the job's attempts, oldest first."""
    return session.execute(
        "SELECT attempt, outcome, error_class FROM relay_attempt "
        "WHERE job_id = %s ORDER BY id",
        (job_id,),
    ).fetchall()


def events(session: psycopg.Connection[Any], job_id: UUID) -> list[str]:
    """Return the events of the job's history, oldest first."""
    return [
        row[0]
        for row in session.execute(
            "SELECT event FROM relay_history WHERE job_id = %s ORDER BY id", (job_id,)
        ).fetchall()
    ]


@contextmanager
def other_session(*, autocommit: bool = True) -> Iterator[psycopg.Connection[Any]]:
    """Open a plain connection to the test's database; rolled back at the end."""
    parameters = django_connection.get_connection_params()
    for key in ("context", "cursor_factory", "prepare_threshold"):
        parameters.pop(key, None)
    session = psycopg.connect(**parameters, autocommit=autocommit)
    try:
        yield session
    finally:
        session.close()


def wait_until(
    session: psycopg.Connection[Any], condition: str, *, seconds: float = WAIT_SECONDS
) -> None:
    """Return once the SQL condition is true."""

    def is_true() -> bool:
        row = session.execute(f"SELECT {condition}").fetchone()
        return row is not None and bool(row[0])

    until(is_true, seconds=seconds, what=condition)


def wait_until_blocked(session: psycopg.Connection[Any], count: int = 1) -> None:
    """Return once count sessions of this database wait for a lock."""
    wait_until(
        session,
        f"(SELECT count(*) >= {count} FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock')",
    )

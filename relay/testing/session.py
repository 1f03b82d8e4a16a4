"""The engine's statements over Django's own connection, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import DatabaseError, connections, transaction

from relay.conf import get_settings
from relay.engine import lease
from relay.engine.connection import EngineConnection
from relay.ids import uuid7

__all__ = [
    "LEASE",
    "JobLike",
    "alias_of",
    "engine_session",
    "id_of",
    "register",
    "stop",
    "worker",
]

JobLike = Any
"""A JobHandle, a Job row, or the id of one."""

# Ends with its process or its transaction long before.
LEASE: Final = timedelta(hours=1)


def alias_of(using: str | None) -> str:
    return using or get_settings().database


def id_of(job: JobLike) -> UUID:
    if isinstance(job, UUID):
        return job
    found = getattr(job, "id", None)
    if isinstance(found, str):  # a result of django.tasks
        found = UUID(found)
    if not isinstance(found, UUID):
        raise TypeError(f"{job!r} is no job: give what enqueue() returned, or its id")
    return found


@contextmanager
def engine_session(alias: str) -> Iterator[EngineConnection]:
    """Lend Django's connection to the engine: what is written joins its transaction.

    Both objects speak over one session of the server; only one of them at a time.

    Raises:
        django.db.DatabaseError: as Django would raise it.

    Transaction: the caller's, where an error takes back only what was done here; in
    autocommit each statement's own.
    """
    django = connections[alias]
    django.ensure_connection()
    with ExitStack() as stack:
        if django.in_atomic_block:
            # Besides, it has begun: the engine's object must not think it begins it.
            stack.enter_context(transaction.atomic(using=alias))
        lent: Any = django.connection
        pgconn = lent.pgconn
        handlers = pgconn.notice_handler, pgconn.notify_handler
        session = EngineConnection(pgconn)
        session.prepare_threshold = None
        session.prepares = False
        try:
            if lent.autocommit:
                session.autocommit = True
            with django.wrap_database_errors:
                yield session
        finally:
            pgconn.notice_handler, pgconn.notify_handler = handlers
            del session.pgconn  # an object without it closes, and warns of, nothing


@contextmanager
def worker(alias: str, *queues: str) -> Iterator[UUID]:
    """Register a worker for the time of the block; return its id."""
    worker_id = register(alias, *queues)
    try:
        yield worker_id
    except BaseException:
        with suppress(DatabaseError):  # a broken transaction takes the row with it
            stop(alias, worker_id)
        raise
    stop(alias, worker_id)


def register(
    alias: str,
    *queues: str,
    lasts: timedelta = LEASE,
    name: str = "relay.testing",
    concurrency: int = 1,
) -> UUID:
    row = lease.WorkerRow(
        id=uuid7(),
        name=name,
        supervisor=uuid7(),
        host="relay.testing",
        pid=0,
        kind="embedded",
        queues=queues,
        concurrency=concurrency,
        version="testing",
    )
    with engine_session(alias) as session:
        lease.register(session, row, lease=lasts)
    return row.id


def stop(alias: str, worker_id: UUID) -> None:
    with engine_session(alias) as session:
        lease.set_state(session, [worker_id], "stopped")

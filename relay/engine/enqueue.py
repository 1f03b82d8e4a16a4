"""Insert jobs: one by INSERT, many by COPY; those with unique keys: unique_keys.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, starmap
from operator import itemgetter
from typing import Any, Final
from uuid import UUID

import psycopg
from django.db import connections, transaction
from django.db.backends import utils
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql.base import (
    Cursor,
    DatabaseWrapper,
    ServerBindingCursor,
)
from django.db.backends.utils import CursorWrapper
from psycopg.pq import TransactionStatus

from relay import counts
from relay.conf import get_settings
from relay.engine import enqueue_log, wakeup
from relay.engine.connection import ON_DEMAND
from relay.engine.enqueue_log import ENQUEUED
from relay.engine.new_job import (
    COPIED_COLUMNS,
    COPY_ROWS,
    KeyHolder,
    NewJob,
    copy_line,
)
from relay.engine.unique_keys import insert_unique

__all__ = [
    "INSERT",
    "INSERT_NEW",
    "INSERT_READY",
    "ReadyRow",
    "insert",
    "insert_many",
    "insert_new",
    "insert_ready",
    "insert_with",
]


# No target for the conflict: it covers every unique index of the table, and a repeated
# id is the repeat of an enqueue whose commit was ambiguous. The other columns' defaults
# say ready now: state queued, run_at and created_at now, the next ready_seq.
INSERT_READY: Final = """
INSERT INTO relay_job (id, task, queue, priority, max_retries, args)
VALUES (%(id)s, %(task)s, %(queue)s, %(priority)s, %(max_retries)s, %(args)s::jsonb)
ON CONFLICT DO NOTHING
RETURNING ready_seq, priority
"""

# For an id made for this enqueue, which no other row can have: nothing is looked up
# before. Its parameters have no names, which psycopg would look up each time.
INSERT_NEW: Final = """
INSERT INTO relay_job (id, task, queue, priority, max_retries, args)
VALUES (%s, %s, %s, %s, %s, %s::jsonb)
RETURNING ready_seq
"""

# clock_timestamp() is volatile, so the subquery is computed once, before the CASE: a
# delay of nothing has come by then. RETURNING nothing to announce: NULL.
INSERT: Final = """
INSERT INTO relay_job (
    id, task, queue, priority, state, run_at, max_retries, timeout_ms, deadline_at,
    meta, tags, schedule_id, occurrence_at, replay_of, args
)
SELECT
    %(id)s::uuid, %(task)s::text, %(queue)s::text, %(priority)s::smallint,
    CASE WHEN due.at > clock_timestamp() THEN 'scheduled' ELSE 'queued' END,
    due.at, %(max_retries)s::integer, %(timeout_ms)s::integer,
    COALESCE(%(deadline)s::timestamptz, clock_timestamp() + %(deadline_in)s::interval),
    %(meta)s::jsonb, %(tags)s::text[],
    %(schedule_id)s::uuid, %(occurrence_at)s::timestamptz, %(replay_of)s::uuid,
    %(args)s::jsonb
FROM (
    SELECT COALESCE(
        %(run_at)s::timestamptz,
        clock_timestamp() + COALESCE(%(run_in)s::interval, interval '0')
    ) AS at
) AS due
ON CONFLICT DO NOTHING
RETURNING CASE WHEN state = 'queued' THEN ready_seq END, priority
"""

# A fifo queue stores priority 0. Only a job that has another pays for the look, at the
# primary key of a small table.
_GIVEN_PRIORITY: Final = "%(priority)s"
_PRIORITY_BY_POLICY: Final = """CASE WHEN EXISTS (
        SELECT FROM relay_queue WHERE name = %(queue)s AND policy = 'fifo'
    ) THEN 0 ELSE %(priority)s END"""
INSERT_READY_BY_POLICY: Final = INSERT_READY.replace(
    _GIVEN_PRIORITY, _PRIORITY_BY_POLICY
)
INSERT_BY_POLICY: Final = INSERT.replace(_GIVEN_PRIORITY, f"({_PRIORITY_BY_POLICY})")

# A ready_seq taken before the COPY is below every row's own: what the wake-up names.
# The time without its zone: where USE_TZ is False, Django takes that off anyway.
_CLOCK: Final = """
SELECT clock_timestamp() AT TIME ZONE 'UTC', nextval('relay_ready_seq'),
       ARRAY(SELECT name FROM relay_queue WHERE policy = 'fifo')
"""
_COPY_READY: Final = (
    "COPY relay_job (id, task, queue, priority, max_retries, args) FROM STDIN"
)
_COPY: Final = (
    "COPY relay_job (id, task, queue, priority, max_retries, args, "
    f"{COPIED_COLUMNS}) FROM STDIN"
)


_QUEUE_AND_TASK: Final = itemgetter(2, 1)
# Copied at once where each is logged: as many are kept meanwhile.
LOGGED_ROWS: Final = 1_000

_NO_DELAY: Final = timedelta(0)

# What makes Django's cursors where nobody has replaced a part of it. Any: the stubs
# know neither _cursor nor what these cursors are based on.
_BACKEND: Final[Any] = DatabaseWrapper
_CURSORS: Final[tuple[Any, ...]] = (Cursor, ServerBindingCursor)

# id, task, queue, priority, max_retries, args: what _COPY_READY copies.
ReadyRow = tuple[UUID, str, str, int, int, str]


def _statement(job: NewJob) -> tuple[str, dict[str, Any]]:
    values: dict[str, Any] = {
        "id": job.id,
        "task": job.task,
        "queue": job.queue,
        "priority": job.priority,
        "max_retries": job.max_retries,
        "args": job.args,
    }
    if job.is_plain:
        return INSERT_READY_BY_POLICY if job.priority else INSERT_READY, values
    values |= {
        "run_at": job.run_at,
        "run_in": None if job.run_in is None else max(job.run_in, _NO_DELAY),
        "timeout_ms": job.timeout_ms,
        "deadline": job.deadline,
        "deadline_in": job.deadline_in,
        "meta": job.meta,
        "tags": list(job.tags) or None,
        "schedule_id": job.schedule_id,
        "occurrence_at": job.occurrence_at,
        "replay_of": job.replay_of,
    }
    return INSERT_BY_POLICY if job.priority else INSERT, values


def insert(job: NewJob, *, using: str) -> KeyHolder | None:
    """Insert the job and, if it is ready now, wake workers after the commit.

    A job whose id is there already is left as it is: the repeat of an enqueue whose
    commit was ambiguous is safe.

    Returns:
        The job that holds the unique key, where that kept this one from being made.

    Raises:
        DuplicateJob: as above, where the key's rule says "raise".
        django.db.DatabaseError: as from any statement on Django's connection.

    Transaction: joins the caller's on this alias; its own where there is none. An open
    transaction that has enqueued the same key is waited for.
    """
    if job.unique is not None:
        holders = insert_unique([(0, job, job.unique)], using=using)
        enqueue_log.note([job], holders)
        return holders.get(0)
    statement, values = _statement(job)
    with connections[using].cursor() as cursor:
        cursor.execute(statement, values)
        row = cursor.fetchone()
    if row is not None:
        enqueue_log.note([job], {})
    if row is not None and row[0] is not None:
        wakeup.announce(using, job.queue, row[1], row[0])
    return None


def insert_new(row: ReadyRow, *, using: str) -> None:
    """Insert a plain job that is ready now, under an id made for it, and wake workers.

    Args:
        row: of priority 0, which every policy of a queue leaves as it is.

    Raises:
        django.db.DatabaseError: as from any statement on Django's connection.

    Transaction: joins the caller's on this alias; its own where there is none.
    """
    [ready_seq] = _fetch_one(connections[using], INSERT_NEW, row)
    _, task, queue, priority, _, _ = row
    counts.add(ENQUEUED, queue, task)
    if enqueue_log.is_on():
        enqueue_log.log_rows([row])
    wakeup.announce(using, queue, priority, ready_seq)


def _fetch_one(
    connection: BaseDatabaseWrapper, statement: str, values: Sequence[Any]
) -> Any:
    """Run a statement on Django's connection and return its row.

    Past Django's cursor, and prepared, where nobody looks through the cursor and no
    pooler gives each transaction another session: making and wrapping a cursor takes
    longer than all else that relay does for an enqueue. Whatever Django checks before
    a statement is checked here as well.
    Source: docs/explanation/speed.md, "What an enqueue does not pay for".
    """
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    session: psycopg.Connection[Any] = connection.connection
    if _may_prepare(connection) and not _is_looked_through(connection, session):
        connection.validate_thread_sharing()
        connection.validate_no_broken_transaction()
        with connection.wrap_database_errors:
            row = _fetch_prepared(session, statement, values)
        if row is not None:
            return row
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchone()


def _fetch_prepared(
    session: psycopg.Connection[Any], statement: str, values: Sequence[Any]
) -> Any:
    """Run a statement, prepared, and return its row; None to have it repeated."""
    threshold = session.prepare_threshold
    if threshold is None:
        # None refuses what is asked for. Set for this statement alone: psycopg would
        # keep the texts of the last hundred others, values and all.
        session.prepare_threshold = ON_DEMAND
    try:
        with psycopg.Cursor(session) as cursor:
            return cursor.execute(statement, values, prepare=True).fetchone()
    except psycopg.errors.InvalidSqlStatementName:
        # Thrown away behind psycopg's back, as by DISCARD ALL.
        if session.info.transaction_status is not TransactionStatus.IDLE:
            raise  # after the rollback psycopg prepares anew
        session.execute("DEALLOCATE ALL")  # by which psycopg learns of it
        return None
    finally:
        session.prepare_threshold = threshold


def _may_prepare(connection: BaseDatabaseWrapper) -> bool:
    values = connection.settings_dict
    return not (
        get_settings().transaction_pooler
        or values.get("DISABLE_SERVER_SIDE_CURSORS")
        or values["OPTIONS"].get("prepare_threshold", 0) is None
    )


def _is_looked_through(
    connection: BaseDatabaseWrapper, session: psycopg.Connection[Any]
) -> bool:
    """Tell whether somebody counts on a statement's going through Django's cursor.

    What logs or wraps statements, also by a patch; a test case that forbids them; a
    backend whose cursor sets up the session, as for a schema of each tenant.
    """
    backend: Any = type(connection)
    return bool(
        connection.execute_wrappers
        or connection.queries_logged
        or getattr(connection.cursor, "__func__", None) is not _BACKEND.cursor
        or backend._cursor is not _BACKEND._cursor
        or backend.create_cursor is not _BACKEND.create_cursor
        or session.cursor_factory not in _CURSORS
        or CursorWrapper.execute.__globals__ is not vars(utils)
    )


def insert_with(connection: psycopg.Connection[Any], job: NewJob) -> int | None:
    """Insert the job over a plain connection, for duties; as insert otherwise.

    Args:
        job: one without a unique key.

    Returns:
        The ready_seq of a job that is ready now, for wakeup.notify_with after the
        commit; None if it is due later, or its id was there already.

    Raises:
        psycopg.Error: as from any statement.

    Transaction: joins the caller's.
    """
    statement, values = _statement(job)
    row = connection.execute(statement, values).fetchone()
    if row is None:
        return None
    counts.add(ENQUEUED, job.queue, job.task)
    ready_seq: int | None = row[0]
    return ready_seq


def insert_many(jobs: Sequence[NewJob], *, using: str) -> dict[int, KeyHolder]:
    """Insert all jobs, or none, and wake workers after the commit.

    Those without a unique key go in by one COPY, the others by one statement more.

    Returns:
        For the place of each job that was not made because of its unique key, the job
        that holds the key.

    Raises:
        DuplicateJob: a key is held, and its rule says "raise"; nothing was inserted.
        django.db.IntegrityError: the id of a job without a key is there already, or
            stands twice among them.
        django.db.DatabaseError: as from any statement on Django's connection.

    Transaction: joins the caller's on this alias; its own where there is none.
    """
    keyed = [
        (place, job, job.unique)
        for place, job in enumerate(jobs)
        if job.unique is not None
    ]
    if not keyed:
        _copy(jobs, using=using)
        return {}
    with transaction.atomic(using=using):
        _copy([job for job in jobs if job.unique is None], using=using)
        holders = insert_unique(keyed, using=using)
    places = [place for place, _, _ in keyed]
    held = {at: holders[place] for at, place in enumerate(places) if place in holders}
    enqueue_log.note([job for _, job, _ in keyed], held)
    return holders


def insert_ready(rows: Iterable[ReadyRow], *, using: str) -> None:
    """Insert plain jobs that are ready now by one COPY, and wake workers.

    Args:
        rows: taken one by one while the server takes in those before them; must not
            use the connection.

    Raises:
        django.db.IntegrityError: an id is there already, or stands twice among them.
        django.db.DatabaseError: as from any statement on Django's connection.

    Transaction: joins the caller's on this alias; its own where there is none.
    """
    _copy_ready(rows, using=using)


def _copy_ready(rows: Iterable[ReadyRow], *, using: str) -> None:
    if not enqueue_log.is_on():
        _copy_part(rows, using=using)
        return
    # What is logged is so once it was copied, and is kept until then: so in parts.
    waiting = iter(rows)
    with transaction.atomic(using=using):
        while part := list(islice(waiting, LOGGED_ROWS)):
            copied: list[ReadyRow] = []
            _copy_part(part, using=using, copied=copied)
            enqueue_log.log_rows(copied)


def _copy_part(
    rows: Iterable[ReadyRow], *, using: str, copied: list[ReadyRow] | None = None
) -> None:
    connection = connections[using]
    places: set[tuple[str, int]] = set()
    made: Counter[tuple[str, str]] = Counter()
    waiting = iter(rows)
    with connection.cursor() as cursor:
        _, ready_seq, fifo = _read_clock(cursor)
        # Django's cursors pass copy through but leave its errors psycopg's own.
        with connection.wrap_database_errors, cursor.copy(_COPY_READY) as copy:
            while block := list(islice(waiting, COPY_ROWS)):
                if fifo:
                    block = [_by_policy(row, fifo) for row in block]
                places.update((row[2], row[3]) for row in block)
                made.update(map(_QUEUE_AND_TASK, block))
                if copied is not None:
                    copied += block
                copy.write("\n".join(starmap(copy_line, block)) + "\n")
    for (queue, task), jobs in made.items():
        counts.add(ENQUEUED, queue, task, amount=jobs)
    for queue, priority in places:
        wakeup.announce(using, queue, priority, ready_seq)


def _by_policy(row: ReadyRow, fifo: Collection[str]) -> ReadyRow:
    job_id, task, queue, _, max_retries, args = row
    return (job_id, task, queue, 0, max_retries, args) if queue in fifo else row


def _read_clock(cursor: Any) -> tuple[datetime, int, list[str]]:
    cursor.execute(_CLOCK)
    clock, ready_seq, fifo = cursor.fetchone()
    return clock.replace(tzinfo=UTC), ready_seq, fifo


def _copy(jobs: Sequence[NewJob], *, using: str) -> None:
    if all(job.is_plain for job in jobs):
        if jobs:
            _copy_ready(map(_ready_row, jobs), using=using)
        return
    connection = connections[using]
    with connection.cursor() as cursor:
        now, ready_seq, fifo = _read_clock(cursor)
        jobs = [job._replace(priority=0) if job.queue in fifo else job for job in jobs]
        due = [job.due_at(now) for job in jobs]
        with connection.wrap_database_errors, cursor.copy(_COPY) as copy:
            for job, at in zip(jobs, due, strict=True):
                copy.write_row((*_ready_row(job), *job.copied(at, now)))
    enqueue_log.note(jobs, {})
    ready = [job for job, at in zip(jobs, due, strict=True) if at <= now]
    for queue, priority in {(job.queue, job.priority) for job in ready}:
        wakeup.announce(using, queue, priority, ready_seq)


def _ready_row(job: NewJob) -> ReadyRow:
    return (job.id, job.task, job.queue, job.priority, job.max_retries, job.args)

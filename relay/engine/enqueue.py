"""Insert jobs: one by one INSERT, many by COPY, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import psycopg
from django.db import connections

from relay.engine import wakeup

__all__ = [
    "INSERT",
    "INSERT_READY",
    "NewJob",
    "insert",
    "insert_many",
    "insert_with",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to insert; every value has been checked.

    Attributes:
        args: the JSON text of the arguments, from codec.encode_arguments.
        run_at: due then; run_in: due that long from now, by the database's clock. At
            most one of the two; with neither, or a time that has come, ready now.
        meta: JSON text.
    """

    id: UUID
    task: str
    queue: str
    args: str
    max_retries: int
    priority: int = 0
    run_at: datetime | None = None
    run_in: timedelta | None = None
    timeout: timedelta | None = None
    deadline: datetime | None = None
    meta: str | None = None
    tags: tuple[str, ...] = ()
    schedule_id: UUID | None = None
    occurrence_at: datetime | None = None
    replay_of: UUID | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the job is ready now and says nothing a short statement cannot."""
        return (
            self.run_at is None
            and self.run_in is None
            and self.timeout is None
            and self.deadline is None
            and self.meta is None
            and not self.tags
            and self.schedule_id is None
            and self.occurrence_at is None
            and self.replay_of is None
        )


# No target for the conflict: it covers every unique index of the table, and a repeated
# id is the repeat of an enqueue whose commit was ambiguous. The other columns' defaults
# say ready now: state queued, run_at and created_at now, the next ready_seq.
INSERT_READY: Final = """
INSERT INTO relay_job (id, task, queue, priority, max_retries, args)
VALUES (%(id)s, %(task)s, %(queue)s, %(priority)s, %(max_retries)s, %(args)s::jsonb)
ON CONFLICT DO NOTHING
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
    %(deadline)s::timestamptz, %(meta)s::jsonb, %(tags)s::text[],
    %(schedule_id)s::uuid, %(occurrence_at)s::timestamptz, %(replay_of)s::uuid,
    %(args)s::jsonb
FROM (
    SELECT COALESCE(
        %(run_at)s::timestamptz,
        clock_timestamp() + COALESCE(%(run_in)s::interval, interval '0')
    ) AS at
) AS due
ON CONFLICT DO NOTHING
RETURNING CASE WHEN state = 'queued' THEN ready_seq END
"""

# A ready_seq taken before the COPY is below every row's own: what the wake-up names.
# The time without its zone: where USE_TZ is False, Django takes that off anyway.
_CLOCK: Final = (
    "SELECT clock_timestamp() AT TIME ZONE 'UTC', nextval('relay_ready_seq')"
)
_COPY_READY: Final = (
    "COPY relay_job (id, task, queue, priority, max_retries, args) FROM STDIN"
)
_COPY: Final = """
COPY relay_job (
    id, task, queue, priority, max_retries, args, state, run_at, timeout_ms,
    deadline_at, meta, tags, schedule_id, occurrence_at, replay_of
) FROM STDIN
"""

_MILLISECOND: Final = timedelta(milliseconds=1)
_NO_DELAY: Final = timedelta(0)


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
        return INSERT_READY, values
    values |= {
        "run_at": job.run_at,
        "run_in": None if job.run_in is None else max(job.run_in, _NO_DELAY),
        "timeout_ms": _milliseconds(job.timeout),
        "deadline": job.deadline,
        "meta": job.meta,
        "tags": list(job.tags) or None,
        "schedule_id": job.schedule_id,
        "occurrence_at": job.occurrence_at,
        "replay_of": job.replay_of,
    }
    return INSERT, values


def _milliseconds(duration: timedelta | None) -> int | None:
    return None if duration is None else duration // _MILLISECOND


def insert(job: NewJob, *, using: str) -> None:
    """Insert the job and, if it is ready now, wake workers after the commit.

    A job whose id is there already is left as it is: the repeat of an enqueue whose
    commit was ambiguous is safe.

    Raises:
        django.db.DatabaseError: as from any statement on Django's connection.

    Transaction: joins the caller's on this alias; its own where there is none.
    """
    statement, values = _statement(job)
    with connections[using].cursor() as cursor:
        cursor.execute(statement, values)
        row = cursor.fetchone()
    if row is not None and row[0] is not None:
        wakeup.announce(using, job.queue, job.priority, row[0])


def insert_with(connection: psycopg.Connection[Any], job: NewJob) -> int | None:
    """Insert the job over a plain connection, for duties; as insert otherwise.

    Returns:
        The ready_seq of a job that is ready now, for wakeup.notify_with after the
        commit; None if it is due later, or its id was there already.

    Raises:
        psycopg.Error: as from any statement.

    Transaction: joins the caller's.
    """
    statement, values = _statement(job)
    row = connection.execute(statement, values).fetchone()
    return None if row is None else row[0]


def insert_many(jobs: Sequence[NewJob], *, using: str) -> None:
    """Insert all jobs by one COPY, or none, and wake workers after the commit.

    Raises:
        django.db.IntegrityError: an id is there already, or stands twice among them.
        django.db.DatabaseError: as from any statement on Django's connection.

    Transaction: joins the caller's on this alias; its own where there is none.
    """
    if not jobs:
        return
    connection = connections[using]
    rows: Iterable[tuple[Any, ...]]
    with connection.cursor() as cursor:
        cursor.execute(_CLOCK)
        clock, ready_seq = cursor.fetchone()
        now = clock.replace(tzinfo=UTC)
        if all(job.is_plain for job in jobs):
            statement, rows = _COPY_READY, map(_ready_row, jobs)
            ready = jobs
        else:
            due = [_due(job, now) for job in jobs]
            statement = _COPY
            rows = (_row(job, at, now) for job, at in zip(jobs, due, strict=True))
            ready = [job for job, at in zip(jobs, due, strict=True) if at <= now]
        # Django's cursors pass copy through but leave its errors psycopg's own.
        with connection.wrap_database_errors, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
    for queue, priority in dict.fromkeys((job.queue, job.priority) for job in ready):
        wakeup.announce(using, queue, priority, ready_seq)


def _due(job: NewJob, now: datetime) -> datetime:
    if job.run_at is not None:
        return job.run_at
    return now if job.run_in is None else now + max(job.run_in, _NO_DELAY)


def _ready_row(job: NewJob) -> tuple[Any, ...]:
    return (job.id, job.task, job.queue, job.priority, job.max_retries, job.args)


def _row(job: NewJob, due_at: datetime, now: datetime) -> tuple[Any, ...]:
    return (
        *_ready_row(job),
        "scheduled" if due_at > now else "queued",
        due_at,
        _milliseconds(job.timeout),
        job.deadline,
        job.meta,
        list(job.tags) or None,
        job.schedule_id,
        job.occurrence_at,
        job.replay_of,
    )

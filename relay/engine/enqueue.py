"""Insert jobs: one by INSERT, many by COPY, those with unique keys by one document."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import psycopg
from django.db import connections, transaction

from relay.engine import wakeup
from relay.exceptions import DuplicateJob
from relay.unique import UniqueKey

__all__ = [
    "INSERT",
    "INSERT_READY",
    "KeyHolder",
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
        deadline: never starts later; deadline_in: the same from now, by the database's
            clock. At most one of the two.
        meta: JSON text.
        unique: the key that no other job may hold, if any.
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
    deadline_in: timedelta | None = None
    meta: str | None = None
    tags: tuple[str, ...] = ()
    schedule_id: UUID | None = None
    occurrence_at: datetime | None = None
    replay_of: UUID | None = None
    unique: UniqueKey | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the job is ready now and says nothing a short statement cannot."""
        return (
            self.run_at is None
            and self.run_in is None
            and self.timeout is None
            and self.deadline is None
            and self.deadline_in is None
            and self.meta is None
            and not self.tags
            and self.schedule_id is None
            and self.occurrence_at is None
            and self.replay_of is None
        )


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """The job that holds a unique key another was to be enqueued with."""

    id: UUID
    task: str


# No target for the conflict: it covers every unique index of the table, and a repeated
# id is the repeat of an enqueue whose commit was ambiguous. The other columns' defaults
# say ready now: state queued, run_at and created_at now, the next ready_seq.
INSERT_READY: Final = """
INSERT INTO relay_job (id, task, queue, priority, max_retries, args)
VALUES (%(id)s, %(task)s, %(queue)s, %(priority)s, %(max_retries)s, %(args)s::jsonb)
ON CONFLICT DO NOTHING
RETURNING ready_seq, priority
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
_COPY: Final = """
COPY relay_job (
    id, task, queue, priority, max_retries, args, state, run_at, timeout_ms,
    deadline_at, meta, tags, schedule_id, occurrence_at, replay_of
) FROM STDIN
"""

# Jobs with unique keys. Everybody inserts in the order of the keys, so that two bulks
# never wait for one another; the places in the queue are drawn before, in the order
# asked for. unique_scope ends in the key: a manual retry takes it again.
INSERT_UNIQUE: Final = """
WITH asked AS MATERIALIZED (
    SELECT item.*, nextval('relay_ready_seq') AS ready_seq,
           coalesce(item.run_at, clock_timestamp()
                    + make_interval(secs => coalesce(item.run_in_s, 0))) AS due_at,
           CASE item.mode
               WHEN 'window' THEN clock_timestamp()
                                  + make_interval(secs => item.window_s)
               WHEN 'forever' THEN timestamptz '9999-12-29 00:00:00+00'
           END AS unique_until
    FROM jsonb_to_recordset(%(jobs)s::jsonb) AS item(
        id uuid, task text, queue text, priority smallint, max_retries int,
        run_at timestamptz, run_in_s float8, timeout_ms int, deadline timestamptz,
        deadline_in_s float8,
        tags text[], schedule_id uuid, occurrence_at timestamptz, replay_of uuid,
        key text, mode text, window_s float8, meta jsonb, args jsonb)
)
INSERT INTO relay_job (
    id, task, queue, priority, state, run_at, ready_seq, max_retries, timeout_ms,
    deadline_at, meta, tags, schedule_id, occurrence_at, replay_of, unique_key,
    unique_scope, unique_until, args
)
SELECT id, task, queue,
       CASE WHEN priority <> 0 AND EXISTS (
           SELECT FROM relay_queue WHERE name = asked.queue AND policy = 'fifo'
       ) THEN 0 ELSE priority END,
       CASE WHEN due_at > clock_timestamp() THEN 'scheduled' ELSE 'queued' END,
       due_at, ready_seq, max_retries, timeout_ms,
       coalesce(deadline, clock_timestamp() + make_interval(secs => deadline_in_s)),
       meta, tags, schedule_id,
       occurrence_at, replay_of, decode(key, 'hex'), mode || ':' || key, unique_until,
       args
FROM asked
ORDER BY key, ready_seq
ON CONFLICT DO NOTHING
RETURNING id, queue, priority, CASE WHEN state = 'queued' THEN ready_seq END
"""

# Index: relay_job_unique_idx. A job that is claimed meanwhile has given its key up or
# is no longer waiting: it is left alone. Locked in the order of the keys.
CHANGE: Final = """
WITH asked AS MATERIALIZED (
    SELECT item.*, decode(item.key, 'hex') AS unique_key,
           coalesce(item.run_at, clock_timestamp()
                    + make_interval(secs => coalesce(item.run_in_s, 0))) AS due_at
    FROM jsonb_to_recordset(%(jobs)s::jsonb) AS item(
        key text, task text, run_at timestamptz, run_in_s float8, replaces bool,
        pushes bool, args jsonb)
), locked AS MATERIALIZED (
    SELECT job.id, asked.replaces, asked.args, asked.due_at,
           asked.pushes AND job.state IN ('scheduled', 'queued') AS is_moved
    FROM asked JOIN relay_job AS job ON job.unique_key = asked.unique_key
    WHERE job.task = asked.task
      AND job.state IN ('blocked', 'scheduled', 'queued', 'retrying')
    ORDER BY job.unique_key
    FOR NO KEY UPDATE OF job
)
UPDATE relay_job AS job
SET args = CASE WHEN locked.replaces THEN locked.args ELSE job.args END,
    run_at = CASE WHEN locked.is_moved THEN locked.due_at ELSE job.run_at END,
    state = CASE WHEN NOT locked.is_moved THEN job.state
            WHEN locked.due_at > clock_timestamp() THEN 'scheduled' ELSE 'queued' END,
    ready_seq = CASE WHEN locked.is_moved THEN nextval('relay_ready_seq')
                ELSE job.ready_seq END
FROM locked WHERE job.id = locked.id
RETURNING job.unique_key, job.id, job.task, job.queue, job.priority,
          CASE WHEN job.state = 'queued' THEN job.ready_seq END
"""

# Indexes: the primary key; relay_job_unique_idx. A key is over when its job has ended
# and no window is ahead: every end lets go of such a key, but a worker of an older
# release knows of none.
LOOK_UP: Final = """
SELECT id, task, NULL::bytea, NULL::boolean FROM relay_job
WHERE id = ANY(%(ids)s::uuid[])
UNION ALL
SELECT id, task, unique_key,
       state IN ('completed', 'failed', 'cancelled')
       AND (unique_until IS NULL OR unique_until <= clock_timestamp())
FROM relay_job WHERE unique_key = ANY(%(keys)s::bytea[])
"""

# Index: relay_job_unique_idx.
FREE: Final = """
WITH over AS MATERIALIZED (
    SELECT id FROM relay_job
    WHERE unique_key = ANY(%(keys)s::bytea[])
      AND state IN ('completed', 'failed', 'cancelled')
      AND (unique_until IS NULL OR unique_until <= clock_timestamp())
    ORDER BY unique_key
    FOR NO KEY UPDATE
)
UPDATE relay_job AS job SET unique_key = NULL FROM over WHERE job.id = over.id
"""

# jsonb holds 256 MB; a document is far smaller, as it is parsed in memory.
_DOCUMENT_LIMIT: Final = 16 * 1024 * 1024

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
        return INSERT_READY_BY_POLICY if job.priority else INSERT_READY, values
    values |= {
        "run_at": job.run_at,
        "run_in": None if job.run_in is None else max(job.run_in, _NO_DELAY),
        "timeout_ms": _milliseconds(job.timeout),
        "deadline": job.deadline,
        "deadline_in": job.deadline_in,
        "meta": job.meta,
        "tags": list(job.tags) or None,
        "schedule_id": job.schedule_id,
        "occurrence_at": job.occurrence_at,
        "replay_of": job.replay_of,
    }
    return INSERT_BY_POLICY if job.priority else INSERT, values


def _milliseconds(duration: timedelta | None) -> int | None:
    return None if duration is None else duration // _MILLISECOND


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
        return _insert_unique([(0, job, job.unique)], using=using).get(0)
    statement, values = _statement(job)
    with connections[using].cursor() as cursor:
        cursor.execute(statement, values)
        row = cursor.fetchone()
    if row is not None and row[0] is not None:
        wakeup.announce(using, job.queue, row[1], row[0])
    return None


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
    return None if row is None else row[0]


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
        return _insert_unique(keyed, using=using)


def _copy(jobs: Sequence[NewJob], *, using: str) -> None:
    if not jobs:
        return
    connection = connections[using]
    rows: Iterable[tuple[Any, ...]]
    with connection.cursor() as cursor:
        cursor.execute(_CLOCK)
        clock, ready_seq, fifo = cursor.fetchone()
        now = clock.replace(tzinfo=UTC)
        if fifo:
            jobs = [
                replace(job, priority=0) if job.queue in fifo else job for job in jobs
            ]
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
        job.deadline if job.deadline_in is None else now + job.deadline_in,
        job.meta,
        list(job.tags) or None,
        job.schedule_id,
        job.occurrence_at,
        job.replay_of,
    )


# --- unique keys ---------------------------------------------------------------------

# A job, its place among those asked for, and its key.
_Keyed = tuple[int, NewJob, UniqueKey]


def _insert_unique(jobs: Sequence[_Keyed], *, using: str) -> dict[int, KeyHolder]:
    """Insert those of the jobs whose keys are free; see insert_many.

    Never looks first: the index decides. A holder that has ended between a conflict
    and the look at it has let its key go, and the next turn inserts.
    """
    waiting = sorted(jobs, key=lambda keyed: (keyed[2].key, keyed[0]))
    holders: dict[int, KeyHolder] = {}
    ready: list[tuple[str, int, int]] = []
    while waiting:
        made = _insert_free(waiting, ready, using=using)
        waiting = [keyed for keyed in waiting if keyed[1].id not in made]
        if waiting:
            changed = _change(waiting, ready, using=using)
            waiting = _settle(waiting, changed, holders, using=using)
    for wake_up in wakeup.lowest(ready):
        wakeup.announce(using, *wake_up)
    return holders


def _insert_free(
    jobs: Sequence[_Keyed], ready: list[tuple[str, int, int]], *, using: str
) -> set[UUID]:
    """Insert what no key or id stands in the way of; return the ids."""
    made: set[UUID] = set()
    for document in _documents(jobs):
        for job_id, queue, priority, ready_seq in _rows(
            INSERT_UNIQUE, {"jobs": document}, using=using
        ):
            made.add(job_id)
            if ready_seq is not None:
                ready.append((queue, priority, ready_seq))
    return made


def _change(
    jobs: Sequence[_Keyed], ready: list[tuple[str, int, int]], *, using: str
) -> dict[bytes, KeyHolder]:
    """Change the waiting holders whose rules say so, each to the last job asked for."""
    last = {keyed[2].key: keyed for keyed in jobs if keyed[2].rule.changes_job}
    changed: dict[bytes, KeyHolder] = {}
    for document in _documents(list(last.values())):
        for key, job_id, task, queue, priority, ready_seq in _rows(
            CHANGE, {"jobs": document}, using=using
        ):
            changed[bytes(key)] = KeyHolder(job_id, task)
            if ready_seq is not None:
                ready.append((queue, priority, ready_seq))
    return changed


def _settle(
    jobs: Sequence[_Keyed],
    changed: dict[bytes, KeyHolder],
    holders: dict[int, KeyHolder],
    *,
    using: str,
) -> list[_Keyed]:
    """Note who holds the keys; return the jobs that have to be tried again."""
    ids: set[UUID] = set()
    found = {key: (holder, False) for key, holder in changed.items()}
    values = {
        "ids": [job.id for _, job, _ in jobs],
        "keys": [key for key in {keyed[2].key for keyed in jobs} if key not in found],
    }
    for job_id, task, key, is_over in _rows(LOOK_UP, values, using=using):
        if key is None:
            ids.add(job_id)
        else:
            found[bytes(key)] = KeyHolder(job_id, task), is_over
    again: list[_Keyed] = []
    for keyed in jobs:
        place, job, unique = keyed
        holder, is_over = found.get(unique.key, (None, True))
        if job.id in ids:
            continue  # the repeat of an enqueue whose commit was ambiguous
        if holder is None or is_over:
            again.append(keyed)
        elif unique.rule.on_conflict == "raise":
            raise DuplicateJob(holder.id, holder.task)
        else:
            holders[place] = holder
    over = [key for key, (_, is_over) in found.items() if is_over]
    if over:
        _execute(FREE, {"keys": over}, using=using)
    return again


def _documents(jobs: Sequence[_Keyed]) -> Iterator[str]:
    """Give the jobs as JSON documents of bounded size, each in the order asked for."""
    batch: list[tuple[int, str]] = []
    size = 0
    for place, job, unique in jobs:
        text = _document(job, unique)
        if batch and size + len(text) > _DOCUMENT_LIMIT:
            yield _joined(batch)
            batch, size = [], 0
        batch.append((place, text))
        size += len(text)
    if batch:
        yield _joined(batch)


def _joined(batch: list[tuple[int, str]]) -> str:
    return f"[{','.join(text for _, text in sorted(batch))}]"


def _document(job: NewJob, unique: UniqueKey) -> str:
    rule = unique.rule
    head = json.dumps(
        {
            "id": str(job.id),
            "task": job.task,
            "queue": job.queue,
            "priority": job.priority,
            "max_retries": job.max_retries,
            "run_at": _text(job.run_at),
            "run_in_s": _seconds(job.run_in),
            "timeout_ms": _milliseconds(job.timeout),
            "deadline": _text(job.deadline),
            "deadline_in_s": _seconds(job.deadline_in),
            "tags": list(job.tags) or None,
            "schedule_id": job.schedule_id and str(job.schedule_id),
            "occurrence_at": _text(job.occurrence_at),
            "replay_of": job.replay_of and str(job.replay_of),
            "key": unique.key.hex(),
            "mode": rule.mode,
            "window_s": _seconds(rule.for_),
            "replaces": rule.on_conflict == "replace",
            "pushes": rule.due == "push",
        }
    )
    return f'{head[:-1]},"meta":{job.meta or "null"},"args":{job.args}}}'


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else max(duration, _NO_DELAY).total_seconds()


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()


def _rows(
    statement: str, values: dict[str, Any], *, using: str
) -> list[tuple[Any, ...]]:
    with connections[using].cursor() as cursor:
        cursor.execute(statement, values)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def _execute(statement: str, values: dict[str, Any], *, using: str) -> None:
    with connections[using].cursor() as cursor:
        cursor.execute(statement, values)

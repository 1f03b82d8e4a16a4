"""Insert jobs with unique keys, change those that hold them, or say who does."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import IntegrityError, connections, transaction

from relay.engine import wakeup
from relay.engine.connection import fetch_all
from relay.engine.new_job import (
    COPIED_COLUMNS,
    COPY_ROWS,
    KeyHolder,
    NewJob,
    copy_line,
)
from relay.engine.order import lock_holders
from relay.exceptions import DuplicateJob
from relay.unique import UniqueKey

__all__ = ["Keyed", "insert_unique"]

_NO_DELAY: Final = timedelta(0)


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


# Index: relay_job_unique_idx, key by key: a join reads all keys there are where the
# statistics know of none. A job that is claimed meanwhile has given its key up or is no
# longer waiting: it is left alone. Locked in the order of ids, as by every act.
CHANGE: Final = """
WITH asked AS MATERIALIZED (
    SELECT item.*, decode(item.key, 'hex') AS unique_key,
           coalesce(item.run_at, clock_timestamp()
                    + make_interval(secs => coalesce(item.run_in_s, 0))) AS due_at
    FROM jsonb_to_recordset(%(jobs)s::jsonb) AS item(
        key text, task text, run_at timestamptz, run_in_s float8, replaces bool,
        pushes bool, args jsonb)
), found AS MATERIALIZED (
    SELECT holder.id, asked.*
    FROM asked CROSS JOIN LATERAL (
        SELECT id FROM relay_job
        WHERE unique_key = asked.unique_key AND task = asked.task
    ) AS holder
), locked AS MATERIALIZED (
    SELECT job.id, ordered.replaces, ordered.args, ordered.due_at,
           ordered.pushes AND job.state IN ('scheduled', 'queued') AS is_moved
    FROM (SELECT * FROM found ORDER BY id) AS ordered
    CROSS JOIN LATERAL (
        SELECT id, state FROM relay_job
        WHERE id = ordered.id AND unique_key = ordered.unique_key
          AND state IN ('blocked', 'scheduled', 'queued', 'retrying')
        FOR NO KEY UPDATE
    ) AS job
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


# Index: relay_job_unique_idx; the state is hidden, as in control.FREE_KEY. Locked in
# the order of ids, as by every act.
FREE: Final = """
WITH over AS MATERIALIZED (
    SELECT id FROM relay_job
    WHERE unique_key = ANY(%(keys)s::bytea[])
      AND CASE WHEN state IN ('completed', 'failed', 'cancelled')
          THEN unique_until IS NULL OR unique_until <= clock_timestamp() END
    ORDER BY id
    FOR NO KEY UPDATE
)
UPDATE relay_job AS job SET unique_key = NULL FROM over WHERE job.id = over.id
"""


# jsonb holds 256 MB; a document is far smaller, as it is parsed in memory.
_DOCUMENT_LIMIT: Final = 16 * 1024 * 1024


# From so many keyed jobs on COPY is tried first: it takes the server a third of the
# time, but one key that is held fails it all.
# Source: docs/explanation/speed.md, "What an enqueue does not pay for".
_COPY_FROM: Final = 20
_FOREVER: Final = datetime(9999, 12, 29, tzinfo=UTC)

# Index: relay_job_unique_idx. The time without its zone: see enqueue.py.
_PREPARE_COPY: Final = """
SELECT clock_timestamp() AT TIME ZONE 'UTC',
       ARRAY(SELECT nextval('relay_ready_seq') FROM generate_series(1, %(count)s)),
       ARRAY(SELECT name FROM relay_queue WHERE policy = 'fifo'),
       EXISTS (SELECT FROM relay_job WHERE unique_key = ANY(ARRAY(
           SELECT decode(key, 'hex')
           FROM unnest(string_to_array(%(keys)s, ',')) AS key)))
"""
_COLUMNS: Final = (
    "id, task, queue, priority, max_retries, args, ready_seq, unique_key, "
    "unique_scope, unique_until"
)
_COPY: Final = f"COPY relay_job ({_COLUMNS}, {COPIED_COLUMNS}) FROM STDIN"
# Of jobs that are plain but for their keys.
_COPY_READY: Final = f"COPY relay_job ({_COLUMNS}) FROM STDIN"


# A job, its place among those asked for, and its key.
Keyed = tuple[int, NewJob, UniqueKey]

# A job, its key and its place in the queue.
Copied = tuple[NewJob, UniqueKey, int]


def insert_unique(jobs: Sequence[Keyed], *, using: str) -> dict[int, KeyHolder]:
    """Insert those of the jobs whose keys are free; see insert_many.

    The index decides. Looking first, where there are many, only chooses the way. A
    holder that has ended between a conflict and the look at it has let its key go, and
    the next turn inserts.
    """
    waiting = sorted(jobs, key=lambda keyed: (keyed[2].key, keyed[0]))
    holders: dict[int, KeyHolder] = {}
    ready: list[tuple[str, int, int]] = []
    if _copy_free(waiting, ready, using=using):
        waiting = []
    while waiting:
        made = _insert_free(waiting, ready, using=using)
        waiting = [keyed for keyed in waiting if keyed[1].id not in made]
        if waiting:
            changed = _change(waiting, ready, using=using)
            waiting = _settle(waiting, changed, holders, using=using)
    for wake_up in wakeup.lowest(ready):
        wakeup.announce(using, *wake_up)
    return holders


def _copy_free(
    jobs: Sequence[Keyed], ready: list[tuple[str, int, int]], *, using: str
) -> bool:
    """Insert all jobs by COPY if nothing stands in the way; tell whether that went.

    Args:
        jobs: in the order of their keys, in which everybody inserts.

    Transaction: must be called inside one.
    """
    keys = {unique.key.hex() for _, _, unique in jobs}
    if len(jobs) < _COPY_FROM or len(keys) < len(jobs):
        return False
    connection = connections[using]
    with connection.cursor() as cursor:
        cursor.execute(_PREPARE_COPY, {"count": len(jobs), "keys": ",".join(keys)})
        clock, ready_seqs, fifo, is_held = cursor.fetchone()
        if is_held:
            return False
        if fifo:
            jobs = [(place, _by_policy(job, fifo), key) for place, job, key in jobs]
        asked = sorted(place for place, _, _ in jobs)
        seq_of = dict(zip(asked, ready_seqs, strict=True))
        copied = [(job, unique, seq_of[place]) for place, job, unique in jobs]
        now = clock.replace(tzinfo=UTC)
        try:
            with transaction.atomic(using=using), connection.wrap_database_errors:
                _copy(cursor, copied, now)
        except IntegrityError:
            # Somebody was faster, or it is the repeat of an enqueue with its own id.
            return False
    ready += [
        (job.queue, job.priority, seq)
        for job, _, seq in copied
        if job.is_plain or job.due_at(now) <= now
    ]
    return True


def _by_policy(job: NewJob, fifo: Collection[str]) -> NewJob:
    return job._replace(priority=0) if job.priority and job.queue in fifo else job


def _copy(cursor: Any, jobs: Sequence[Copied], now: datetime) -> None:
    if all(job.is_plain for job, _, _ in jobs):
        with cursor.copy(_COPY_READY) as copy:
            for start in range(0, len(jobs), COPY_ROWS):
                block = jobs[start : start + COPY_ROWS]
                copy.write("".join(_copy_line(*each, now) for each in block))
    else:
        with cursor.copy(_COPY) as copy:
            for job, unique, seq in jobs:
                due_at = job.due_at(now)
                copied = job.copied(due_at, now)
                copy.write_row((*_row(job, unique, seq, now), *copied))


def _copy_line(job: NewJob, unique: UniqueKey, ready_seq: int, now: datetime) -> str:
    head = copy_line(
        job.id, job.task, job.queue, job.priority, job.max_retries, job.args
    )
    key, until = unique.key.hex(), _until(unique, now) or r"\N"
    return f"{head}\t{ready_seq}\t\\\\x{key}\t{unique.rule.mode}:{key}\t{until}\n"


def _row(
    job: NewJob, unique: UniqueKey, ready_seq: int, now: datetime
) -> tuple[Any, ...]:
    return (
        job.id,
        job.task,
        job.queue,
        job.priority,
        job.max_retries,
        job.args,
        ready_seq,
        unique.key,
        f"{unique.rule.mode}:{unique.key.hex()}",
        _until(unique, now),
    )


def _until(unique: UniqueKey, now: datetime) -> datetime | None:
    window = unique.rule.for_
    if window is not None:
        return now + window
    return _FOREVER if unique.rule.mode == "forever" else None


def _insert_free(
    jobs: Sequence[Keyed], ready: list[tuple[str, int, int]], *, using: str
) -> set[UUID]:
    """Insert what no key or id stands in the way of; return the ids."""
    made: set[UUID] = set()
    for document in _documents(jobs):
        for job_id, queue, priority, ready_seq in fetch_all(
            INSERT_UNIQUE, {"jobs": document}, using=using
        ):
            made.add(job_id)
            if ready_seq is not None:
                ready.append((queue, priority, ready_seq))
    return made


def _change(
    jobs: Sequence[Keyed], ready: list[tuple[str, int, int]], *, using: str
) -> dict[bytes, KeyHolder]:
    """Change the waiting holders whose rules say so, each to the last job asked for."""
    last = {keyed[2].key: keyed for keyed in jobs if keyed[2].rule.changes_job}
    keys = {keyed[2].key for keyed in jobs}
    if last and len(keys) > 1:  # of which others may have to be freed
        lock_holders(list(keys), changed=list(last), using=using)
    changed: dict[bytes, KeyHolder] = {}
    for document in _documents(list(last.values())):
        for key, job_id, task, queue, priority, ready_seq in fetch_all(
            CHANGE, {"jobs": document}, using=using
        ):
            changed[bytes(key)] = KeyHolder(job_id, task)
            if ready_seq is not None:
                ready.append((queue, priority, ready_seq))
    return changed


def _settle(
    jobs: Sequence[Keyed],
    changed: dict[bytes, KeyHolder],
    holders: dict[int, KeyHolder],
    *,
    using: str,
) -> list[Keyed]:
    """Note who holds the keys; return the jobs that have to be tried again."""
    ids: set[UUID] = set()
    found = {key: (holder, False) for key, holder in changed.items()}
    values = {
        "ids": [job.id for _, job, _ in jobs],
        "keys": [key for key in {keyed[2].key for keyed in jobs} if key not in found],
    }
    for job_id, task, key, is_over in fetch_all(LOOK_UP, values, using=using):
        if key is None:
            ids.add(job_id)
        else:
            found[bytes(key)] = KeyHolder(job_id, task), is_over
    again: list[Keyed] = []
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
        with connections[using].cursor() as cursor:
            cursor.execute(FREE, {"keys": over})
    return again


def _documents(jobs: Sequence[Keyed]) -> Iterator[str]:
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
    values: dict[str, Any] = {
        "id": job.id.hex,
        "task": job.task,
        "queue": job.queue,
        "priority": job.priority,
        "max_retries": job.max_retries,
        "key": unique.key.hex(),
        "mode": rule.mode,
    }
    if rule.for_ is not None:
        values["window_s"] = rule.for_.total_seconds()
    if rule.changes_job:
        values["replaces"] = rule.on_conflict == "replace"
        values["pushes"] = rule.due == "push"
    if not job.is_plain:
        values |= _rare_values(job)
    head, meta = json.dumps(values)[:-1], job.meta
    return f'{head},"meta":{meta or "null"},"args":{job.args}}}'


def _rare_values(job: NewJob) -> dict[str, Any]:
    """Return what most jobs go without: each name costs the server a microsecond."""
    return {
        "run_at": _text(job.run_at),
        "run_in_s": _seconds(job.run_in),
        "timeout_ms": job.timeout_ms,
        "deadline": _text(job.deadline),
        "deadline_in_s": _seconds(job.deadline_in),
        "tags": list(job.tags) or None,
        "schedule_id": job.schedule_id and job.schedule_id.hex,
        "occurrence_at": _text(job.occurrence_at),
        "replay_of": job.replay_of and job.replay_of.hex,
    }


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else max(duration, _NO_DELAY).total_seconds()


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()

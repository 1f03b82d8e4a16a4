"""What bears on whether a job runs: its row, its queue, those before it, workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import connections
from django.db.models.functions import Left, Now

from relay.exceptions import JobNotFound
from relay.models import Job
from relay.queries.reading import COUNT_CAP, bounded_read, clamped
from relay.tasks import known_queues

__all__ = ["Facts", "Group", "Holder", "read_facts"]

# Primary keys. Times of rows made by hand may be infinite.
QUEUE: Final = """
SELECT paused_at IS NOT NULL
       AND (paused_until IS NULL OR paused_until > statement_timestamp()),
       CASE WHEN paused_until IS NOT NULL
            THEN least(paused_until, '9999-12-30') END
FROM relay_queue WHERE name = %(queue)s
"""
HOLDER: Final = """
SELECT name, state, lease_expires_at > statement_timestamp(),
       least(lease_expires_at, '9999-12-30')
FROM relay_worker WHERE id = %(worker_id)s
"""
# A small table; the jobs that each runs by relay_job_held_idx.
WORKERS: Final = """
SELECT state, lease_expires_at > statement_timestamp(),
       %(queue)s = ANY(queues), count(*), sum(concurrency)::int8,
       sum((SELECT count(*) FROM relay_job AS held
            WHERE held.state = 'running' AND held.queue = ANY(worker.queues)
              AND held.worker_id = worker.id))::int8,
       max(least(heartbeat_at, '9999-12-30'))
FROM relay_worker AS worker
WHERE state IN ('running', 'quiet', 'draining')
GROUP BY 1, 2, 3
"""
# Index: relay_job_ready_idx, from the front of the queue.
AHEAD: Final = """
SELECT (SELECT count(*) FROM (
            SELECT FROM relay_job
            WHERE state = 'queued' AND concurrency_key IS NULL AND queue = %(queue)s
              AND priority > %(priority)s
            ORDER BY priority DESC, ready_seq LIMIT %(most)s) AS higher)
     + (SELECT count(*) FROM (
            SELECT FROM relay_job
            WHERE state = 'queued' AND concurrency_key IS NULL AND queue = %(queue)s
              AND priority = %(priority)s AND ready_seq < %(ready_seq)s
            ORDER BY ready_seq LIMIT %(most)s) AS earlier)
"""
# Index: that of relay_history.job_id.
LAST_EVENT: Final = """
SELECT event, detail->>'reason' FROM relay_history
WHERE job_id = %(id)s ORDER BY id DESC LIMIT 1
"""

_COLUMNS: Final = (
    *("id", "task", "queue", "priority", "ready_seq", "state", "attempt", "failures"),
    *("max_retries", "worker_id", "concurrency_key", "error_class"),
)
_TIMES: Final = (
    *("created_at", "run_at", "started_at", "finished_at", "deadline_at"),
    "cancel_requested_at",
)
ERROR_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Workers that are alike: their state, whether alive, whether they serve the queue.

    Attributes:
        workers, slots, running: how many, of all of them together.
        heard_at: when one of them was last heard of.
    """

    state: str
    is_alive: bool
    serves: bool
    workers: int
    slots: int
    running: int
    heard_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The worker that a running job's row names."""

    name: str
    state: str
    is_alive: bool
    lease_expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Of one job what decides whether it runs.

    Attributes:
        job: its columns; times by their names.
        now: the database's clock.
        is_named: whether settings, a task or a row names its queue.
        is_paused, paused_until: of its queue; None is until it is resumed.
        holder: of a running job; None where the worker has no row.
        groups: of all workers that have not ended.
        ahead: queued jobs of its queue that come before it, up to COUNT_CAP + 1.
        last_event: the latest of its history, and its reason.
    """

    job: dict[str, Any]
    now: datetime
    is_named: bool = True
    is_paused: bool = False
    paused_until: datetime | None = None
    holder: Holder | None = None
    groups: Sequence[Group] = ()
    ahead: int = 0
    last_event: tuple[str, str | None] | None = None


def read_facts(job_id: UUID, using: str) -> Facts:
    """Return what bears on whether this job runs.

    Raises:
        JobNotFound: there is none.
        ReadTimeout: a statement took longer than 2 s.
    """
    with bounded_read(using):
        job = _job(job_id, using)
        now: datetime = job.pop("now")
        if job["state"] in ("completed", "failed", "cancelled"):
            return Facts(job=job, now=now)
        if job["state"] == "running":
            return Facts(job=job, now=now, holder=_holder(job, using))
        [(is_paused, paused_until)] = _ask(QUEUE, job, using) or [(None, None)]
        return Facts(
            job=job,
            now=now,
            is_named=is_paused is not None or job["queue"] in known_queues(),
            is_paused=bool(is_paused),
            paused_until=paused_until if is_paused else None,
            groups=_groups(job, using),
            ahead=_ahead(job, using) if job["state"] == "queued" else 0,
            last_event=next(iter(_ask(LAST_EVENT, job, using)), None),
        )


def _job(job_id: UUID, using: str) -> dict[str, Any]:
    rows = Job.objects.using(using).filter(pk=job_id)
    shown: dict[str, Any] = {f"shown_{name}": clamped(name) for name in _TIMES}
    shown |= {"now": Now(), "error": Left("error_message", ERROR_CHARACTERS)}
    row = rows.annotate(**shown).values(*_COLUMNS, *shown).first()
    if row is None:
        raise JobNotFound(job_id)
    return {name.removeprefix("shown_"): value for name, value in row.items()}


def _ask(statement: str, job: dict[str, Any], using: str) -> list[tuple[Any, ...]]:
    names = ("id", "queue", "priority", "ready_seq", "worker_id")
    values = {name: job[name] for name in names} | {"most": COUNT_CAP + 1}
    with connections[using].cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor.fetchall())


def _holder(job: dict[str, Any], using: str) -> Holder | None:
    for name, state, is_alive, lease in _ask(HOLDER, job, using):
        return Holder(name=name, state=state, is_alive=is_alive, lease_expires_at=lease)
    return None


def _groups(job: dict[str, Any], using: str) -> list[Group]:
    return [
        Group(
            state=state,
            is_alive=is_alive,
            serves=serves,
            workers=workers,
            slots=slots,
            running=running,
            heard_at=heard_at,
        )
        for state, is_alive, serves, workers, slots, running, heard_at in _ask(
            WORKERS, job, using
        )
    ]


def _ahead(job: dict[str, Any], using: str) -> int:
    [(count,)] = _ask(AHEAD, job, using)
    return int(count)

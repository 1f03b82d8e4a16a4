"""Lists of jobs, counted and page by page, and one job with all of it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, Literal, cast
from uuid import UUID

from django.db import connections, models
from django.db.models.expressions import RawSQL
from django.db.models.functions import Left

from relay.conf import get_settings
from relay.engine.connection import check_vendor
from relay.exceptions import ArgumentError, JobNotFound, NotFound
from relay.ids import read_id
from relay.models import Job, JobState, Schedule, Worker
from relay.models.fields import PlainArrayField
from relay.operations import Actor, JobFilter
from relay.queries import past
from relay.queries.documents import (
    AttemptDocument,
    CountDocument,
    HistoryDocument,
    JobDetail,
    JobDocument,
    JobPage,
    LogDocument,
    Status,
    StepDocument,
)
from relay.queries.paging import read_page
from relay.queries.reading import (
    COUNT_CAP,
    bounded_read,
    clamped,
    counted,
    cut,
    instant,
    payload,
    seconds,
    shown_text,
    small,
    text_id,
    texted,
)

__all__ = [
    "INCLUDES",
    "count_jobs",
    "get_job",
    "job_id_of",
    "list_attempts",
    "list_history",
    "list_jobs",
    "list_logs",
    "list_steps",
    "read_states",
    "states",
]

Include = Literal["attempts", "history", "logs", "steps"]
# What get_job adds if it is asked to.
INCLUDES: Final = ("attempts", "history", "logs", "steps")
# Of an error's message a list shows so many characters.
ERROR_CHARACTERS: Final = 500
# Replays of one job that its page names.
LATEST_REPLAYS: Final = 10
# Index: relay_job_replay_idx; of one job they are few.
REPLAYS: Final = """
ARRAY(SELECT made.id::text FROM relay_job AS made
      WHERE made.replay_of = relay_job.id ORDER BY made.id DESC LIMIT %s)
"""

_COLUMNS: Final = (
    *("id", "task", "queue", "priority", "state", "tags", "attempt", "failures"),
    *("crashes", "losses", "max_retries", "timeout_ms", "worker_id", "schedule_id"),
    *("workflow_id", "replay_of", "unique_key", "error_class"),
)
_TIMES: Final = (
    *("created_at", "run_at", "started_at", "finished_at", "deadline_at"),
    *("expires_at", "cancel_requested_at", "occurrence_at"),
)
_PAYLOADS: Final = ("args", "result", "progress")
_STATUS: Final[dict[str, Status]] = {
    "running": "running",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
}

# Each looks at COUNT_CAP + 1 rows at most: of the waiting ones at those that are due
# next, of the completed at those that ended last.
# Indexes: relay_job_ready_idx, relay_job_held_idx, relay_job_due_idx,
# relay_job_retrying_idx, relay_job_final_idx, relay_job_failed_idx,
# relay_job_blocked_idx.
STATES: Final = """
SELECT 'queued', count(*), 0 FROM (
    SELECT FROM relay_job WHERE state = 'queued' AND concurrency_key IS NULL
    ORDER BY queue, priority DESC, ready_seq LIMIT %(most)s) AS job
UNION ALL
SELECT 'running', count(*), 0 FROM (
    SELECT FROM relay_job WHERE state = 'running'
    ORDER BY queue, worker_id LIMIT %(most)s) AS job
UNION ALL
SELECT 'scheduled', count(*) FILTER (WHERE state = 'scheduled'), count(*) FROM (
    SELECT state FROM relay_job WHERE state IN ('scheduled', 'retrying')
    ORDER BY run_at LIMIT %(most)s) AS job
UNION ALL
SELECT 'retrying', count(*), 0 FROM (
    SELECT FROM relay_job WHERE state = 'retrying'
    ORDER BY run_at LIMIT %(most)s) AS job
UNION ALL
SELECT 'completed', count(*) FILTER (WHERE state = 'completed'), count(*) FROM (
    SELECT state FROM relay_job WHERE state IN ('completed', 'failed', 'cancelled')
    ORDER BY finished_at DESC, id DESC LIMIT %(most)s) AS job
UNION ALL
SELECT 'failed', count(*), 0 FROM (
    SELECT FROM relay_job WHERE state = 'failed'
    ORDER BY id DESC LIMIT %(most)s) AS job
UNION ALL
SELECT 'cancelled', count(*), 0 FROM (
    SELECT FROM relay_job WHERE state = 'cancelled'
    ORDER BY id DESC LIMIT %(most)s) AS job
UNION ALL
SELECT 'blocked', count(*), 0 FROM (
    SELECT FROM relay_job WHERE state = 'blocked'
    ORDER BY id DESC LIMIT %(most)s) AS job
"""


def list_jobs(
    actor: Actor,
    filter: JobFilter,
    *,
    order: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> JobPage:
    """Return a page of the jobs that match, in the order that an index gives.

    Args:
        order: one of ORDERS that the same index gives; the filter's own unless given.
        limit: 1 to 500.
        cursor: next or previous of another page of the same filter and order.

    Raises:
        NotAllowed: the actor lacks view_job, or view_payload that the filter needs.
        ArgumentError: the order, the limit or the cursor cannot be used.
        ReadTimeout: it took longer than 2 s.
    """
    shown = _check(actor, filter, "list_jobs")
    by = filter.order if order is None else filter.ordered(order)
    using = get_settings().database
    # Not before: a filter by schedule reads as it is made.
    with bounded_read(using, bitmaps=filter.needs_bitmaps):
        page = read_page(
            filter.jobs(using=using),
            by,
            _COLUMNS,
            shown={
                **_shown(),
                **{f"shown_{name}": small(name) for name in _PAYLOADS},
                "shown_error": Left("error_message", ERROR_CHARACTERS),
            },
            limit=limit,
            cursor=cursor,
        )
    results = [_document(row, shown=shown) for row in page.rows]
    return {"results": results, "next": page.next, "previous": page.previous}


def count_jobs(actor: Actor, filter: JobFilter) -> CountDocument:
    """Return how many jobs match, counted up to 10,000.

    Raises:
        NotAllowed, ReadTimeout: as list_jobs.
    """
    _check(actor, filter, "count_jobs")
    using = get_settings().database
    with bounded_read(using, bitmaps=filter.needs_bitmaps):
        found = filter.jobs(using=using).values("pk")[: COUNT_CAP + 1].count()
    return counted(found, cap=COUNT_CAP)


def states(actor: Actor) -> dict[str, CountDocument]:
    """Return how many jobs are in each state, each counted up to 10,000.

    Scheduled jobs are counted among the 10,000 that are due next, completed ones among
    those that ended last: with capped there may be more.

    Raises:
        NotAllowed: the actor lacks view_job.
        ReadTimeout: it took longer than 2 s.
    """
    actor.require("view_job", "states")
    return read_states(get_settings().database)


def read_states(using: str) -> dict[str, CountDocument]:
    """As states(), without asking who wants to know."""
    with bounded_read(using), connections[using].cursor() as cursor:
        cursor.execute(STATES, {"most": COUNT_CAP + 1})
        rows = cursor.fetchall()
    found = {
        state: counted(count, cap=COUNT_CAP, more=looked_at > COUNT_CAP)
        for state, count, looked_at in rows
    }
    return {state: found[state] for state in JobState.values}


def get_job(
    actor: Actor, job_id: UUID | str, *, include: Collection[str] = ()
) -> JobDetail:
    """Return one job with all of it.

    Args:
        include: of attempts, history, logs and steps what to add.

    Raises:
        NotAllowed: the actor lacks view_job.
        JobNotFound, NotFound: there is none, or what is given is no id.
        ArgumentError: there is nothing of that name to include.
    """
    actor.require("view_job", "get_job")
    for name in include:
        if name not in INCLUDES:
            raise ArgumentError(f"include={name!r}: there are {', '.join(INCLUDES)}")
    key, using = job_id_of(job_id), get_settings().database
    row = _row(key, using)
    shown = actor.may("view_payload")
    document = cast(
        "JobDetail",
        {
            **_document(row, shown=shown),
            "meta": payload(row["shown_meta"], shown=True),
            "version": row["version"],
            "replays": row["replays"],
        },
    )
    if "attempts" in include:
        document["attempts"] = past.attempts_of(row, using)
    if "history" in include:
        document["history"] = past.history_of(row, using)
    if "logs" in include:
        document["logs"] = past.logs_of(key, using)
    if "steps" in include:
        document["steps"] = past.steps_of(key, using, shown=shown)
    return document


def _row(key: UUID, using: str) -> dict[str, Any]:
    """Return all that is read of one job.

    Raises:
        JobNotFound: there is none.
    """
    check_vendor(using)
    rows = Job.objects.using(using).filter(pk=key)
    rows = rows.annotate(
        **_shown(),
        **{f"shown_{name}": texted(name) for name in (*_PAYLOADS, "meta")},
        shown_error=cut("error_message"),
        version=RawSQL('"relay_job"."xmin"::text', [], models.TextField()),
        replays=RawSQL(REPLAYS, [LATEST_REPLAYS], PlainArrayField(models.TextField())),  # noqa: S611 - constants
    )
    names = (*_shown(), *(f"shown_{name}" for name in (*_PAYLOADS, "meta")))
    row = rows.values(*_COLUMNS, *names, "shown_error", "version", "replays").first()
    if row is None:
        raise JobNotFound(key)
    return dict(row)


def list_attempts(actor: Actor, job_id: UUID | str) -> list[AttemptDocument]:
    """Return a job's latest attempts, the first one first; raises as get_job."""
    return get_job(actor, job_id, include=("attempts",))["attempts"]


def list_history(actor: Actor, job_id: UUID | str) -> list[HistoryDocument]:
    """Return what has happened to a job, the first thing first; raises as get_job."""
    return get_job(actor, job_id, include=("history",))["history"]


def list_logs(actor: Actor, job_id: UUID | str, *, after: int = 0) -> list[LogDocument]:
    """Return the kept logs of a job's attempts, the first one first; raises as get_job.

    An attempt's log is there once the attempt has ended.

    Args:
        after: those of later attempts only.
    """
    key = UUID(get_job(actor, job_id)["id"])
    return past.logs_of(key, get_settings().database, after=after)


def list_steps(actor: Actor, job_id: UUID | str) -> list[StepDocument]:
    """Return the steps that a job has done, in their order; raises as get_job."""
    return get_job(actor, job_id, include=("steps",))["steps"]


def job_id_of(text: UUID | str) -> UUID:
    """Return the id.

    Raises:
        NotFound: it is none, so there is no job of it.
    """
    found = read_id(text)
    if found is None:
        raise NotFound(f"{str(text)[:100]!r} is no job's id: give all 36 characters")
    return found


def _check(actor: Actor, filter: JobFilter, what: str) -> bool:
    """Refuse who may not ask this; tell whether they see payloads."""
    for permission in ("view_job", *sorted(filter.permissions)):
        actor.require(permission, what)
    return actor.may("view_payload")


def _shown() -> dict[str, Any]:
    """Return what is read besides the columns: times, and the names behind ids."""
    worker = Worker.objects.filter(pk=models.OuterRef("worker_id"))
    schedule = Schedule.objects.filter(pk=models.OuterRef("schedule_id"))
    return {
        **{f"shown_{name}": clamped(name) for name in _TIMES},
        "worker": models.Subquery(worker.values("name")[:1]),
        "schedule": models.Subquery(schedule.values("name")[:1]),
    }


def _document(row: dict[str, Any], *, shown: bool) -> JobDocument:
    call = payload(row["shown_args"], shown=shown)
    args = call.get("args", []) if isinstance(call, dict) else call
    kwargs = call.get("kwargs", {}) if isinstance(call, dict) else call
    started, finished = row["shown_started_at"], row["shown_finished_at"]
    has_run = started is not None and finished is not None
    return {
        "id": str(row["id"]),
        "task": row["task"],
        "type": row["task"],
        "queue": row["queue"],
        "priority": row["priority"],
        "state": row["state"],
        "status": _STATUS.get(row["state"], "queued"),
        "args": args,
        "kwargs": kwargs,
        "payload": _one_of(args, kwargs),
        "tags": row["tags"] or [],
        "attempt": row["attempt"],
        "failures": row["failures"],
        "crashes": row["crashes"],
        "losses": row["losses"],
        "max_retries": row["max_retries"],
        "timeout": seconds(row["timeout_ms"]),
        "created_at": instant(row["shown_created_at"]),
        "run_at": instant(row["shown_run_at"]),
        "started_at": instant(started),
        "finished_at": instant(finished),
        "deadline_at": instant(row["shown_deadline_at"]),
        "expires_at": instant(row["shown_expires_at"]),
        "cancel_requested_at": instant(row["shown_cancel_requested_at"]),
        "duration": seconds(finished - started) if has_run else None,
        "worker_id": text_id(row["worker_id"]),
        "worker": row["worker"],
        "schedule_id": text_id(row["schedule_id"]),
        "schedule": row["schedule"],
        "occurrence_at": instant(row["shown_occurrence_at"]),
        "workflow_id": text_id(row["workflow_id"]),
        "replay_of": text_id(row["replay_of"]),
        "unique_key": _hex(row["unique_key"], shown=shown),
        "error_class": row["error_class"],
        "error": shown_text(row["shown_error"]),
        "progress": payload(row["shown_progress"], shown=shown),
        "result": payload(row["shown_result"], shown=shown),
    }


def _one_of(args: Any, kwargs: Any) -> Any:
    """Return the only argument of a job, as a command's; else all of them."""
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        return args
    return (
        args[0] if len(args) == 1 and not kwargs else {"args": args, "kwargs": kwargs}
    )


def _hex(key: Any, *, shown: bool) -> str | None:
    """Return a unique key, which is a hash of arguments."""
    return None if key is None else payload(f'"{bytes(key).hex()}"', shown=shown)

"""Workers: who is alive, and what they run."""

from __future__ import annotations

from typing import Any, Final, cast
from uuid import UUID

from django.db import connections, models
from django.db.models.expressions import RawSQL

from relay.conf import OWN_QUEUE, get_settings
from relay.exceptions import ArgumentError, NotFound
from relay.ids import read_id
from relay.models import Job, Worker, WorkerState
from relay.operations import Actor
from relay.queries.documents import (
    WorkerCounts,
    WorkerDetail,
    WorkerDocument,
    WorkerPage,
    WorkersDocument,
)
from relay.queries.paging import read_page
from relay.queries.reading import (
    bounded_read,
    clamped,
    instant,
    payload,
    text_id,
    texted,
)

__all__ = ["count_workers", "get_worker", "list_workers", "read_workers", "served"]

# Jobs that a worker's page names.
MOST_JOBS: Final = 1_000

_COLUMNS: Final = (
    *("id", "name", "state", "kind", "host", "pid", "supervisor", "queues"),
    *("concurrency", "version", "asked"),
)
_TIMES: Final = ("started_at", "heartbeat_at", "lease_expires_at", "asked_at")
_IS_ALIVE: Final = """
(state IN ('running', 'quiet', 'draining') AND lease_expires_at > statement_timestamp())
"""
# Times of rows made by hand may be infinite: seconds within 300 years are shown.
_SILENT_FOR: Final = """
least(greatest(extract(epoch FROM statement_timestamp())
               - extract(epoch FROM heartbeat_at), 0), 1e10)::float8
"""
# Index: relay_job_held_idx, by the queues it serves.
_RUNNING: Final = """
(SELECT count(*) FROM relay_job
 WHERE relay_job.state = 'running' AND relay_job.queue = ANY(relay_worker.queues)
   AND relay_job.worker_id = relay_worker.id)
"""
# A small table, and the jobs that run. A slot of a quiet worker takes no job.
TOTALS: Final = """
SELECT count(*) FILTER (WHERE state = 'running'),
       count(*) FILTER (WHERE state = 'quiet'),
       count(*) FILTER (WHERE state = 'draining'),
       count(*) FILTER (WHERE state = 'lost'),
       coalesce(sum(concurrency) FILTER (WHERE state = 'running'), 0)::int8,
       (SELECT count(*) FROM relay_job WHERE state = 'running')
FROM relay_worker
"""
# A small table, read once, and by relay_job_held_idx the jobs that run: no more than
# there are slots.
COUNTS: Final = f"""
SELECT state, count(*),
       count(*) FILTER (WHERE {_IS_ALIVE}),
       count(*) FILTER (
           WHERE state <> 'stopped' AND NOT {_IS_ALIVE} AND {_SILENT_FOR} < %(lately)s),
       coalesce(sum(concurrency) FILTER (WHERE state IN ('running', 'quiet')), 0)::int8,
       coalesce(sum({_RUNNING}) FILTER (WHERE state IN ('running', 'quiet')), 0)::int8
FROM relay_worker GROUP BY state
"""  # noqa: S608 - constants only
# For how long a lost worker is spoken of.
LATELY_SECONDS: Final = 3_600


def count_workers(actor: Actor) -> WorkerCounts:
    """Return how many workers are in each state, in one statement.

    lost_lately are those heard of within the hour whose lease ran out, be it taken back
    by now or not; slots and busy are of those that are running or quiet.

    Raises:
        NotAllowed: the actor lacks view_worker.
        ReadTimeout: it took longer than 2 s.
    """
    actor.require("view_worker", "count_workers")
    using = get_settings().database
    with bounded_read(using), connections[using].cursor() as cursor:
        cursor.execute(COUNTS, {"lately": LATELY_SECONDS})
        rows = cursor.fetchall()
    alive, lost, slots, busy = (
        sum(row[place] for row in rows) for place in range(2, 6)
    )
    return {
        "states": {
            **dict.fromkeys(WorkerState.values, 0),
            **{r[0]: r[1] for r in rows},
        },
        "alive": alive,
        "lost_lately": lost,
        "slots": slots,
        "busy": busy,
    }


def list_workers(
    actor: Actor,
    *,
    state: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> WorkerPage:
    """Return a page of workers, the newest first; ended ones for a day.

    Args:
        state: running, quiet, draining, stopped or lost.
        limit: 1 to 500.
        cursor: next or previous of another page.

    Raises:
        NotAllowed: the actor lacks view_worker.
        ArgumentError: there is no such state, or the limit or cursor cannot be used.
        ReadTimeout: it took longer than 2 s.
    """
    actor.require("view_worker", "list_workers")
    using = get_settings().database
    rows = Worker.objects.using(using)
    if state is not None:
        if state not in WorkerState.values:
            raise ArgumentError(
                f"state={state!r}: there are {', '.join(WorkerState.values)}"
            )
        rows = rows.filter(state=state)
    with bounded_read(using):
        page = read_page(
            rows,
            ("-id",),
            _COLUMNS,
            shown=_shown(),
            limit=limit,
            cursor=cursor,
        )
    results = [_document(row) for row in page.rows]
    return {"results": results, "next": page.next, "previous": page.previous}


def get_worker(actor: Actor, worker: UUID | str) -> WorkerDetail:
    """Return one worker, with the jobs it runs.

    Args:
        worker: its id, or its name, which means the newest of that name.

    Raises:
        NotAllowed: the actor lacks view_worker.
        NotFound: there is none.
        ReadTimeout: it took longer than 2 s.
    """
    actor.require("view_worker", "get_worker")
    using = get_settings().database
    rows = Worker.objects.using(using).annotate(**_shown(), shown_stats=texted("stats"))
    with bounded_read(using, bitmaps=True):
        found = (
            rows.filter(_named(worker))
            .order_by("-id")
            .values(*_COLUMNS, *_shown(), "shown_stats")
            .first()
        )
        if found is None:
            raise NotFound(f"worker {str(worker)[:100]} does not exist, or was pruned")
        jobs = Job.objects.using(using).filter(
            state="running", queue__in=found["queues"], worker_id=found["id"]
        )
        ids = list(jobs.values_list("pk", flat=True)[:MOST_JOBS])
    stats = payload(found["shown_stats"], shown=True)
    document = {**_document(found), "stats": stats, "jobs": sorted(map(str, ids))}
    return cast("WorkerDetail", document)


def read_workers(using: str) -> WorkersDocument:
    """Return how many workers are in which state."""
    with bounded_read(using), connections[using].cursor() as cursor:
        cursor.execute(TOTALS)
        [(running, quiet, draining, lost, slots, busy)] = cursor.fetchall()
    return {
        "running": running,
        "quiet": quiet,
        "draining": draining,
        "lost": lost,
        "slots": slots,
        "busy": busy,
    }


def _named(worker: UUID | str) -> models.Q:
    worker_id = read_id(worker)
    if worker_id is not None:
        return models.Q(pk=worker_id)
    return models.Q(name=str(worker).replace("\x00", ""))


def served(queues: list[str]) -> list[str]:
    """Return the queues that a worker's row names, without that of relay's own jobs."""
    return [queue for queue in queues if queue != OWN_QUEUE]


def _shown() -> dict[str, Any]:
    return {
        **{f"shown_{name}": clamped(name) for name in _TIMES},
        "is_alive": RawSQL(_IS_ALIVE, [], models.BooleanField()),  # noqa: S611 - constants
        "silent_for": RawSQL(_SILENT_FOR, [], models.FloatField()),  # noqa: S611 - constants
        "running": RawSQL(_RUNNING, [], models.IntegerField()),  # noqa: S611 - constants
    }


def _document(row: dict[str, Any]) -> WorkerDocument:
    return {
        "id": str(row["id"]),
        "name": row["name"],
        "state": row["state"],
        "is_alive": row["is_alive"],
        "kind": row["kind"],
        "host": row["host"],
        "pid": row["pid"],
        "supervisor": text_id(row["supervisor"]),
        "queues": served(row["queues"]),
        "concurrency": row["concurrency"],
        "running": row["running"],
        "version": row["version"],
        "started_at": instant(row["shown_started_at"]),
        "heartbeat_at": instant(row["shown_heartbeat_at"]),
        "lease_expires_at": instant(row["shown_lease_expires_at"]),
        "silent_for": row["silent_for"],
        "asked": row["asked"],
        "asked_at": instant(row["shown_asked_at"]),
    }

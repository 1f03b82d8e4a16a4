"""Queues: what waits, what runs, for how long, and who serves them."""

from __future__ import annotations

from typing import Any, Final

from django.db import connections

from relay.conf import OWN_QUEUE, get_settings
from relay.engine import gauges
from relay.exceptions import UnknownQueue
from relay.operations import Actor
from relay.queries.documents import QueueDocument
from relay.queries.reading import COUNT_CAP, bounded_read, counted, instant
from relay.tasks import known_queues

__all__ = ["LIST_CAP", "get_queue", "list_queues", "read_queues"]

# In a list each queue's jobs are counted so far, of one queue up to COUNT_CAP.
LIST_CAP: Final = 1_000
# Queues of one list.
MOST_QUEUES: Final = 1_000

# Indexes: relay_job_ready_idx and relay_job_held_idx for each queue. Of the scheduled
# and retrying ones those are counted that are due next, by relay_job_due_idx and
# relay_job_retrying_idx. Workers are a small table. Times of rows made by hand may be
# infinite. Whoever enqueues may make names up: those that nothing names come last.
QUEUES: Final = f"""
WITH waiting(queue, seconds) AS MATERIALIZED (
    {gauges.LATENCY}
), named AS MATERIALIZED (
    SELECT name, bool_or(is_named) AS is_named FROM (
        SELECT name, true AS is_named FROM unnest(%(names)s::text[]) AS name
        UNION ALL
        SELECT name, true FROM relay_queue
        WHERE %(one)s::text IS NULL OR name = %(one)s
        UNION ALL
        SELECT queue, false FROM waiting
        WHERE queue <> %(own)s AND (%(one)s::text IS NULL OR queue = %(one)s)
    ) AS found
    GROUP BY name
    ORDER BY bool_or(is_named) DESC, name LIMIT %(most_queues)s
), due AS MATERIALIZED (
    SELECT queue, state FROM relay_job WHERE state IN ('scheduled', 'retrying')
    ORDER BY run_at LIMIT %(most_due)s
), scheduled AS MATERIALIZED (
    SELECT queue, count(*) AS jobs FROM due WHERE state = 'scheduled' GROUP BY queue
), again AS MATERIALIZED (
    SELECT queue FROM relay_job WHERE state = 'retrying'
    ORDER BY run_at LIMIT %(most_due)s
), retrying AS MATERIALIZED (
    SELECT queue, count(*) AS jobs FROM again GROUP BY queue
), serving AS MATERIALIZED (
    SELECT queue, count(*) AS workers, sum(concurrency) AS slots
    FROM relay_worker CROSS JOIN unnest(queues) AS queue
    WHERE state = 'running' AND lease_expires_at > statement_timestamp()
    GROUP BY queue
)
SELECT named.name, named.is_named, coalesce(stored.policy, 'priority'),
       coalesce(stored.weight, 1),
       stored.max_running, stored.key_limit,
       CASE WHEN stored.paused_at IS NOT NULL
            THEN least(stored.paused_at, '9999-12-30') END,
       CASE WHEN stored.paused_until IS NOT NULL
            THEN least(stored.paused_until, '9999-12-30') END,
       stored.paused_at IS NOT NULL AND (
           stored.paused_until IS NULL OR stored.paused_until > statement_timestamp()),
       (SELECT count(*) FROM (
            SELECT FROM relay_job
            WHERE state = 'queued' AND concurrency_key IS NULL AND queue = named.name
            ORDER BY priority DESC, ready_seq LIMIT %(most)s) AS job),
       (SELECT count(*) FROM (
            SELECT FROM relay_job WHERE state = 'running' AND queue = named.name
            LIMIT %(most)s) AS job),
       coalesce(scheduled.jobs, 0), (SELECT count(*) FROM due),
       coalesce(retrying.jobs, 0), (SELECT count(*) FROM again),
       coalesce(serving.workers, 0), coalesce(serving.slots, 0)::int8,
       coalesce(waiting.seconds, 0)
FROM named
LEFT JOIN relay_queue AS stored ON stored.name = named.name
LEFT JOIN scheduled ON scheduled.queue = named.name
LEFT JOIN retrying ON retrying.queue = named.name
LEFT JOIN serving ON serving.queue = named.name
LEFT JOIN waiting ON waiting.queue = named.name
ORDER BY named.name
"""  # noqa: S608 - constants only


def list_queues(actor: Actor) -> list[QueueDocument]:
    """Return all queues by name: of settings, tasks, rows and jobs that are ready.

    They are 1,000 at most; those that only jobs have are the first to be left out.
    Each one's queued and running jobs are counted up to 1,000, its scheduled and
    retrying ones among the 10,000 of all queues that are due next: with capped there
    may be more.

    Raises:
        NotAllowed: the actor lacks view_queue.
        ReadTimeout: it took longer than 2 s.
    """
    actor.require("view_queue", "list_queues")
    return read_queues(get_settings().database)


def read_queues(using: str) -> list[QueueDocument]:
    """As list_queues(), without asking who wants to know."""
    return _read(using, sorted(known_queues()), None, cap=LIST_CAP)


def get_queue(actor: Actor, name: str) -> QueueDocument:
    """Return one queue, its queued and running jobs counted up to 10,000.

    Raises:
        NotAllowed, ReadTimeout: as list_queues.
        UnknownQueue: nothing names it.
    """
    actor.require("view_queue", "get_queue")
    names = [name] if name in known_queues() else []
    found: list[QueueDocument] = []
    if "\x00" not in name:
        found = _read(get_settings().database, names, name, cap=COUNT_CAP)
    if not found:
        raise UnknownQueue(
            f"no settings, task or row names the queue {name[:100]!r}: correct the name"
        )
    return found[0]


def _read(
    using: str, names: list[str], one: str | None, *, cap: int
) -> list[QueueDocument]:
    values = {
        "names": names,
        "one": one,
        "own": OWN_QUEUE,
        "most": cap + 1,
        "most_due": COUNT_CAP + 1,
        "most_queues": MOST_QUEUES,
    }
    # What is named and what serves is sorted; each part of relay_job has its order.
    with bounded_read(using), connections[using].cursor() as cursor:
        cursor.execute(QUEUES, values)
        rows = cursor.fetchall()
    return [_document(row, cap) for row in rows]


def _document(row: tuple[Any, ...], cap: int) -> QueueDocument:
    name, is_named, policy, weight, max_running, key_limit, *rest = row
    paused_at, paused_until, is_paused, queued, running, *rest = rest
    scheduled, due, retrying, again, *serving = rest
    workers, slots, latency = serving
    return {
        "name": name,
        "is_named": is_named,
        "policy": policy,
        "paused": is_paused,
        "paused_at": instant(paused_at),
        "paused_until": instant(paused_until),
        "weight": weight,
        "max_running": max_running,
        "key_limit": key_limit,
        "latency": latency,
        "queued": counted(queued, cap=cap),
        "running": counted(running, cap=cap),
        "scheduled": counted(scheduled, more=due > COUNT_CAP),
        "retrying": counted(retrying, more=again > COUNT_CAP),
        "workers": workers,
        "slots": slots,
    }

"""Jobs by what they have in common, for acts over many: their ids, and how many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import connections, transaction

from relay.engine.connection import fetch_all

__all__ = ["JobFilter", "count", "find", "leaves_on_act", "statement"]

# The order of the index that serves a state: with it a statement reads no more than it
# returns and leaves out. States are literals, for the partial indexes. Of queued jobs
# those that relay_job_ready_idx holds; no option gives a job a concurrency_key yet. Of
# running ones those that nobody has asked to stop, so that asking goes on where it
# ended.
_OF_STATES: Final = {
    "scheduled": "state = 'scheduled'",  # relay_job_due_idx
    "retrying": "state = 'retrying'",  # relay_job_retrying_idx
    "queued": "state = 'queued' AND concurrency_key IS NULL",  # relay_job_ready_idx
    # relay_job_held_idx
    "running": "state = 'running' AND cancel_requested_at IS NULL",
    "failed": "state = 'failed' AND id > %(after)s",  # relay_job_failed_idx
    "cancelled": "state = 'cancelled' AND id > %(after)s",
}
_ORDERS: Final = {
    "scheduled": "run_at",
    "retrying": "run_at",
    "queued": "queue, priority DESC, ready_seq",
    "running": "queue, worker_id",
    "failed": "id",
    "cancelled": "id",
}
_CONDITIONS: Final = {
    "queue": "queue = %(queue)s",
    "task": "task = %(task)s",
    "tag": "tags @> ARRAY[%(tag)s::text]",  # relay_job_tags_idx
    "error_class": "error_class = %(error_class)s",
    "created_after": "created_at >= %(created_after)s",
    "created_before": "created_at < %(created_before)s",
    "finished_after": "finished_at >= %(finished_after)s",
    "finished_before": "finished_at < %(finished_before)s",
}

# Whatever the statistics say: a table of millions is not read for a few.
_PINNED: Final = "SET LOCAL enable_seqscan = off"
_UNPINNED: Final = "SET LOCAL enable_seqscan TO DEFAULT"

_FIRST: Final = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """What jobs must have; None asks for nothing. Times from the first, to the last."""

    queue: str | None = None
    task: str | None = None
    tag: str | None = None
    error_class: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    finished_after: datetime | None = None
    finished_before: datetime | None = None


def leaves_on_act(state: str) -> bool:
    """Tell whether a job that is acted on is not found again by the same filter.

    Of the others one goes on behind the last id.
    """
    return "after" not in _OF_STATES[state]


def statement(wanted: JobFilter, state: str) -> tuple[str, dict[str, Any]]:
    """Return the statement that finds the ids, and its values but limit and after."""
    values = {
        name: value
        for name in _CONDITIONS
        if (value := getattr(wanted, name)) is not None
    }
    conditions = [_OF_STATES[state], *(_CONDITIONS[name] for name in values)]
    # A tag has an index of its own: an order would lead the planner away from it.
    order = "" if wanted.tag and leaves_on_act(state) else f" ORDER BY {_ORDERS[state]}"
    text = (
        f"SELECT id FROM relay_job WHERE {' AND '.join(conditions)}{order} "  # noqa: S608 - constants only
        "LIMIT %(limit)s"
    )
    return text, values


def find(
    wanted: JobFilter, state: str, *, limit: int, after: UUID = _FIRST, using: str
) -> list[UUID]:
    """Return the ids of at most limit jobs of the state.

    Args:
        after: where leaves_on_act() is false, only ids above it, in their order.

    Transaction: its own.
    """
    text, values = statement(wanted, state)
    with _pinned(using):
        rows = fetch_all(text, {**values, "limit": limit, "after": after}, using=using)
    return [row[0] for row in rows]


def count(wanted: JobFilter, state: str, *, limit: int, using: str) -> int:
    """Return how many jobs of the state there are, but at most limit.

    Transaction: its own.
    """
    text, values = statement(wanted, state)
    with _pinned(using):
        [(found,)] = fetch_all(
            f"SELECT count(*) FROM ({text}) AS found",  # noqa: S608 - as above
            {**values, "limit": limit, "after": _FIRST},
            using=using,
        )
    return int(found)


@contextmanager
def _pinned(using: str) -> Iterator[None]:
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        cursor.execute(_PINNED)
        yield
        # A test's own transaction goes on behind this one.
        cursor.execute(_UNPINNED)

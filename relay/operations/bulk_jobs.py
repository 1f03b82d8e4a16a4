"""The jobs that a bulk operation is about, state by state, each along its index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import psycopg
from django.db import OperationalError, connections, models, transaction

from relay.exceptions import ArgumentError
from relay.models import Job
from relay.operations.job_filter import FilterError, JobFilter

__all__ = [
    "ACTIONS",
    "OWN_TASKS",
    "Action",
    "Place",
    "count",
    "find",
    "has_places",
    "states_of",
]

# relay's own jobs: an operation must not end itself.
OWN_TASKS: Final = ("relay.bulk", "relay.bulk.failed")

# Whatever the statistics say: a table of millions is not read for a few. Ended with the
# block, also inside a test's own transaction.
_PINNED: Final = "SET LOCAL enable_seqscan = off"
_UNPINNED: Final = "SET LOCAL enable_seqscan TO DEFAULT"
# Sets how long a statement may take, and returns how long it might before.
_BOUND: Final = """
WITH before AS MATERIALIZED (SELECT current_setting('statement_timeout') AS value)
SELECT value FROM before
WHERE set_config('statement_timeout', %s, true) IS NOT NULL
"""
# Who counts is waiting for the answer.
COUNT_SECONDS: Final = 2

# By state: what its index holds and the order it gives. Where a job that is acted on
# leaves the state, the first ones are found again and again; else by the place.
_CONDITIONS: Final = {
    "scheduled": models.Q(state="scheduled"),  # relay_job_due_idx
    "retrying": models.Q(state="retrying"),  # relay_job_retrying_idx
    # relay_job_ready_idx
    "queued": models.Q(state="queued", concurrency_key__isnull=True),
    # relay_job_held_idx; asked already, they are not asked again
    "running": models.Q(state="running", cancel_requested_at__isnull=True),
    "completed": models.Q(state="completed"),  # relay_job_final_idx
    "failed": models.Q(state="failed"),  # relay_job_failed_idx
    "cancelled": models.Q(state="cancelled"),
}
_ORDERS: Final = {
    "scheduled": ("run_at",),
    "retrying": ("run_at",),
    "queued": ("queue", "-priority", "ready_seq"),
    "running": ("queue", "worker_id"),
    "completed": ("finished_at", "id"),
    "failed": ("id",),
    "cancelled": ("id",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What may be done to all jobs that match.

    Attributes:
        permission: what the actor needs besides bulk_job.
        states: in which jobs may be, in the order in which a job goes through them.
        default: those that are meant where the filter names none.
        leaves: whether a job that was changed is found no more.
    """

    permission: str
    states: tuple[str, ...]
    default: tuple[str, ...]
    leaves: bool = True


_WAITING: Final = ("scheduled", "retrying", "queued")

ACTIONS: Final = {
    "cancel": Action(
        permission="cancel_job",
        states=(*_WAITING, "running"),
        default=(*_WAITING, "running"),
    ),
    "retry": Action(
        permission="retry_job", states=("failed", "cancelled"), default=("failed",)
    ),
    "replay": Action(
        permission="retry_job",
        states=("failed", "cancelled", "completed"),
        default=("failed",),
        leaves=False,
    ),
    "run_now": Action(
        permission="retry_job",
        states=("scheduled", "retrying"),
        default=("scheduled", "retrying"),
    ),
    "delete": Action(
        permission="delete_job",
        states=(*_WAITING, "completed", "failed", "cancelled"),
        default=("completed", "failed", "cancelled"),
    ),
}


@dataclass(frozen=True, slots=True)
class Place:
    """How far a state has been gone through: behind this job."""

    id: UUID
    finished_at: datetime | None = None


def states_of(action: str, wanted: JobFilter) -> tuple[str, ...]:
    """Return the states that the action goes through.

    Raises:
        ArgumentError: there is no such action, the filter means all jobs, or none in
            a state that the action is for.
    """
    rule = ACTIONS.get(action)
    if rule is None:
        raise ArgumentError(
            f"action={action!r}: give one of {', '.join(sorted(ACTIONS))}"
        )
    if wanted.is_empty:
        raise ArgumentError(
            "the filter is empty, which means all jobs: say which, such as "
            "queue:mail; of all, state:failed"
        )
    if wanted.states is None:
        return rule.default
    found = tuple(state for state in rule.states if state in wanted.states)
    if not found:
        raise ArgumentError(
            f"{action} is for jobs that are {', '.join(rule.states)}, and the filter "
            f"asks for {', '.join(sorted(wanted.states))}"
        )
    return found


def find(
    wanted: JobFilter,
    state: str,
    *,
    after: Place | None,
    before: datetime | None = None,
    limit: int,
    using: str,
) -> list[Place]:
    """Return at most limit jobs of the state, those behind a place.

    Args:
        before: only those that were enqueued by then.

    Transaction: its own, or the caller's.
    """
    rows = _rows(wanted, state, using)
    if after is not None and state == "completed":
        rows = rows.filter(
            models.Q(finished_at__gt=after.finished_at)
            | models.Q(finished_at=after.finished_at, id__gt=after.id),
            finished_at__gte=after.finished_at,  # where the index is entered
        )
    elif after is not None:
        rows = rows.filter(id__gt=after.id)
    if before is not None:
        rows = rows.filter(created_at__lte=before)
    with _pinned(using):
        found = list(rows.values_list("id", "finished_at")[:limit])
    return [Place(job_id, finished_at) for job_id, finished_at in found]


def has_places(action: str, state: str) -> bool:
    """Tell whether the state is gone through place by place, not from the front."""
    if state in ("failed", "cancelled"):
        return True
    return not ACTIONS[action].leaves


def count(
    wanted: JobFilter, states: Sequence[str], *, limit: int, using: str
) -> tuple[int, bool]:
    """Return how many jobs match, but at most limit; and whether there are more.

    Raises:
        FilterError: one state took longer than COUNT_SECONDS.
    """
    found = 0
    for state in states:
        left = limit + 1 - found
        try:
            with _pinned(using, seconds=COUNT_SECONDS):
                found += _rows(wanted, state, using).values("pk")[:left].count()
        except OperationalError as error:
            if not isinstance(error.__cause__, psycopg.errors.QueryCanceled):
                raise
            raise FilterError(
                f"the {state} jobs that match are not counted within {COUNT_SECONDS} "
                "s: name a narrower state or an end, such as finished:<24h"
            ) from error
        if found > limit:
            return limit, True
    return found, False


def _rows(wanted: JobFilter, state: str, using: str) -> models.QuerySet[Job]:
    rows = Job.objects.using(using).filter(
        _CONDITIONS[state], wanted.conditions(without_states=True)
    )
    rows = rows.exclude(task__in=OWN_TASKS)
    # A tag has an index of its own: an order would lead the planner away from it.
    if wanted.needs_bitmaps and state not in ("failed", "cancelled", "completed"):
        return rows.order_by()
    return rows.order_by(*_ORDERS[state])


@contextmanager
def _pinned(using: str, *, seconds: int | None = None) -> Iterator[None]:
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        cursor.execute(_PINNED)
        if seconds is not None:
            cursor.execute(_BOUND, [f"{seconds}s"])
            [(before,)] = cursor.fetchall()
        yield
        cursor.execute(_UNPINNED)
        if seconds is not None:
            cursor.execute(_BOUND, [before])

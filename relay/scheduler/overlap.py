"""What becomes of an occurrence while an earlier run of its schedule has not ended.

All of it happens under the schedule's row lock, in the transaction of the occurrence.
Source: docs/explanation/schedules.md, "Runs that overlap".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, get_args
from uuid import UUID

import psycopg

from relay.engine import rules
from relay.engine.control import CANCEL
from relay.exceptions import ScheduleError

__all__ = [
    "OPEN_JOBS",
    "OVERLAPS",
    "OverlapPolicy",
    "Settlement",
    "cancel_open",
    "check_overlap",
    "find_open",
    "settle",
]

OverlapPolicy = Literal["allow", "skip", "queue", "cancel"]
OVERLAPS: Final[tuple[str, ...]] = get_args(OverlapPolicy)

NOT_ENDED: Final = "the run before it has not ended"
ONE_WAITS: Final = "one waits already for the run before it to end"
REPLACED: Final = "a later one took its place"

# The jobs that a run may have to wait for. Where the policy was "allow" until now, the
# latest runs say; index: relay_occurrence_once.
OPEN_JOBS: Final = """CASE WHEN overlap <> 'allow' THEN coalesce(open_jobs, ARRAY(
    SELECT latest.job_id FROM (
        SELECT job_id FROM relay_occurrence
        WHERE schedule_id = relay_schedule.id ORDER BY due_at DESC LIMIT 100
    ) AS latest
    WHERE latest.job_id IS NOT NULL
)) END"""

# Primary key. Only live states count: a failed run holds up none. Source: failure 67.
FIND_OPEN: Final = """
SELECT id FROM relay_job
WHERE id = ANY(%(ids)s::uuid[]) AND state NOT IN ('completed', 'failed', 'cancelled')
"""


def check_overlap(policy: str) -> None:
    """Refuse a policy that is not known.

    Raises:
        ScheduleError: it is not; names those that are.
    """
    if policy not in OVERLAPS:
        raise ScheduleError(f"overlap {policy!r} is not known: {', '.join(OVERLAPS)}")


def find_open(connection: psycopg.Connection[Any], ids: list[UUID]) -> list[UUID]:
    """Return those of the jobs that have not ended."""
    if not ids:
        return []
    return [row[0] for row in connection.execute(FIND_OPEN, {"ids": ids}).fetchall()]


def cancel_open(
    connection: psycopg.Connection[Any], ids: list[UUID], *, actor: str
) -> list[UUID]:
    """Cancel the jobs; return those that run, and have been asked to stop.

    Transaction: joins the caller's, after which their workers are to be told.
    """
    by = {"event": "cancel", "actor": actor, "why": None}
    rows = connection.execute(CANCEL, {"ids": ids, **by, **rules.values()}).fetchall()
    return [job_id for job_id, state, *_ in rows if state == "running"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What becomes of instants.

    Attributes:
        fire: those that get a job at once.
        skipped: those that never do, each with the reason; among them may be the one
            that has been waiting.
        waiting: the one that gets a job once the run before it has ended.
    """

    fire: tuple[datetime, ...] = ()
    skipped: tuple[tuple[datetime, str], ...] = ()
    waiting: datetime | None = None


def settle(
    policy: str,
    instants: Sequence[datetime],
    *,
    is_open: bool,
    waiting: datetime | None,
) -> Settlement:
    """Decide about instants that are due, rising.

    Args:
        is_open: whether an earlier run has not ended.
        waiting: an earlier instant that waits for that.
    """
    if policy == "allow" or not instants:
        return Settlement(fire=tuple(instants), waiting=waiting)
    if policy == "cancel":
        # Only the last one is worth a start: each would cancel the one before it.
        *replaced, last = instants if waiting is None else (waiting, *instants)
        skipped = tuple((instant, REPLACED) for instant in replaced)
        if is_open:
            return Settlement(skipped=skipped, waiting=last)
        return Settlement(fire=(last,), skipped=skipped)
    rest = tuple(instants)
    fire: tuple[datetime, ...] = ()
    if not is_open:
        fire, rest = rest[:1], rest[1:]
    if policy == "skip":
        skipped = tuple((instant, NOT_ENDED) for instant in rest)
        return Settlement(fire=fire, skipped=skipped, waiting=waiting)
    if waiting is None and rest:
        waiting, rest = rest[0], rest[1:]
    skipped = tuple((instant, ONE_WAITS) for instant in rest)
    return Settlement(fire=fire, skipped=skipped, waiting=waiting)

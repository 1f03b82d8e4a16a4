"""Plan a schedule, and fire what is due: occurrence, job and next due instant at once.

Source: docs/explanation/schedules.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

import psycopg
from psycopg.rows import class_row

from relay.codec import clean_text
from relay.engine.enqueue import insert_with
from relay.ids import uuid7
from relay.scheduler.catchup import decide, first_after, on_time
from relay.scheduler.cron import CronSpec, Survey, load_zone, occurrences, parse
from relay.scheduler.job import make_job

__all__ = ["DEFINITION", "Wakeup", "fire", "forget_disabled", "record_error"]

logger = logging.getLogger("relay.scheduler")

Wakeup = tuple[str, int, int]
"""What workers are told: queue, priority, ready_seq."""

# What next_due_at was computed from stands in planned, in this form. An edit, made in
# whatever way, shows as a difference.
DEFINITION: Final = "concat_ws(E'\\n', cron, seconds::text, timezone)"

# Primary key. SKIP LOCKED: another scheduler fires it, or somebody edits it right now.
# The clock is read with the row, so that what is due then is due for everybody.
LOCK: Final = f"""
SELECT id, name, task, args::text AS args, queue, priority, cron, seconds, timezone,
    catch_up, catch_up_window_ms, next_due_at,
    clock_timestamp() + %(ahead)s::interval AS now,
    planned IS NULL AS is_new,
    planned IS DISTINCT FROM {DEFINITION} AS is_changed
FROM relay_schedule
WHERE id = %(id)s AND enabled
FOR NO KEY UPDATE SKIP LOCKED
"""  # noqa: S608 - joins a constant, no value

# Unique: relay_occurrence_once. A row that is there already was fired, or recorded as
# missed, by another scheduler, or before next_due_at was set back by hand.
INSERT_FIRED: Final = """
INSERT INTO relay_occurrence (schedule_id, due_at, state, job_id)
SELECT %(schedule_id)s, due_at, 'fired', job_id
FROM unnest(%(due_at)s::timestamptz[], %(job_id)s::uuid[]) AS fired(due_at, job_id)
ON CONFLICT (schedule_id, due_at) DO NOTHING
RETURNING due_at, job_id
"""

INSERT_MISSED: Final = """
INSERT INTO relay_occurrence (schedule_id, due_at, state, count, until_at)
VALUES (%(schedule_id)s, %(first)s, 'missed', %(count)s, %(last)s)
ON CONFLICT (schedule_id, due_at) DO NOTHING
"""

# The row is locked: its definition is what was read.
ADVANCE: Final = f"""
UPDATE relay_schedule
SET planned = {DEFINITION}, next_due_at = %(next_due_at)s, last_error = NULL,
    last_due_at = COALESCE(%(last_due_at)s, last_due_at)
WHERE id = %(id)s
"""  # noqa: S608 - joins a constant, no value

# What was disabled is planned anew when it is enabled: without back-fill, from then on.
FORGET_DISABLED: Final = """
UPDATE relay_schedule SET planned = NULL, next_due_at = NULL, last_error = NULL
WHERE id IN (
    SELECT id FROM relay_schedule
    WHERE NOT enabled AND (planned IS NOT NULL OR next_due_at IS NOT NULL)
    FOR NO KEY UPDATE SKIP LOCKED
)
"""

# A definition that could not be planned has no next instant. Written only if the text
# is new, so that two schedulers which disagree do not write in turns for ever.
RECORD_ERROR: Final = f"""
UPDATE relay_schedule
SET last_error = %(error)s, planned = {DEFINITION},
    next_due_at = CASE WHEN planned = {DEFINITION} THEN next_due_at END
WHERE id = %(id)s AND enabled AND last_error IS DISTINCT FROM %(error)s
RETURNING xmin::text
"""  # noqa: S608 - joins a constant, no value

_LONGEST_ERROR: Final = 1_000


@dataclass(slots=True)
class _Row:
    """A schedule's row as LOCK reads it.

    Attributes:
        events: what to log of it once that is committed: level, message, values.
    """

    id: UUID
    name: str
    task: str
    args: str
    queue: str | None
    priority: int | None
    cron: str
    seconds: bool
    timezone: str
    catch_up: str
    catch_up_window_ms: int
    next_due_at: datetime | None
    now: datetime
    is_new: bool
    is_changed: bool
    events: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)


def fire(
    connection: psycopg.Connection[Any],
    schedule_id: UUID,
    *,
    ahead: timedelta = timedelta(0),
) -> list[Wakeup]:
    """Plan the schedule if it is new or changed, and enqueue what is due.

    Each occurrence has one row and one job however many schedulers run, as both are
    written with the next due instant in one transaction, under the row's lock. A
    schedule that is gone, disabled or locked is left alone.

    Args:
        ahead: how far from the database's clock the time is taken to be; for tests.

    Returns:
        what to tell workers, now that it is committed.

    Raises:
        ScheduleError: the row cannot be kept as it stands; nothing was written.
        psycopg.Error: nothing was written.

    Transaction: its own.
    """
    with connection.transaction():
        with connection.cursor(row_factory=class_row(_Row)) as cursor:
            row = cursor.execute(LOCK, {"id": schedule_id, "ahead": ahead}).fetchone()
        if row is None:
            return []
        spec = parse(row.cron, seconds=row.seconds, hash_id=str(row.id))
        zone = load_zone(row.timezone)
        due_at = _due_at(row, spec, zone)
        wakeups: list[Wakeup] = []
        if due_at is None:
            _advance(connection, row, first_after(spec, zone, row.now), None)
        else:
            wakeups = _fire_due(connection, row, spec, zone, due_at)
    # Not earlier: it would say what a rollback takes back, and a log's handler is
    # somebody else's code, which must not run under the row's lock.
    for level, message, values in row.events:
        logger.log(level, message, extra={"schedule": row.name, **values})
    return wakeups


def _due_at(row: _Row, spec: CronSpec, zone: ZoneInfo) -> datetime | None:
    """Return the instant from which the row is due; None to plan it from now on.

    A changed definition counts from when it is noticed, except that an instant which
    both the old and the new one name, and which has just come, is not lost.
    """
    due_at = row.next_due_at
    if due_at is None or (not row.is_changed):
        return due_at
    if row.is_new or not timedelta(0) <= row.now - due_at <= on_time(spec):
        return None
    before = due_at - timedelta(microseconds=1)
    is_kept = due_at in occurrences(spec, zone, after=before, limit=1)
    return due_at if is_kept else None


def _fire_due(
    connection: psycopg.Connection[Any],
    row: _Row,
    spec: CronSpec,
    zone: ZoneInfo,
    due_at: datetime,
) -> list[Wakeup]:
    decision = decide(
        spec,
        zone,
        next_due_at=due_at,
        now=row.now,
        catch_up=row.catch_up,
        window=timedelta(milliseconds=row.catch_up_window_ms),
    )
    wakeups = _enqueue(connection, row, decision.fire)
    _record_missed(connection, row, decision.missed)
    last = decision.fire[-1] if decision.fire else None
    _advance(connection, row, decision.next_due_at, last)
    return wakeups


def _enqueue(
    connection: psycopg.Connection[Any], row: _Row, instants: Iterable[datetime]
) -> list[Wakeup]:
    jobs = {uuid7(): instant for instant in instants}
    if not jobs:
        return []
    job = make_job(row)
    inserted = connection.execute(
        INSERT_FIRED,
        {
            "schedule_id": row.id,
            "due_at": list(jobs.values()),
            "job_id": list(jobs),
        },
    ).fetchall()
    wakeups: list[Wakeup] = []
    for due_at, job_id in sorted(inserted):
        occurrence = replace(job, id=job_id, occurrence_at=due_at)
        ready_seq = insert_with(connection, occurrence)
        if ready_seq is not None:
            wakeups.append((job.queue, job.priority, ready_seq))
        values = {
            "due_at": due_at.astimezone(UTC).isoformat(),
            "job_id": str(job_id),
        }
        row.events.append((logging.INFO, "schedule fired", values))
    return wakeups


def _record_missed(
    connection: psycopg.Connection[Any], row: _Row, missed: Survey
) -> None:
    if missed.first is None or missed.last is None:
        return
    connection.execute(
        INSERT_MISSED,
        {
            "schedule_id": row.id,
            "first": missed.first,
            "count": missed.total,
            "last": missed.last,
        },
    )
    values = {
        "missed": missed.total,
        "first_at": missed.first.isoformat(),
        "until_at": missed.last.isoformat(),
        "catch_up": row.catch_up,
    }
    row.events.append((logging.WARNING, "occurrences missed", values))


def _advance(
    connection: psycopg.Connection[Any],
    row: _Row,
    next_due_at: datetime,
    last_due_at: datetime | None,
) -> None:
    connection.execute(
        ADVANCE,
        {"id": row.id, "next_due_at": next_due_at, "last_due_at": last_due_at},
    )
    if row.is_changed:
        values = {"next_due_at": next_due_at.isoformat(), "timezone": row.timezone}
        row.events.append((logging.INFO, "schedule planned", values))


def forget_disabled(connection: psycopg.Connection[Any]) -> None:
    """Take the plan off disabled schedules, so that enabling plans them from then on.

    Transaction: its own; rows locked by others are skipped.
    """
    connection.execute(FORGET_DISABLED)


def record_error(
    connection: psycopg.Connection[Any], schedule_id: UUID, error: str
) -> str | None:
    """Write on the schedule's row why it cannot be kept.

    Returns:
        the row's new xmin; None if it said so already, or is gone.

    Transaction: its own.
    """
    text = clean_text(error, limit=_LONGEST_ERROR)
    row = connection.execute(
        RECORD_ERROR, {"id": schedule_id, "error": text}
    ).fetchone()
    return None if row is None else row[0]

"""Plan a schedule, and fire what is due: occurrence, job and next due instant at once.

Source: docs/explanation/schedules.md.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.rows import class_row

from relay.codec import clean_text
from relay.conf import get_settings
from relay.engine.enqueue import insert_with
from relay.engine.wakeup import NOTIFY_CANCEL
from relay.ids import uuid7
from relay.scheduler import overlap
from relay.scheduler.catchup import decide
from relay.scheduler.cron import Survey
from relay.scheduler.due import DEFINITION
from relay.scheduler.job import make_job
from relay.scheduler.news import News
from relay.scheduler.timetable import Timetable, read_timetable, spread_of

__all__ = ["Wakeup", "fire", "record_error"]

Wakeup = tuple[str, int, int]
"""What workers are told: queue, priority, ready_seq."""

# Primary key. SKIP LOCKED: another scheduler fires it, or somebody edits it right now.
# The clock is read with the row, so that what is due then is due for everybody.
LOCK: Final = f"""
SELECT id, name, task, args::text AS args, queue, priority, cron, seconds, timezone,
    every_ms, once_at, starts_at, ends_at, excluded, spread_ms, overlap,
    catch_up, catch_up_window_ms, next_due_at, finished_at, last_due_at, waiting_at,
    clock_timestamp() + %(ahead)s::interval AS now,
    planned IS NULL AS is_new,
    planned IS DISTINCT FROM {DEFINITION} AS is_changed,
    {overlap.OPEN_JOBS} AS open_jobs
FROM relay_schedule
WHERE id = %(id)s AND enabled
FOR NO KEY UPDATE SKIP LOCKED
"""  # noqa: S608 - joins constants, no value

# Unique: relay_occurrence_once. A row that is there already was fired, or recorded as
# missed, by another scheduler, or before next_due_at was set back by hand.
INSERT_FIRED: Final = """
INSERT INTO relay_occurrence (schedule_id, due_at, state, job_id, window_start)
SELECT %(schedule_id)s, due_at, 'fired', job_id, window_start
FROM unnest(%(due_at)s::timestamptz[], %(job_id)s::uuid[], %(window)s::timestamptz[])
    AS fired(due_at, job_id, window_start)
ON CONFLICT (schedule_id, due_at) DO NOTHING
RETURNING due_at, job_id
"""

INSERT_MISSED: Final = """
INSERT INTO relay_occurrence (schedule_id, due_at, state, count, until_at)
VALUES (%(schedule_id)s, %(first)s, 'missed', %(count)s, %(last)s)
ON CONFLICT (schedule_id, due_at) DO NOTHING
"""

# An occurrence that has been waiting is there already.
INSERT_HELD: Final = """
INSERT INTO relay_occurrence (schedule_id, due_at, state, reason)
SELECT %(schedule_id)s, due_at, state, reason
FROM unnest(%(due_at)s::timestamptz[], %(state)s::text[], %(reason)s::text[])
    AS held(due_at, state, reason)
ON CONFLICT (schedule_id, due_at) DO UPDATE
SET state = excluded.state, reason = excluded.reason
WHERE relay_occurrence.state = 'waiting'
"""
FIND_KNOWN: Final = """
SELECT due_at FROM relay_occurrence
WHERE schedule_id = %(schedule_id)s AND due_at = ANY(%(due_at)s::timestamptz[])
"""
# Its row would be in the way of the one that is fired.
TAKE_WAITING: Final = """
DELETE FROM relay_occurrence
WHERE schedule_id = %(schedule_id)s AND due_at = %(due_at)s AND state = 'waiting'
RETURNING due_at
"""

# The row is locked: its definition is what was read.
ADVANCE: Final = f"""
UPDATE relay_schedule
SET planned = {DEFINITION}, next_due_at = %(next_due_at)s, last_error = NULL,
    finished_at = CASE WHEN %(next_due_at)s::timestamptz IS NULL
                  THEN coalesce(finished_at, clock_timestamp()) END,
    last_due_at = %(last_due_at)s,
    open_jobs = %(open_jobs)s::uuid[], waiting_at = %(waiting_at)s
WHERE id = %(id)s
"""  # noqa: S608 - joins a constant, no value

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
    """A schedule's row as LOCK reads it, and what becomes of it.

    Attributes:
        now: the time by which instants are due: as much earlier as the schedule's
            spread puts its runs off.
        open_jobs: None where runs may overlap.
        waited: the occurrence that was waiting for a run to end, and waits no more.
        news: what to tell of it once that is committed.
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
    every_ms: int | None
    once_at: datetime | None
    starts_at: datetime | None
    ends_at: datetime | None
    excluded: str | None
    spread_ms: int | None
    overlap: str
    catch_up: str
    catch_up_window_ms: int
    next_due_at: datetime | None
    finished_at: datetime | None
    last_due_at: datetime | None
    waiting_at: datetime | None
    now: datetime
    is_new: bool
    is_changed: bool
    open_jobs: list[UUID] | None
    has_asked: bool = False
    wakeups: list[Wakeup] = field(default_factory=list)
    waited: datetime | None = None
    news: News = field(default_factory=News)


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
    news = News()
    with news.told_after(), connection.transaction():
        with connection.cursor(row_factory=class_row(_Row)) as cursor:
            row = cursor.execute(LOCK, {"id": schedule_id, "ahead": ahead}).fetchone()
        if row is None:
            return []
        row.news = news
        overlap.check_overlap(row.overlap)
        row.now -= spread_of(row.name, row.spread_ms)
        if row.open_jobs is not None:
            row.open_jobs = overlap.find_open(connection, row.open_jobs)
        _advance(connection, row, _fire_due(connection, row, read_timetable(row)))
    if row.has_asked and get_settings().notify:
        connection.execute(NOTIFY_CANCEL)
    news.tell(row.name)
    return row.wakeups


def _fire_due(
    connection: psycopg.Connection[Any], row: _Row, timetable: Timetable
) -> datetime | None:
    """Fire, hold or record what is due; return the next due instant."""
    due_at = _due_at(row, timetable)
    if due_at is None:
        _release(connection, row, timetable)
        is_over = row.finished_at is not None and not row.is_changed
        return None if is_over else timetable.first_after(row.now)
    decision = decide(
        timetable,
        next_due_at=due_at,
        now=row.now,
        catch_up=row.catch_up,
        window=timedelta(milliseconds=row.catch_up_window_ms),
    )
    instants = _without_known(connection, row, decision.fire)
    if not (row.overlap == "cancel" and instants):
        _release(connection, row, timetable)
    elif row.open_jobs:
        asked = overlap.cancel_open(
            connection, row.open_jobs, actor=f"schedule {row.name}"
        )
        row.open_jobs, row.has_asked = asked, bool(asked)
    settled = overlap.settle(
        row.overlap, instants, is_open=bool(row.open_jobs), waiting=row.waiting_at
    )
    if row.waiting_at in settled.fire:
        _take_waiting(connection, row)
    _hold(connection, row, settled)
    _enqueue(connection, row, timetable, settled.fire)
    _record_missed(connection, row, decision.missed)
    return decision.next_due_at


def _due_at(row: _Row, timetable: Timetable) -> datetime | None:
    """Return the instant from which the row is due; None to plan it from now on.

    A changed definition counts from when it is noticed, except that an instant which
    both the old and the new one name, or which is the only one, and which has just
    come, is not lost.
    """
    due_at = row.next_due_at
    if not row.is_changed:
        return due_at
    if isinstance(timetable.rule, datetime):
        due_at = timetable.rule
    elif row.is_new:
        return None
    if due_at is None or not timedelta(0) <= row.now - due_at <= timetable.on_time:
        return None
    before = due_at - timedelta(microseconds=1)
    return due_at if timetable.first_after(before) == due_at else None


def _without_known(
    connection: psycopg.Connection[Any], row: _Row, instants: Sequence[datetime]
) -> Sequence[datetime]:
    """Leave out what has a row already; where runs may overlap, the insert does that.

    Rows are made under the schedule's lock only, so that none appears meanwhile.
    """
    if not instants or row.overlap == "allow":
        return instants
    values = {"schedule_id": row.id, "due_at": list(instants)}
    known = {due_at for (due_at,) in connection.execute(FIND_KNOWN, values).fetchall()}
    _note_known(row, [instant for instant in instants if instant in known])
    return [instant for instant in instants if instant not in known]


def _note_known(row: _Row, instants: Sequence[datetime]) -> None:
    for at in instants:
        row.news.note(logging.INFO, "occurrence was there already", due_at=_text(at))


def _release(
    connection: psycopg.Connection[Any], row: _Row, timetable: Timetable
) -> None:
    """Fire the occurrence that waits, if nothing stands in its way any more."""
    if row.waiting_at is not None and not row.open_jobs:
        due_at = row.waiting_at
        if _take_waiting(connection, row):
            _enqueue(connection, row, timetable, [due_at])


def _take_waiting(connection: psycopg.Connection[Any], row: _Row) -> bool:
    values = {"schedule_id": row.id, "due_at": row.waiting_at}
    row.waited, row.waiting_at = row.waiting_at, None
    return connection.execute(TAKE_WAITING, values).fetchone() is not None


def _hold(
    connection: psycopg.Connection[Any], row: _Row, settled: overlap.Settlement
) -> None:
    """Record what is skipped, and what waits."""
    held: list[tuple[datetime, str, str | None]] = [
        (due_at, "skipped", reason) for due_at, reason in settled.skipped
    ]
    if settled.waiting is not None and settled.waiting != row.waiting_at:
        held.append((settled.waiting, "waiting", None))
    row.waiting_at = settled.waiting
    if not held:
        return
    due_at, state, reason = zip(*held, strict=True)
    connection.execute(
        INSERT_HELD,
        {
            "schedule_id": row.id,
            "due_at": list(due_at),
            "state": list(state),
            "reason": list(reason),
        },
    )
    for at, _, why in held:
        if why is None:
            row.news.note(logging.INFO, "occurrence waits", due_at=_text(at))
        else:
            row.news.note(
                logging.INFO, "occurrence skipped", due_at=_text(at), reason=why
            )


def _enqueue(
    connection: psycopg.Connection[Any],
    row: _Row,
    timetable: Timetable,
    instants: Sequence[datetime],
) -> None:
    if not instants:
        return
    jobs = {uuid7(): instant for instant in instants}
    job = make_job(row)
    inserted = connection.execute(
        INSERT_FIRED,
        {
            "schedule_id": row.id,
            "due_at": list(jobs.values()),
            "job_id": list(jobs),
            "window": _window_starts(row, timetable, instants),
        },
    ).fetchall()
    there = {due_at for due_at, _ in inserted}
    _note_known(row, [instant for instant in instants if instant not in there])
    for due_at, job_id in sorted(inserted):
        occurrence = job._replace(id=job_id, occurrence_at=due_at)
        occurrence = row.news.enqueues(row.name, occurrence, due_at)
        ready_seq = insert_with(connection, occurrence)
        if ready_seq is not None:
            row.wakeups.append((job.queue, job.priority, ready_seq))
        if row.open_jobs is not None:
            row.open_jobs.append(job_id)
        late = row.now - due_at
        is_caught_up = late > timetable.on_time and due_at != row.waited
        row.news.note(
            logging.INFO,
            "schedule caught up" if is_caught_up else "schedule fired",
            due_at=_text(due_at),
            job_id=str(job_id),
            late_s=max(0.0, late.total_seconds()),
        )
    row.last_due_at = instants[-1]


def _window_starts(
    row: _Row, timetable: Timetable, instants: Sequence[datetime]
) -> list[datetime | None]:
    """Return of each instant the one before it that was run, or that never was."""
    first = row.last_due_at
    if first is None or first >= instants[0]:
        first = timetable.last_before(instants[0])
    return [first, *instants[:-1]]


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
    row.news.note(
        logging.WARNING,
        "occurrences missed",
        missed=missed.total,
        first_at=missed.first.isoformat(),
        until_at=missed.last.isoformat(),
        catch_up=row.catch_up,
    )


def _advance(
    connection: psycopg.Connection[Any], row: _Row, next_due_at: datetime | None
) -> None:
    connection.execute(
        ADVANCE,
        {
            "id": row.id,
            "next_due_at": next_due_at,
            "last_due_at": row.last_due_at,
            "open_jobs": row.open_jobs,
            "waiting_at": row.waiting_at,
        },
    )
    if row.is_changed:
        row.news.note(
            logging.INFO,
            "schedule planned",
            next_due_at=next_due_at and next_due_at.isoformat(),
            timezone=row.timezone,
        )


def _text(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat()


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

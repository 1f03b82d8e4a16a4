"""Schedules: when they run next, how they keep their times, what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, cast
from uuid import UUID

from django.db import models
from django.db.models.expressions import RawSQL
from django.utils import timezone as clock

from relay.conf import get_settings
from relay.exceptions import ArgumentError, NotFound, ScheduleError
from relay.ids import uuid7
from relay.instants import aware
from relay.models import Occurrence, Schedule
from relay.operations import Actor
from relay.queries.documents import (
    FireDocument,
    OccurrenceDocument,
    ScheduleDetail,
    ScheduleDocument,
    SchedulePage,
    UpcomingDocument,
)
from relay.queries.paging import read_page
from relay.queries.reading import (
    bounded_read,
    clamped,
    instant,
    payload,
    seconds,
    shown_text,
    small,
    text_id,
    texted,
)
from relay.scheduler import preview as looking_ahead
from relay.scheduler.due import SPREAD
from relay.scheduler.expression import parse
from relay.scheduler.lateness import (
    LATE,
    SINCE_DUE,
    SINCE_SUCCESS,
    Lateness,
    lateness_of,
)
from relay.scheduler.timetable import check_spread
from relay.scheduler.words import in_words

__all__ = [
    "MOST_FIRES",
    "get_schedule",
    "get_upcoming",
    "list_occurrences",
    "list_schedules",
    "next_fires",
    "preview",
]

# Runs to come that are told at once, and occurrences of one schedule.
MOST_FIRES: Final = 100
FIRES: Final = 5
OCCURRENCES: Final = 20
MOST_OCCURRENCES: Final = 500

_COLUMNS: Final = (
    *("id", "name", "task", "queue", "priority", "cron", "seconds", "timezone"),
    *("every_ms", "excluded", "spread_ms", "catch_up", "catch_up_window_ms"),
    *("overlap", "success_within_ms", "enabled", "source", "last_error"),
)
_NEXT: Final = models.F("next_due_at").asc(nulls_first=True)
_TIMES: Final = (
    *("once_at", "starts_at", "ends_at", "next_due_at", "last_due_at"),
    *("last_success_at", "waiting_at", "finished_at", "retired_at", "created_at"),
)
# One scan of a small table, as the scheduler makes it each second; of what it finds so
# many are kept in memory as are shown. The same is late as in lateness_of().
UPCOMING: Final = f"""
SELECT id FROM (
    SELECT id, row_number() OVER (
        PARTITION BY is_late ORDER BY next_due_at NULLS FIRST, name) AS place
    FROM (
        SELECT id, name, next_due_at,
               last_error IS NOT NULL
               OR next_due_at + {SPREAD.replace("%", "%%")}
                  < statement_timestamp() - %s * interval '1 s'
               OR success_within_ms IS NOT NULL
                  AND {SINCE_SUCCESS} * 1000 > success_within_ms AS is_late
        FROM relay_schedule WHERE enabled AND finished_at IS NULL
    ) AS kept
    WHERE is_late OR next_due_at IS NOT NULL
) AS placed WHERE place <= %s
"""  # noqa: S608 - constants only


@dataclass(slots=True, kw_only=True)
class _Planned:
    """What a schedule's instants follow from."""

    id: UUID
    name: str
    cron: str = ""
    seconds: bool = False
    timezone: str = "UTC"
    every_ms: int | None = None
    once_at: datetime | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    excluded: str | None = None
    spread_ms: int | None = None


def list_schedules(
    actor: Actor, *, limit: int = 50, cursor: str | None = None
) -> SchedulePage:
    """Return a page of schedules, by their names.

    Args:
        limit: 1 to 500.
        cursor: next or previous of another page.

    Raises:
        NotAllowed: the actor lacks view_schedule.
        ArgumentError: the limit or the cursor cannot be used.
        ReadTimeout: it took longer than 2 s.
    """
    actor.require("view_schedule", "list_schedules")
    shown, using = actor.may("view_payload"), get_settings().database
    with bounded_read(using):
        page = read_page(
            Schedule.objects.using(using),
            ("name",),
            _COLUMNS,
            shown={**_shown(), "shown_args": small("args")},
            limit=limit,
            cursor=cursor,
        )
    results = [_document(row, shown=shown) for row in page.rows]
    return {"results": results, "next": page.next, "previous": page.previous}


def get_upcoming(actor: Actor, *, limit: int = FIRES) -> UpcomingDocument:
    """Return schedules in trouble, those due for longest first, and the next ones due.

    In trouble is what is late, cannot be kept, or has had no success for too long. What
    is paused or over is neither. It is one statement, however many schedules there are.

    Args:
        limit: 1 to 100, of each.

    Raises:
        NotAllowed: the actor lacks view_schedule.
        ArgumentError: the limit cannot be used.
        ReadTimeout: it took longer than 2 s.
    """
    actor.require("view_schedule", "get_upcoming")
    most = _checked(limit, MOST_FIRES)
    shown, using = actor.may("view_payload"), get_settings().database
    first = RawSQL(UPCOMING, [LATE.total_seconds(), most])  # noqa: S611 - constants
    rows = Schedule.objects.using(using).filter(pk__in=first)
    rows = rows.annotate(**_shown(), shown_args=small("args"))
    names = (*_COLUMNS, *_shown(), "shown_args")
    with bounded_read(using):
        found = list(rows.order_by(_NEXT, "name").values(*names))
    documents = [_document(row, shown=shown) for row in found]
    late = [each for each in documents if _is_in_trouble(each)]
    return {
        "late": late,
        "next": [each for each in documents if not _is_in_trouble(each)],
    }


def _is_in_trouble(schedule: ScheduleDocument) -> bool:
    return (
        schedule["error"] is not None
        or schedule["is_late"]
        or schedule["is_unsuccessful"]
    )


def get_schedule(actor: Actor, name: str) -> ScheduleDetail:
    """Return one schedule, with its next 5 runs and its latest 20 occurrences.

    Raises:
        NotAllowed: the actor lacks view_schedule.
        NotFound: there is none of this name.
    """
    actor.require("view_schedule", "get_schedule")
    shown, using = actor.may("view_payload"), get_settings().database
    row = _row(name, using)
    document = _document(row, shown=shown)
    try:
        runs = _fires(_planned(row), FIRES)
    except ScheduleError:
        runs = []  # the scheduler has written down why
    latest = _occurrences(row["id"], using, OCCURRENCES)
    return cast("ScheduleDetail", {**document, "next": runs, "occurrences": latest})


def list_occurrences(
    actor: Actor, name: str, *, limit: int = OCCURRENCES
) -> list[OccurrenceDocument]:
    """Return a schedule's latest occurrences, the latest first.

    Raises:
        NotAllowed, NotFound: as get_schedule.
        ArgumentError: the limit is not 1 to 500.
    """
    actor.require("view_schedule", "list_occurrences")
    most, using = _checked(limit, MOST_OCCURRENCES), get_settings().database
    return _occurrences(_row(name, using)["id"], using, most)


def next_fires(actor: Actor, name: str, *, limit: int = FIRES) -> list[FireDocument]:
    """Return the next runs of a schedule, as they will happen while it stays as it is.

    Those of a paused one are told too. None are left of one that is over.

    Raises:
        NotAllowed, NotFound: as get_schedule.
        ArgumentError: the limit is not 1 to 100.
        ScheduleError: the schedule cannot be kept as it stands.
    """
    actor.require("view_schedule", "next_fires")
    most = _checked(limit, MOST_FIRES)
    return _fires(_planned(_row(name, get_settings().database)), most)


def preview(
    actor: Actor,
    *,
    cron: str = "",
    seconds: bool = False,
    every: timedelta | None = None,
    once_at: datetime | None = None,
    timezone: str = "UTC",
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
    excluded: str | None = None,
    spread: timedelta | None = None,
    name: str = "preview",
    limit: int = FIRES,
) -> list[FireDocument]:
    """Return the next runs that a schedule would have, which nobody has saved.

    Args:
        cron: five fields, or six with seconds; or give every, or once_at.
        excluded: one a line: dates, stretches of dates, expressions.
        name: of the schedule, which its place within the spread follows from.

    Raises:
        NotAllowed: the actor lacks view_schedule.
        ArgumentError: the limit is not 1 to 100, or a time has no zone.
        ScheduleError: a schedule like this cannot be kept.
    """
    actor.require("view_schedule", "preview")
    _check_zones(once_at=once_at, starts_at=starts_at, ends_at=ends_at)
    if not (cron or every or once_at):
        raise ScheduleError("give one of: an expression, an interval, an instant")
    if spread is not None:
        check_spread(spread)
    planned = _Planned(
        id=uuid7(),
        name=name,
        cron=cron,
        seconds=seconds,
        timezone=timezone,
        every_ms=_milliseconds(every),
        once_at=once_at,
        starts_at=starts_at,
        ends_at=ends_at,
        excluded=excluded,
        spread_ms=_milliseconds(spread),
    )
    return _fires(planned, _checked(limit, MOST_FIRES))


def _check_zones(**times: datetime | None) -> None:
    for word, value in times.items():
        if value is not None and value.utcoffset() is None:
            raise ArgumentError(f"{word}={value!r}: give a time with a zone")


# --- rows ----------------------------------------------------------------------------


def _checked(limit: object, most: int) -> int:
    if isinstance(limit, int) and not isinstance(limit, bool) and 1 <= limit <= most:
        return limit
    raise ArgumentError(f"limit={limit!r}: give a whole number from 1 to {most}")


def _milliseconds(span: timedelta | None) -> int | None:
    return None if span is None else span // timedelta(milliseconds=1)


def _shown() -> dict[str, models.Expression]:
    return {
        **{f"shown_{name}": clamped(name) for name in _TIMES},
        "due_s": RawSQL(SINCE_DUE, [], models.FloatField()),  # noqa: S611 - constants
        "success_s": RawSQL(SINCE_SUCCESS, [], models.FloatField()),  # noqa: S611 - constants
    }


def _row(name: str, using: str) -> dict[str, Any]:
    rows = Schedule.objects.using(using).filter(name=name.replace("\x00", ""))
    rows = rows.annotate(**_shown(), shown_args=texted("args"))
    row: dict[str, Any] | None
    row = rows.values(*_COLUMNS, *_shown(), "shown_args").first()
    if row is None:
        raise NotFound(f"no schedule is called {name[:200]!r}")
    return row


def _planned(row: Mapping[str, Any]) -> _Planned:
    names = ("id", "name", "cron", "seconds", "timezone", "every_ms", "spread_ms")
    times = {name: row[f"shown_{name}"] for name in ("once_at", "starts_at", "ends_at")}
    instants: dict[str, Any] = {
        name: value and aware(value) for name, value in times.items()
    }
    given: dict[str, Any] = {name: row[name] for name in names}
    return _Planned(**given, **instants, excluded=row["excluded"])


def _fires(planned: _Planned, limit: int) -> list[FireDocument]:
    try:
        runs = looking_ahead.preview(planned, now=aware(clock.now()), limit=limit)
    except OverflowError as error:
        raise ScheduleError(f"the schedule cannot be kept: {error}") from error
    return [
        {
            "planned_at": instant(run.planned_at),
            "starts_at": instant(run.starts_at),
            "local": run.local.isoformat(),
            "note": run.mark or None,
        }
        for run in runs
    ]


def _occurrences(schedule_id: UUID, using: str, limit: int) -> list[OccurrenceDocument]:
    # Index: relay_occurrence_once, from its end.
    rows = (
        Occurrence.objects.using(using)
        .filter(schedule_id=schedule_id)
        .order_by("-due_at")
        .annotate(shown_due_at=clamped("due_at"), shown_until_at=clamped("until_at"))
        .values(
            *("state", "job_id", "outcome", "reason", "count"),
            *("shown_due_at", "shown_until_at"),
        )[:limit]
    )
    return [
        {
            "due_at": instant(row["shown_due_at"]),
            "state": row["state"],
            "job_id": text_id(row["job_id"]),
            "outcome": row["outcome"],
            "reason": row["reason"],
            "count": row["count"],
            "until_at": instant(row["shown_until_at"]),
        }
        for row in rows
    ]


def _when(row: Mapping[str, Any]) -> str:
    if row["cron"]:
        return str(row["cron"])
    if row["every_ms"] is not None:
        try:
            return f"every {timedelta(milliseconds=row['every_ms'])}"
        except OverflowError:
            return f"every {row['every_ms']} ms"
    at = instant(row["shown_once_at"])
    return "never" if at is None else f"once at {at}"


def _words(row: Mapping[str, Any]) -> str | None:
    if not row["cron"]:
        return _when(row)
    try:
        return in_words(
            parse(row["cron"], seconds=row["seconds"], hash_id=str(row["id"]))
        )
    except ScheduleError:
        return None  # the scheduler has written down why


def _late(row: Mapping[str, Any]) -> Lateness | None:
    """Return how it keeps its times; None of one that is paused or over."""
    if not row["enabled"] or row["shown_finished_at"] is not None:
        return None
    names = ("id", "name", "spread_ms", "success_within_ms", "shown_last_success_at")
    return lateness_of(*(row[name] for name in (*names, "due_s", "success_s")))


def _document(row: Mapping[str, Any], *, shown: bool) -> ScheduleDocument:
    call = payload(row["shown_args"], shown=shown)
    is_call = isinstance(call, dict)
    late = _late(row)
    times = {name: instant(row[f"shown_{name}"]) for name in _TIMES}
    return {
        "id": str(row["id"]),
        "name": row["name"],
        "task": row["task"],
        "args": call.get("args", []) if is_call else call,
        "kwargs": call.get("kwargs", {}) if is_call else call,
        "queue": row["queue"],
        "priority": row["priority"],
        "when": _when(row),
        "words": _words(row),
        "cron": row["cron"] or None,
        "every": seconds(row["every_ms"]),
        "once_at": times["once_at"],
        "timezone": row["timezone"],
        "starts_at": times["starts_at"],
        "ends_at": times["ends_at"],
        "excluded": row["excluded"],
        "spread": seconds(row["spread_ms"]),
        "catch_up": row["catch_up"],
        "catch_up_window": seconds(row["catch_up_window_ms"]),
        "overlap": row["overlap"],
        "success_within": seconds(row["success_within_ms"]),
        "enabled": row["enabled"],
        "source": row["source"],
        "next_due_at": times["next_due_at"],
        "last_due_at": times["last_due_at"],
        "last_success_at": times["last_success_at"],
        "waiting_at": times["waiting_at"],
        "finished_at": times["finished_at"],
        "retired_at": times["retired_at"],
        "created_at": instant(row["shown_created_at"]),
        "late_by": late.late_by.total_seconds() if late else 0.0,
        "is_late": late is not None and late.is_late,
        "is_unsuccessful": late is not None and late.is_unsuccessful,
        "error": shown_text(row["last_error"]),
    }

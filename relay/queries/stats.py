"""Figures: what there is now, and what has become of jobs by the minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast, get_args

from relay.conf import get_settings
from relay.exceptions import ArgumentError
from relay.instants import aware
from relay.operations import Actor
from relay.queries.documents import (
    ActivityDocument,
    CountDocument,
    DurationsDocument,
    SeriesDocument,
    StatsDocument,
    Status,
    TotalsDocument,
)
from relay.queries.jobs import read_states
from relay.queries.queues import read_queues
from relay.queries.reading import bounded_read, instant, reading_together
from relay.queries.workers import read_workers
from relay.stats import (
    Durations,
    Totals,
    read_activity,
    read_last,
    read_series,
    read_totals,
)

__all__ = ["get_activity", "get_series", "get_stats", "get_totals"]

_WAITING: Final = ("blocked", "scheduled", "queued", "retrying")
_HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)
_MINUTE: Final = timedelta(minutes=1)


def get_stats(actor: Actor) -> StatsDocument:
    """Return how many jobs there are, by state, by status and by queue, and workers.

    Counts go up to 10,000 and say so. Rates are of the last hour and of the last day.

    Raises:
        NotAllowed: the actor lacks view_metrics.
        ReadTimeout: it took longer than 2 s.
    """
    actor.require("view_metrics", "get_stats")
    using = get_settings().database
    with reading_together(), bounded_read(using) as now:
        by_state = read_states(using)
        queues, workers = read_queues(using), read_workers(using)
        day, hour = read_last(using=using, until=now, spans=(_DAY, _HOUR))
    return {
        "at": instant(now),
        "status": _by_status(by_state),
        "jobs": by_state,
        "queues": queues,
        "workers": workers,
        "last_hour": _totals(hour),
        "last_day": _totals(day),
    }


def get_series(
    actor: Actor,
    *,
    span: timedelta = _HOUR,
    step: timedelta = timedelta(minutes=1),
    until: datetime | None = None,
    queue: str | None = None,
    task: str | None = None,
) -> SeriesDocument:
    """Return what became of jobs, one Totals a step, also where nothing was.

    Args:
        span: how far back it goes: by the minute 72 hours, by the hour 90 days.
        step: whole minutes up to an hour, or whole hours.
        until: its end; now unless given.

    Raises:
        NotAllowed: the actor lacks view_metrics.
        ArgumentError: the step is neither, or they are more than 5,000.
        ReadTimeout: it took longer than 2 s.
    """
    actor.require("view_metrics", "get_series")
    if step <= timedelta(0) or span <= timedelta(0):
        raise ArgumentError(f"step={step!r}, span={span!r}: give more than nothing")
    using = get_settings().database
    with bounded_read(using, bitmaps=True) as now:
        since, end = _stretch(until or now, span, step)
        rows = read_series(
            using=using,
            since=since,
            until=end,
            step=step,
            queue=_plain(queue),
            task=_plain(task),
        )
    return {
        "since": instant(since),
        "until": instant(end),
        "step": step.total_seconds(),
        "results": [_totals(row) for row in rows],
    }


def get_activity(actor: Actor) -> ActivityDocument:
    """Return how many attempts of each queue ended how, by the minute of the last hour.

    Raises:
        NotAllowed: the actor lacks view_metrics.
        ReadTimeout: it took longer than 2 s.
    """
    actor.require("view_metrics", "get_activity")
    using = get_settings().database
    with bounded_read(using) as now:
        until = _ceiling(now, _MINUTE)
        rows = read_activity(using=using, since=until - _HOUR, until=until)
    queues: dict[str, list[dict[str, int]]] = {}
    for queue, at, outcome, count in rows:
        steps = queues.setdefault(queue, [{} for _ in range(_HOUR // _MINUTE)])
        steps[(at - until + _HOUR) // _MINUTE][outcome] = count
    return {
        "since": instant(until - _HOUR),
        "until": instant(until),
        "step": _MINUTE.total_seconds(),
        "queues": queues,
    }


def get_totals(
    actor: Actor,
    *,
    span: timedelta = _HOUR,
    queue: str | None = None,
    task: str | None = None,
) -> SeriesDocument:
    """Return what became of jobs within a span up to now, by queue and task.

    Raises:
        NotAllowed: the actor lacks view_metrics.
        ArgumentError: the span is none.
        ReadTimeout: it took longer than 2 s.
    """
    actor.require("view_metrics", "get_totals")
    if not timedelta(0) < span <= timedelta(days=90):
        raise ArgumentError(f"span={span!r}: give more than nothing, up to 90 days")
    using = get_settings().database
    with bounded_read(using, bitmaps=True) as now:
        rows = read_totals(
            using=using,
            since=now - span,
            until=now,
            queue=_plain(queue),
            task=_plain(task),
        )
    return {
        "since": instant(now - span),
        "until": instant(now),
        "step": None,
        "results": [_totals(row) for row in rows],
    }


def _by_status(states: dict[str, CountDocument]) -> dict[str, CountDocument]:
    found = {name: states[name] for name in get_args(Status) if name != "queued"}
    waiting = [states[name] for name in _WAITING]
    queued: CountDocument = {
        "count": sum(each["count"] for each in waiting),
        "capped": any(each["capped"] for each in waiting),
    }
    return {"queued": queued, **found}


def _totals(row: Totals) -> TotalsDocument:
    names = ("completed", "failed", "cancelled", "retried", "snoozed")
    counts: dict[str, Any] = {name: row.counts.get(name, 0) for name in names}
    document = {
        "at": instant(row.at),
        "queue": row.queue,
        "task": row.task,
        **counts,
        "run": _durations(row.run),
        "wait": _durations(row.wait),
    }
    return cast("TotalsDocument", document)


def _rounded(seconds: float | None) -> float | None:
    """Return seconds to the microsecond: beyond it stands noise."""
    return None if seconds is None else round(seconds, 6)


def _durations(found: Durations) -> DurationsDocument:
    return {
        "mean": _rounded(found.mean),
        "p50": _rounded(found.quantile(0.5)),
        "p95": _rounded(found.quantile(0.95)),
        "p99": _rounded(found.quantile(0.99)),
    }


def _stretch(
    until: datetime, span: timedelta, step: timedelta
) -> tuple[datetime, datetime]:
    """Return where whole steps begin that hold this span, and where they end."""
    try:
        end = _ceiling(aware(until), step)
        return end - -(-span // step) * step, end
    except OverflowError as error:
        raise ArgumentError(
            f"until={until!r}, span={span!r}, step={step!r}: no time is so far away"
        ) from error


def _ceiling(at: datetime, step: timedelta) -> datetime:
    """Return the end of the step that holds this instant, counted from 1970."""
    begin = datetime(1970, 1, 1, tzinfo=UTC)
    return begin + -(-(at - begin) // step) * step


def _plain(text: str | None) -> str | None:
    return None if text is None else text.replace("\x00", "")

"""What a schedule will do: the same instants that firing asks for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from relay.scheduler.timetable import Definition, read_timetable, spread_of

__all__ = ["Run", "preview"]

_SECOND: Final = timedelta(seconds=1)

FORWARD: Final = "the clocks go forward"
FIRST_OF_TWO: Final = "the clocks go back: the first of two"
SECOND_OF_TWO: Final = "the clocks go back: the second of two"


class _Named(Definition, Protocol):
    name: str
    spread_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run to come.

    Attributes:
        planned_at: the due instant, UTC.
        starts_at: when it is enqueued, as the schedule's spread says; UTC.
        local: the due instant in the schedule's zone.
        mark: what a change of the clocks does to it; empty for nothing.
    """

    planned_at: datetime
    starts_at: datetime
    local: datetime
    mark: str


def preview(row: _Named, *, now: datetime, limit: int) -> list[Run]:
    """Return the next runs of a schedule, as they will happen while it stays as it is.

    Args:
        now: aware, by the database's clock.

    Raises:
        ScheduleError: the row cannot be kept as it stands.
    """
    timetable = read_timetable(row)
    spread = spread_of(row.name, row.spread_ms)
    found: list[Run] = []
    offset = (now - spread).astimezone(timetable.zone).utcoffset()
    for instant in timetable.occurrences(after=now - spread, limit=limit):
        local = instant.astimezone(timetable.zone)
        mark = _mark(local)
        if not mark and local.utcoffset() != offset:
            mark = "the clocks have changed"
        offset = local.utcoffset()
        found.append(
            Run(planned_at=instant, starts_at=instant + spread, local=local, mark=mark)
        )
    return found


def _mark(local: datetime) -> str:
    offset = local.utcoffset()
    before = (local.astimezone(UTC) - _SECOND).astimezone(local.tzinfo).utcoffset()
    if offset is None or before is None:
        return ""
    if before < offset:
        return FORWARD
    first = local.replace(fold=0).utcoffset()
    second = local.replace(fold=1).utcoffset()
    if first == second:
        return ""
    return SECOND_OF_TWO if local.fold else FIRST_OF_TWO

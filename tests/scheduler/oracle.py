"""An independent answer to when an expression is due: every second of UTC, looked at.

Nothing is shared with relay's way: no spans, no croniter, only zoneinfo and sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

__all__ = ["Fields", "due"]


@dataclass(frozen=True)
class Fields:
    """Plain sets of values; None is a star."""

    minutes: frozenset[int] | None = None
    hours: frozenset[int] | None = None
    days: frozenset[int] | None = None
    months: frozenset[int] | None = None
    weekdays: frozenset[int] | None = None

    def __str__(self) -> str:
        return " ".join(
            "*" if values is None else ",".join(map(str, sorted(values)))
            for values in (
                self.minutes,
                self.hours,
                self.days,
                self.months,
                self.weekdays,
            )
        )

    def matches(self, local: datetime) -> bool:
        if self.months is not None and local.month not in self.months:
            return False
        if self.minutes is not None and local.minute not in self.minutes:
            return False
        if self.hours is not None and local.hour not in self.hours:
            return False
        by_day = self.days is None or local.day in self.days
        by_weekday = self.weekdays is None or local.isoweekday() % 7 in self.weekdays
        if self.days is not None and self.weekdays is not None:
            return by_day or by_weekday
        return by_day and by_weekday


def due(
    fields: Fields, zone: ZoneInfo, begin: datetime, end: datetime
) -> Iterator[datetime]:
    """Yield the due instants in [begin, end), minute by minute of UTC."""
    minute = timedelta(minutes=1)
    # How far the local clock has got: what it shows again below that is a second pass,
    # what it leaves out is in a gap.
    now = begin - timedelta(days=2)
    seen_until = now.astimezone(zone).replace(tzinfo=None)
    while now < end:
        local = now.astimezone(zone).replace(tzinfo=None)
        is_due = fields.matches(local)
        if fields.hours is not None and len(fields.hours) < 24:
            if local < seen_until:
                is_due = False
            while seen_until < local:
                is_due = is_due or fields.matches(seen_until)
                seen_until += minute
        seen_until = max(seen_until, local + minute)
        if is_due and now >= begin:
            yield now.astimezone(UTC)
        now += minute

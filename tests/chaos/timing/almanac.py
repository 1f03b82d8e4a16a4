"""Fifty schedules, and when each is due: worked out without croniter and without relay.

Every local time that an expression names is looked up by itself, with zoneinfo's fold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

__all__ = ["EPOCHS", "FIFTY", "Plan", "changes", "due"]

# Fifteen months from each hold two changes of every zone that had any then: Sao Paulo
# gave them up in 2019, Cairo took them up again in 2023.
EPOCHS: Final = (
    datetime(2018, 10, 15, 0, 7, 30, tzinfo=UTC),
    datetime(2023, 4, 10, 0, 7, 30, tzinfo=UTC),
)
ZONES: Final = (
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Africa/Cairo",
    "UTC",
    "Asia/Kathmandu",
)
_MINUTE: Final = timedelta(minutes=1)
_HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One schedule.

    Attributes:
        minutes, hours: the local times of a day.
        is_wildcard: its hours are written with a star: it runs at every real interval,
            others once for each local time.
        months_days, weekdays: None is a star; a date matches by either (0 is Sunday).
    """

    name: str
    expression: str
    zone: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    is_wildcard: bool = False
    month_days: frozenset[int] | None = None
    weekdays: frozenset[int] | None = None
    catch_up: str = "all"

    def is_on(self, day: date) -> bool:
        by_day = self.month_days is None or day.day in self.month_days
        by_weekday = self.weekdays is None or day.isoweekday() % 7 in self.weekdays
        if self.month_days is not None and self.weekdays is not None:
            return by_day or by_weekday
        return by_day and by_weekday


def _fifty() -> Iterator[Plan]:
    all_hours = tuple(range(24))
    for number, zone in enumerate(ZONES):

        def plan(
            expression: str,
            minutes: tuple[int, ...],
            hours: tuple[int, ...],
            *,
            zone: str = zone,
            is_wildcard: bool = False,
            days: frozenset[int] | None = None,
            weekdays: frozenset[int] | None = None,
            catch_up: str = "all",
        ) -> Plan:
            return Plan(
                name=f"{zone}: {expression}",
                expression=expression,
                zone=zone,
                minutes=minutes,
                hours=hours,
                is_wildcard=is_wildcard,
                month_days=days,
                weekdays=weekdays,
                catch_up=catch_up,
            )

        yield plan("30 1 * * *", (30,), (1,))
        yield plan("30 2 * * *", (30,), (2,), catch_up="latest")
        yield plan("0,15 0,2 * * *", (0, 15), (0, 2))
        yield plan("0 3 * * 1-5", (0,), (3,), weekdays=frozenset(range(1, 6)))
        yield plan(
            "45 1,23 1,15 * 0",
            (45,),
            (1, 23),
            days=frozenset({1, 15}),
            weekdays=frozenset({0}),
        )
        yield plan("20 */3 * * *", (20,), tuple(range(0, 24, 3)), is_wildcard=True)
        if number < 3:
            yield plan("30 * * * *", (30,), all_hours, is_wildcard=True)
        else:
            yield plan("10 0-22/2 * * *", (10,), tuple(range(0, 24, 2)))
    yield Plan(
        name="UTC: 50 */4 * * *",
        expression="50 */4 * * *",
        zone="UTC",
        minutes=(50,),
        hours=tuple(range(0, 24, 4)),
        is_wildcard=True,
        catch_up="latest",
    )


FIFTY: Final = tuple(_fifty())


def due(plan: Plan, begin: datetime, end: datetime) -> list[datetime]:
    """Return the instants in [begin, end], in UTC, rising."""
    zone = ZoneInfo(plan.zone)
    found: set[datetime] = set()
    day, last = (begin - 2 * _DAY).date(), (end + 2 * _DAY).date()
    while day <= last:
        if plan.is_on(day):
            for hour in plan.hours:
                for minute in plan.minutes:
                    found |= _instants(plan, zone, day, time(hour, minute))
        day += _DAY
    return sorted(instant for instant in found if begin <= instant <= end)


def _instants(plan: Plan, zone: ZoneInfo, day: date, at: time) -> set[datetime]:
    """Return when a local time comes: once, twice, or at the end of its gap."""
    local = datetime.combine(day, at, zone)
    first = local.astimezone(UTC)
    second = local.replace(fold=1).astimezone(UTC)
    is_shown = first.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None)
    if plan.is_wildcard:
        return {first, second} if is_shown else set()
    # In a gap the second reading lies before it, the first one after it.
    return {first} if is_shown else {_change_between(zone, second, first)}


def _change_between(zone: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """Return the first minute with the offset of the later instant."""
    offset = high.astimezone(zone).utcoffset()
    while low.astimezone(zone).utcoffset() != offset:
        low += _MINUTE
    return low


def changes(begin: datetime, end: datetime) -> list[datetime]:
    """Return the hours in which the clocks of any of the zones change."""
    zones = [ZoneInfo(name) for name in ZONES]
    found = []
    hour = begin
    while hour < end:
        if any(
            hour.astimezone(zone).utcoffset()
            != (hour + _HOUR).astimezone(zone).utcoffset()
            for zone in zones
        ):
            found.append(hour)
        hour += _HOUR
    return found

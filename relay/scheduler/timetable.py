"""When a schedule is due: expression, interval or one instant. Pure, without a clock.

Whatever asks for instants asks here: firing, catch-up, the preview and the test
helpers. Source: docs/explanation/schedules.md.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol, overload
from uuid import UUID
from zoneinfo import ZoneInfo

from relay.exceptions import ScheduleError
from relay.scheduler import cron
from relay.scheduler.cron import LAST_YEAR, CronSpec, Runs, Survey, load_zone, naive
from relay.scheduler.exclusions import NOTHING, Exclusions, read_exclusions

__all__ = [
    "LONGEST_INTERVAL",
    "LONGEST_SPREAD",
    "Definition",
    "Interval",
    "Rule",
    "Timetable",
    "check_interval",
    "check_spread",
    "read_timetable",
    "spread_of",
]

LONGEST_INTERVAL: Final = timedelta(days=366)
LONGEST_SPREAD: Final = timedelta(days=1)

# A deploy or a failover is not an outage: what is found within this time is current,
# whatever the policy says. Five fields are never due twice in a minute, so that this
# is one run at most; what is due more often is a short burst. Source: failure 11.
ON_TIME: Final = timedelta(seconds=60)
ON_TIME_IF_FREQUENT: Final = timedelta(seconds=10)

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - naive UTC
_LOOK_BACK_DAYS: Final = (1, 8, 32, 400, 1_500)
_MICROSECOND: Final = timedelta(microseconds=1)
_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Interval:
    """Every so long of real time, counted from an anchor (naive UTC)."""

    every: timedelta
    anchor: datetime

    def runs(self, zone: ZoneInfo, after: datetime, until: datetime | None) -> Runs:
        """Yield its instants by local date and offset."""
        number = (after - self.anchor) // self.every + 1
        while True:
            first = self.anchor + number * self.every
            if first.year > LAST_YEAR or (until is not None and first > until):
                return
            offset = cron.offset_at(zone, first)
            local = first + offset
            midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
            end = cron.end_of_offset(zone, first, midnight + _DAY - offset, offset)
            last = (
                end - _MICROSECOND if until is None else min(end - _MICROSECOND, until)
            )
            stop = (last - self.anchor) // self.every + 1
            yield _Steps(self, range(number, stop))
            number = stop


class _Steps(Sequence[datetime]):
    """The instants of an interval that have these numbers."""

    __slots__ = ("_interval", "_numbers")

    def __init__(self, interval: Interval, numbers: range) -> None:
        self._interval = interval
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> datetime: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[datetime]: ...
    def __getitem__(self, index: int | slice) -> datetime | Sequence[datetime]:
        found = self._numbers[index]
        if isinstance(found, range):
            return _Steps(self._interval, found)
        return self._interval.anchor + found * self._interval.every


Rule = CronSpec | Interval | datetime
"""An expression, an interval, or one aware instant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """All instants at which a schedule is due.

    Attributes:
        zone: in whose local time expressions and exclusions are read.
        starts_at, ends_at: nothing is due before or after; both included.
    """

    rule: Rule
    zone: ZoneInfo
    excluded: Exclusions = NOTHING
    starts_at: datetime | None = None
    ends_at: datetime | None = None

    @property
    def on_time(self) -> timedelta:
        """How late an occurrence may be found and still count as current."""
        rule = self.rule
        is_frequent = (isinstance(rule, CronSpec) and rule.has_seconds) or (
            isinstance(rule, Interval) and rule.every < ON_TIME
        )
        return ON_TIME_IF_FREQUENT if is_frequent else ON_TIME

    def occurrences(
        self,
        *,
        after: datetime,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> Iterator[datetime]:
        """Yield the instants (UTC), rising.

        Args:
            after: exclusive; aware.
            until: inclusive; None goes on to the end.
            limit: how many at most.
        """
        instants = itertools.chain.from_iterable(self._runs(after, until))
        for instant in itertools.islice(instants, limit):
            yield instant.replace(tzinfo=UTC)

    def survey(self, *, after: datetime, until: datetime) -> Survey:
        """Count the instants after one and up to another, without visiting each."""
        return cron.tally(self._runs(after, until))

    def first_after(self, instant: datetime) -> datetime | None:
        """Return the first instant after this one; None if none comes."""
        return next(self.occurrences(after=instant, limit=1), None)

    def last_before(self, instant: datetime) -> datetime | None:
        """Return the last instant before this one; None if none came for years."""
        for days in _LOOK_BACK_DAYS:
            after = instant - timedelta(days=days)
            found = self.survey(after=after, until=instant - _MICROSECOND).last
            if found is not None:
                return found
        return None

    def _runs(self, after: datetime, until: datetime | None) -> Runs:
        if self.starts_at is not None:
            after = max(after, self.starts_at - _MICROSECOND)
        if self.ends_at is not None:
            until = self.ends_at if until is None else min(until, self.ends_at)
        if until is not None and until <= after:
            return
        last = None if until is None else naive(until)
        yield from self.excluded.leave_out(self._all(naive(after), last), self.zone)

    def _all(self, after: datetime, until: datetime | None) -> Runs:
        rule = self.rule
        if isinstance(rule, CronSpec):
            yield from cron.runs(rule, self.zone, after, until)
        elif isinstance(rule, Interval):
            yield from rule.runs(self.zone, after, until)
        elif after < naive(rule) and (until is None or naive(rule) <= until):
            yield [naive(rule)]


class Definition(Protocol):
    """What a row of relay_schedule says of its instants."""

    id: UUID
    cron: str
    seconds: bool
    timezone: str
    every_ms: int | None
    once_at: datetime | None
    starts_at: datetime | None
    ends_at: datetime | None
    excluded: str | None


def read_timetable(row: Definition) -> Timetable:
    """Return when the row is due.

    Raises:
        ScheduleError: it cannot be kept as it stands.
    """
    return Timetable(
        rule=_read_rule(row),
        zone=load_zone(row.timezone),
        excluded=read_exclusions(row.excluded, hash_id=str(row.id)),
        starts_at=row.starts_at,
        ends_at=row.ends_at,
    )


def _read_rule(row: Definition) -> Rule:
    given = [bool(row.cron), row.every_ms is not None, row.once_at is not None]
    if sum(given) > 1:
        raise ScheduleError("give one of: an expression, an interval, an instant")
    if row.every_ms is not None:
        every = timedelta(milliseconds=row.every_ms)
        check_interval(every)
        return Interval(
            every, _EPOCH if row.starts_at is None else naive(row.starts_at)
        )
    if row.once_at is not None:
        return row.once_at
    return cron.parse(row.cron, seconds=row.seconds, hash_id=str(row.id))


def check_interval(every: timedelta) -> None:
    """Refuse an interval that cannot be kept.

    Raises:
        ScheduleError: it is no whole number of seconds, or out of bounds.
    """
    if every % _SECOND or not _SECOND <= every <= LONGEST_INTERVAL:
        raise ScheduleError(
            f"an interval of {every.total_seconds():g} s must be whole seconds, from 1 "
            f"second to {LONGEST_INTERVAL.days} days"
        )


def check_spread(spread: timedelta) -> None:
    """Refuse a spread that cannot be kept.

    Raises:
        ScheduleError: it is no whole number of seconds, or out of bounds.
    """
    if spread % _SECOND or not _SECOND <= spread <= LONGEST_SPREAD:
        raise ScheduleError(
            f"a spread of {spread.total_seconds():g} s must be whole seconds, from 1 "
            f"second to {LONGEST_SPREAD // timedelta(hours=1)} hours"
        )


def spread_of(name: str, spread_ms: int | None) -> timedelta:
    """Return how long after each planned time a schedule of this name runs.

    Whole seconds, less than the spread; the same on every machine and every day.
    """
    seconds = 0 if spread_ms is None else spread_ms // 1_000
    if seconds < 1:
        return timedelta(0)
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    return timedelta(seconds=int.from_bytes(digest[:8]) % seconds)

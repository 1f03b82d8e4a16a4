"""Expression and zone to instants. Pure: no database, no clock.

croniter is asked on naive local dates only; what a change of the clocks does is
relay's own rule. Source: docs/explanation/schedules.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple, overload
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from croniter import CroniterError, croniter

from relay.exceptions import ScheduleError
from relay.nearest import nearest
from relay.scheduler.expression import CronSpec, parse

__all__ = [
    "LAST_YEAR",
    "CronSpec",
    "Dates",
    "Runs",
    "Survey",
    "end_of_offset",
    "load_zone",
    "naive",
    "occurrences",
    "offset_at",
    "parse",
    "runs",
    "survey",
    "tally",
]

LAST_YEAR: Final = 9990

Runs = Iterator[Sequence[datetime]]
"""Instants as naive UTC, rising, in runs of one local date under one offset."""

_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)
# The largest change of the clocks ever is one day (Apia left out 2011-12-30), so
# what happened two days before an instant has no influence on it.
_MARGIN: Final = timedelta(days=2)


class Survey(NamedTuple):
    """How many instants a stretch of time holds, and the outermost two."""

    total: int
    first: datetime | None
    last: datetime | None


# -- zones ---------------------------------------------------------------------


def load_zone(name: str) -> ZoneInfo:
    """Return the IANA time zone of this name.

    Raises:
        ScheduleError: there is none; names the nearest.
    """
    # "localtime" is whatever zone this host is set to.
    if name and name.isascii() and name.lower() != "localtime":
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
    near = nearest(name, available_timezones())
    hint = f"did you mean {near!r}?" if near else "write it as Europe/Berlin"
    raise ScheduleError(f"{str(name)[:100]!r} is no IANA time zone: {hint}")


def offset_at(zone: ZoneInfo, instant: datetime) -> timedelta:
    """Return the zone's offset at an instant, given as naive UTC."""
    offset = instant.replace(tzinfo=UTC).astimezone(zone).utcoffset()
    return timedelta(0) if offset is None else offset


def end_of_offset(
    zone: ZoneInfo, begin: datetime, end: datetime, offset: timedelta
) -> datetime:
    """Return where the offset changes between two instants, else the end."""
    if offset_at(zone, end - _SECOND) == offset:
        return end
    low, high = begin, end - _SECOND
    while high - low > _SECOND:
        middle = low + timedelta(seconds=(high - low) // (2 * _SECOND))
        if offset_at(zone, middle) == offset:
            low = middle
        else:
            high = middle
    return high


# -- instants ----------------------------------------------------------------


class _Run(Sequence[datetime]):
    """The matching times of one local date under one offset, as instants."""

    __slots__ = ("_base", "_high", "_low", "_spec")

    def __init__(self, spec: CronSpec, base: datetime, low: int, high: int) -> None:
        self._spec = spec
        self._base = base
        self._low = low
        self._high = high

    def __len__(self) -> int:
        return max(self._high - self._low, 0)

    @overload
    def __getitem__(self, index: int) -> datetime: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[datetime]: ...
    def __getitem__(self, index: int | slice) -> datetime | Sequence[datetime]:
        ranks = range(self._low, self._high)[index]
        if not isinstance(ranks, range):
            return self._instant(ranks)
        if ranks.step == 1:
            return _Run(self._spec, self._base, ranks.start, ranks.stop)
        return [self._instant(rank) for rank in ranks]

    def _instant(self, rank: int) -> datetime:
        return self._base + timedelta(seconds=self._spec.second_of_day(rank))


@dataclass(slots=True)
class Dates:
    """The matching dates of an expression; remembers the last one it found."""

    spec: CronSpec
    asked: date = date.min
    found: date | None = None
    dates: croniter = field(init=False)

    def __post_init__(self) -> None:
        self.dates = croniter(f"0 0 {self.spec.dates}")

    def at_or_after(self, day: date) -> date | None:
        """Return the first matching date from this one on, None if none comes."""
        if self.spec.dates == "* * *":
            return day
        if self.found is None or not self.asked <= day <= self.found:
            try:
                match = self.dates.get_next(
                    datetime, start_time=_midnight(day) - _SECOND
                )
            except CroniterError:
                return None
            self.asked, self.found = day, match.date()
        return self.found

    def count(self, begin: datetime, end: datetime) -> int:
        """Return how many local times from begin up to before end match."""
        found = 0
        day = self.at_or_after(begin.date())
        while day is not None and _midnight(day) < end:
            found += len(_within(self.spec, day, begin, end))
            day = self.at_or_after(day + _DAY)
        return found


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day)  # noqa: DTZ001 - local wall time has no zone


def _within(spec: CronSpec, day: date, begin: datetime, end: datetime) -> range:
    """Return the ranks of a date's times from begin up to before end."""
    midnight = _midnight(day)
    low = max((begin - midnight) // _SECOND, 0)
    high = (end - midnight) // _SECOND
    return range(
        spec.rank(low),
        spec.times_per_day if high >= 86_400 else spec.rank(max(high, 0)),
    )


def runs(
    spec: CronSpec, zone: ZoneInfo, after: datetime, until: datetime | None
) -> Runs:
    """Yield runs of instants (naive UTC), rising, after one and up to another.

    Walks over stretches of time that lie within one local date and hold no change
    of the clocks. covered is the local time up to which a fixed-hour schedule has
    had its runs: where the local clock is set back behind it, those times are not
    run again; where it is set forward over some, they are due at that instant.
    """
    dates = Dates(spec)
    after = after.replace(microsecond=0)
    now = after - _MARGIN
    covered = now + offset_at(zone, now)
    while now.year <= LAST_YEAR and (until is None or now <= until):
        offset = offset_at(zone, now)
        # From yesterday on: a clock set back over midnight shows it a second time.
        day = dates.at_or_after(min(covered, now + offset).date() - _DAY)
        if day is None:
            return
        if _midnight(day) - _MARGIN - _DAY > now + offset:
            now = _midnight(day) - _MARGIN - offset
            covered = now + offset_at(zone, now)
            continue
        local_day = (now + offset).date()
        tomorrow = _midnight(local_day) + _DAY - offset
        end = end_of_offset(zone, now, tomorrow, offset)
        begin_local, end_local = now + offset, end + offset
        if spec.is_fixed_hour:
            if (
                covered < begin_local
                and after < now
                and dates.count(covered, begin_local)
                and not dates.count(begin_local, begin_local + _SECOND)
            ):
                yield [now]
            begin_local = max(begin_local, covered)
        covered = max(covered, end_local)
        if dates.at_or_after(local_day) == local_day:
            begin_local = max(begin_local, after + _SECOND + offset)
            if until is not None:
                end_local = min(
                    end_local, until.replace(microsecond=0) + _SECOND + offset
                )
            ranks = _within(spec, local_day, begin_local, end_local)
            if ranks:
                base = _midnight(local_day) - offset
                yield _Run(spec, base, ranks.start, ranks.stop)
        now = end


def naive(instant: datetime) -> datetime:
    """Return the instant as UTC without its zone."""
    return instant.astimezone(UTC).replace(tzinfo=None)


def occurrences(
    spec: CronSpec,
    zone: ZoneInfo,
    *,
    after: datetime,
    until: datetime | None = None,
    limit: int | None = None,
) -> Iterator[datetime]:
    """Yield the instants (UTC) at which an expression is due in a zone, rising.

    A fixed-hour expression runs once for each of its local times: in a gap of the
    clocks at the first instant after it, in an overlap in the first of both passes.
    A wildcard-hour one runs whenever the local clock shows a matching time: not in
    a gap, in both passes of an overlap.

    Args:
        after: exclusive; aware.
        until: inclusive; None goes on for ever.
        limit: how many at most.
    """
    last = None if until is None else naive(until)
    instants = itertools.chain.from_iterable(runs(spec, zone, naive(after), last))
    for instant in itertools.islice(instants, limit):
        yield instant.replace(tzinfo=UTC)


def survey(
    spec: CronSpec, zone: ZoneInfo, *, after: datetime, until: datetime
) -> Survey:
    """Count the instants after one and up to another, without visiting each."""
    return tally(runs(spec, zone, naive(after), naive(until)))


def tally(found: Runs) -> Survey:
    """Count the instants of runs, without visiting each."""
    count = 0
    first = last = None
    for run in found:
        count += len(run)
        first = first or run[0]
        last = run[-1]
    return Survey(
        count,
        first and first.replace(tzinfo=UTC),
        last and last.replace(tzinfo=UTC),
    )

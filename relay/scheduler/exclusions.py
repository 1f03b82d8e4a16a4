"""Dates and times at which a schedule does not run. Pure: no database, no clock.

Source: docs/explanation/schedules.md, "Exclusions".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from relay.exceptions import ScheduleError
from relay.scheduler.cron import CronSpec, Dates, Runs, offset_at, parse

__all__ = ["NOTHING", "Exclusions", "join", "read_exclusions"]

MOST_LINES: Final = 400
MOST_CHARACTERS: Final = 20_000
# The search for the next instant ends after so many dates, stretches of their times and
# years that hold none: about a second at the very worst, 0.1 s with dates alone.
MOST_DATES_IN_VAIN: Final = 4_000
MOST_STRETCHES_IN_VAIN: Final = 20_000
LONGEST_IN_VAIN: Final = timedelta(days=50 * 366)

_DAY_SECONDS: Final = 86_400
_DAY_MINUTES: Final = 1_440

# Seconds of a local date, from the first up to before the second.
_Window = tuple[int, int]
_WHOLE_DAY: Final[tuple[_Window, ...]] = ((0, _DAY_SECONDS),)


@dataclass(frozen=True, slots=True)
class Exclusions:
    """What is left out.

    Attributes:
        dates: first and last local date of each stretch.
        specs: expressions; each minute of the local clock that matches is left out.
    """

    dates: tuple[tuple[date, date], ...] = ()
    specs: tuple[CronSpec, ...] = ()

    def leave_out(self, runs: Runs, zone: ZoneInfo) -> Runs:
        """Yield what remains of the runs; ends once none remains for decades."""
        if not (self.dates or self.specs):
            yield from runs
            return
        calendar = _Calendar(self)
        dates = stretches = 0
        found_at: datetime | None = None
        for run in runs:
            found_at = found_at or run[0]
            offset = offset_at(zone, run[0])
            day = (run[0] + offset).date()
            midnight = datetime(day.year, day.month, day.day) - offset  # noqa: DTZ001 - naive UTC
            dates += 1
            for low, high in calendar.windows(day):
                first = bisect_left(run, midnight + timedelta(seconds=low))
                last = bisect_left(run, midnight + timedelta(seconds=high))
                stretches += 1
                if first < last:
                    dates = stretches = 0
                    found_at = run[0]
                    yield run[first:last]
            if (
                dates > MOST_DATES_IN_VAIN
                or stretches > MOST_STRETCHES_IN_VAIN
                or run[0] - found_at > LONGEST_IN_VAIN
            ):
                return


NOTHING: Final = Exclusions()


@dataclass(slots=True)
class _Calendar:
    """Looks dates up in rising order, and remembers what a set of matches leaves."""

    exclusions: Exclusions
    matching: list[Dates] = field(init=False)

    def __post_init__(self) -> None:
        self.matching = [Dates(spec) for spec in self.exclusions.specs]

    def windows(self, day: date) -> tuple[_Window, ...]:
        """Return what is left of a local date."""
        if any(first <= day <= last for first, last in self.exclusions.dates):
            return ()
        specs = [dates.spec for dates in self.matching if dates.at_or_after(day) == day]
        return _left(tuple(specs)) if specs else _WHOLE_DAY


@lru_cache(maxsize=256)
def _left(specs: tuple[CronSpec, ...]) -> tuple[_Window, ...]:
    """Return the seconds of a day that lie in no minute of these expressions."""
    is_left = [True] * _DAY_MINUTES
    for spec in specs:
        for hour in spec.hours:
            for minute in spec.minutes:
                is_left[hour * 60 + minute] = False
    found: list[_Window] = []
    begin = 0
    while begin < _DAY_MINUTES:
        end = begin + 1
        while end < _DAY_MINUTES and is_left[end] == is_left[begin]:
            end += 1
        if is_left[begin]:
            found.append((begin * 60, end * 60))
        begin = end
    return tuple(found)


@lru_cache(maxsize=256)
def read_exclusions(text: str | None, *, hash_id: str = "") -> Exclusions:
    """Read exclusions, one a line.

    A line is a date (2026-12-25), a stretch of dates (2026-12-24/2027-01-06, both
    included) or an expression of five fields (* * 25 12 *: the whole day, each year).
    Empty lines, and what follows a #, are comments.

    Raises:
        ScheduleError: names the line and the reason.
    """
    if text is None:
        return NOTHING
    if len(text) > MOST_CHARACTERS:
        raise ScheduleError(
            f"the exclusions have {len(text):,} characters, {MOST_CHARACTERS:,} at most"
        )
    lines = [line for line in map(_without_comment, text.splitlines()) if line]
    if len(lines) > MOST_LINES:
        raise ScheduleError(f"{len(lines)} exclusions, {MOST_LINES} at most")
    dates: list[tuple[date, date]] = []
    specs: list[CronSpec] = []
    for line in lines:
        if len(line.split()) > 1 or line.startswith("@"):
            specs.append(parse(line, hash_id=hash_id))
        else:
            dates.append(_read_dates(line))
    return Exclusions(tuple(sorted(dates)), tuple(specs))


def _without_comment(line: str) -> str:
    # Not within an expression: MON#2 is the second Monday.
    head, mark, _ = f" {line}".partition(" #")
    return head.strip() if mark else line.strip()


def _read_dates(line: str) -> tuple[date, date]:
    first, slash, last = line.partition("/")
    try:
        stretch = (
            date.fromisoformat(first),
            date.fromisoformat(last if slash else first),
        )
    except ValueError:
        raise ScheduleError(
            f"{line[:100]!r} excludes nothing: write a date (2026-12-25), two of them "
            "(2026-12-24/2027-01-06), or an expression of five fields"
        ) from None
    if stretch[0] > stretch[1]:
        raise ScheduleError(f"{line!r} ends before it begins")
    return stretch


def join(lines: Iterable[str | date]) -> str | None:
    """Return the text of exclusions given one by one; None for none.

    Raises:
        ScheduleError: one of them is neither a text nor a date, or is a datetime: only
            whole dates are left out.
    """
    texts: list[str] = []
    for line in lines:
        if not isinstance(line, str | date):
            raise ScheduleError(f"{line!r} excludes nothing: give a date or a text")
        if isinstance(line, datetime):
            raise ScheduleError(f"{line} excludes no date: give its .date()")
        texts.append(line.isoformat() if isinstance(line, date) else line)
    return "\n".join(texts) or None

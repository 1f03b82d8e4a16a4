"""Read a cron expression. Pure: no database, no clock.

relay reads expressions itself and leaves only the calendar (which dates match) to
croniter, so that no release of it changes what a stored expression means.
Source: docs/explanation/schedules.md.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from croniter import CroniterError, croniter

from relay.exceptions import ScheduleError

__all__ = ["CronSpec", "parse"]

# Longer than any expression a person writes; bounds the work of reading one.
# Source: failure 146.
LONGEST_EXPRESSION: Final = 256
# In an error, so much of it is named.
LONGEST_SHOWN: Final = 100

ALIASES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

MONTHS: Final = [
    "JAN",
    "FEB",
    "MAR",
    "APR",
    "MAY",
    "JUN",
    "JUL",
    "AUG",
    "SEP",
    "OCT",
    "NOV",
    "DEC",
]
WEEKDAYS: Final = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]

# Dates repeat in 400 years, but croniter looks 50 years ahead, so a date must come
# again within that. From 2000 on, the 29th of February is met at once.
_CHECKED_FROM: Final = datetime(2000, 1, 1) - timedelta(seconds=1)  # noqa: DTZ001 - local wall time has no zone
_MUST_MATCH: Final = 5

_ITEM: Final = re.compile(
    r"(?P<low>\*|[0-9]{1,2}|[A-Z]{3})(?:-(?P<high>[0-9]{1,2}|[A-Z]{3}))?"
    r"(?:/(?P<step>[0-9]{1,3}))?"
)
_HASHED: Final = re.compile(
    r"H(?:\((?P<low>[0-9]{1,2})-(?P<high>[0-9]{1,2})\))?(?:/(?P<step>[0-9]{1,3}))?"
)
_RANDOM: Final = re.compile(r"R(?:\(.*\))?(?:/.*)?")
_NEAREST_WEEKDAY: Final = re.compile(r"(?P<day>[0-9]{1,2})W")
_NTH_WEEKDAY: Final = re.compile(r"(?P<day>[0-9]|[A-Z]{3})#(?P<nth>[0-9]+)")
_LAST_WEEKDAY: Final = re.compile(r"L(?P<day>[0-9]|[A-Z]{3})")


@dataclass(frozen=True, slots=True)
class _Field:
    """One field's name, its values, and the names that stand for them."""

    name: str
    low: int
    high: int
    names: Sequence[str] = ()

    @property
    def size(self) -> int:
        return self.high - self.low + 1


_SECONDS: Final = _Field("second", 0, 59)
_MINUTES: Final = _Field("minute", 0, 59)
_HOURS: Final = _Field("hour", 0, 23)
_DAYS: Final = _Field("day of month", 1, 31)
_MONTH: Final = _Field("month", 1, 12, MONTHS)
_WEEKDAY: Final = _Field("day of week", 0, 6, WEEKDAYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSpec:
    """An expression that was read: its times of the day, and which dates match.

    Attributes:
        expression: as given, trimmed.
        seconds: the seconds at which it is due, ascending; (0,) for five fields.
        minutes: likewise.
        hours: likewise.
        dates: day of month, month and day of week, as croniter reads them.
        is_fixed_hour: the hour field names hours. It is wildcard-hour if the field
            holds a star ('*', '*/2', '*,5') or comes to all 24 hours ('0-23').
            A list or range of hours ('0,12', '8-18', '0-22/2') is fixed-hour.
        has_seconds: whether it was written with six fields.
    """

    expression: str
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    dates: str
    is_fixed_hour: bool
    has_seconds: bool

    @property
    def times_per_day(self) -> int:
        """How many local times of a matching date are due."""
        return len(self.hours) * len(self.minutes) * len(self.seconds)

    def rank(self, second: int) -> int:
        """Return how many times of the day lie before this second of the day."""
        hour, rest = divmod(second, 3600)
        minute, second = divmod(rest, 60)
        per_minute = len(self.seconds)
        per_hour = len(self.minutes) * per_minute
        at_hour = bisect_left(self.hours, hour)
        found = at_hour * per_hour
        if at_hour < len(self.hours) and self.hours[at_hour] == hour:
            at_minute = bisect_left(self.minutes, minute)
            found += at_minute * per_minute
            if at_minute < len(self.minutes) and self.minutes[at_minute] == minute:
                found += bisect_left(self.seconds, second)
        return found

    def second_of_day(self, rank: int) -> int:
        """Return the time of the day that has this rank, as a second of the day."""
        rank, second = divmod(rank, len(self.seconds))
        hour, minute = divmod(rank, len(self.minutes))
        return (
            self.hours[hour] * 3600 + self.minutes[minute] * 60 + self.seconds[second]
        )


@lru_cache(maxsize=1024)
def parse(expression: str, *, seconds: bool = False, hash_id: str = "") -> CronSpec:
    """Read an expression of five fields, or with seconds=True of exactly six.

    Six fields begin with the second. Accepted in every field: '*', values, ranges
    (also wrapping ones, FRI-MON), lists, steps, and H for a value that hash_id
    chooses; in months and weekdays three-letter names; as weekday 7 for Sunday,
    MON#2 for the second Monday, L5 for the last Friday; as day of month L for the
    last one and 15W for the weekday nearest to the 15th. Where day of month and day
    of week are both restricted, a date matches by either.

    Args:
        expression: surrounding white space is ignored.
        hash_id: what H is derived from: an identity that outlives renaming. The
            value of H depends on nothing else.

    Raises:
        ScheduleError: names the expression and the reason; also if fewer than five
            dates ever match.
    """
    try:
        return _read(expression, seconds=seconds, hash_id=hash_id)
    except ScheduleError as error:
        shown = expression.strip()
        if len(shown) > LONGEST_SHOWN:
            shown = f"{shown[:LONGEST_SHOWN]}…"
        raise ScheduleError(f"{shown!r}: {error}") from error


def _read(expression: str, *, seconds: bool, hash_id: str) -> CronSpec:
    text = _clean(expression)
    if text.startswith("@"):
        text = _resolve_alias(text, seconds=seconds)
    parts = text.upper().split()
    if len(parts) != 5 + seconds:
        raise ScheduleError(_count_reason(len(parts), seconds=seconds))
    second, minute, hour, *dates = parts if seconds else ["0", *parts]
    hours = _expand(hour, _HOURS, hash_id)
    spec = CronSpec(
        expression=expression.strip(),
        seconds=_expand(second, _SECONDS, hash_id),
        minutes=_expand(minute, _MINUTES, hash_id),
        hours=hours,
        dates=_read_dates(*dates, hash_id=hash_id),
        is_fixed_hour="*" not in hour and len(hours) < _HOURS.size,
        has_seconds=seconds,
    )
    _check_dates(spec)
    return spec


def _clean(expression: str) -> str:
    if len(expression) > LONGEST_EXPRESSION:
        raise ScheduleError(
            f"the expression has {len(expression)} characters: at most "
            f"{LONGEST_EXPRESSION} are read"
        )
    text = expression.strip()
    if not text:
        raise ScheduleError("the expression is empty: write five fields")
    for character in text:
        if not (character == "\t" or " " <= character <= "~"):
            raise ScheduleError(
                f"{character!r} cannot stand in an expression: use one line of "
                "ASCII, its fields separated by spaces"
            )
    return text


def _resolve_alias(text: str, *, seconds: bool) -> str:
    if seconds:
        raise ScheduleError("it stands for five fields: set seconds to False")
    try:
        return ALIASES[text.lower()]
    except KeyError:
        raise ScheduleError(
            f"it is not known: write five fields, or one of {', '.join(ALIASES)}"
        ) from None


def _count_reason(found: int, *, seconds: bool) -> str:
    if seconds:
        return (
            f"{found} fields: with seconds there are exactly six (second, minute, "
            "hour, day of month, month, day of week)"
        )
    hint = "; a sixth, for seconds, needs seconds=True" if found == 6 else ""
    return (
        f"{found} fields: there are exactly five (minute, hour, day of month, month, "
        f"day of week){hint}"
    )


def _expand(text: str, part: _Field, hash_id: str) -> tuple[int, ...]:
    """Return the values of a field that holds lists, ranges, steps and hashes."""
    found: set[int] = set()
    for item in text.split(","):
        found.update(_expand_item(item, part, hash_id))
    return tuple(sorted(found))


def _expand_item(item: str, part: _Field, hash_id: str) -> list[int]:
    if _RANDOM.fullmatch(item):
        raise ScheduleError(
            f"{item!r} in the {part.name} field is another value on every machine: "
            "use H, which is the same on all"
        )
    if match := _HASHED.fullmatch(item):
        return _expand_hash(item, match, part, hash_id)
    match = _ITEM.fullmatch(item)
    if match is None or (match["low"] == "*" and match["high"]):
        raise ScheduleError(f"{item!r} in the {part.name} field is not understood")
    values = _values(item, match["low"], match["high"], match["step"], part)
    return values[:: _step(item, match["step"], len(values), part)]


def _values(
    item: str, low: str, high: str | None, step: str | None, part: _Field
) -> list[int]:
    if low == "*":
        return list(range(part.low, part.high + 1))
    first = _value(item, low, part)
    if high is None:
        if step is None:
            return [_weekday(first, part)]
        if part is _WEEKDAY:
            raise ScheduleError(
                f"{item!r} in the {part.name} field has no end: write a range"
            )
        return list(range(first, part.high + 1))
    last = _value(item, high, part)
    if _weekday(first, part) == _weekday(last, part) and (first, last) != (0, 7):
        raise ScheduleError(
            f"{item!r} in the {part.name} field is a range of one value: write {low!r}"
        )
    if first > last:
        last += part.size
    return list(
        dict.fromkeys(
            (value - part.low) % part.size + part.low
            for value in range(first, last + 1)
        )
    )


def _value(item: str, text: str, part: _Field) -> int:
    if text in part.names:
        return part.low + part.names.index(text)
    highest = 7 if part is _WEEKDAY else part.high
    if not text.isdigit() or not part.low <= int(text) <= highest:
        raise ScheduleError(
            f"{text!r} in the {part.name} field ({item!r}) is none of "
            f"{part.low}-{highest}"
            + (f" or {part.names[0]}-{part.names[-1]}" if part.names else "")
        )
    return int(text)


def _weekday(value: int, part: _Field) -> int:
    return value % 7 if part is _WEEKDAY else value


def _step(item: str, text: str | None, values: int, part: _Field) -> int:
    if text is None:
        return 1
    step = int(text)
    if not 1 <= step <= values:
        raise ScheduleError(
            f"the step of {item!r} in the {part.name} field must lie in 1-{values}: a "
            "larger one never takes effect"
        )
    return step


def _expand_hash(
    item: str, match: re.Match[str], part: _Field, hash_id: str
) -> list[int]:
    low, high = part.low, part.high
    if match["low"] is not None:
        low, high = _value(item, match["low"], part), _value(item, match["high"], part)
        if low >= high:
            raise ScheduleError(
                f"{item!r} in the {part.name} field: its range must rise"
            )
    elif part is _DAYS and match["step"] is None:
        high = 28  # a day that every month has
    chosen = zlib.crc32(f"{part.name}:{hash_id}".encode())
    if match["step"] is None:
        return [_weekday(low + chosen % (high - low + 1), part)]
    step = _step(item, match["step"], high - low + 1, part)
    first = low + chosen % step
    return [_weekday(value, part) for value in range(first, high + 1, step)]


def _read_dates(day: str, month: str, weekday: str, *, hash_id: str) -> str:
    months = _expand(month, _MONTH, hash_id)
    days = _read_days(day, hash_id)
    weekdays = _read_weekdays(weekday, hash_id)
    # croniter leaves one of the two out without a word.
    has_word = "W" in days or "#" in weekdays or "L" in weekdays
    if has_word and "*" not in (days, weekdays):
        raise ScheduleError(
            f"{day!r} and {weekday!r}: a numbered weekday (MON#2, L5) or a nearest one "
            "(15W) cannot be joined with the other day field: use two schedules"
        )
    plain = "*" if len(months) == _MONTH.size else ",".join(map(str, months))
    return f"{days} {plain} {weekdays}"


def _read_days(text: str, hash_id: str) -> str:
    if text in ("*", "?"):
        return "*"
    if match := _NEAREST_WEEKDAY.fullmatch(text):
        return f"{_value(text, match['day'], _DAYS)}W"
    items = text.split(",")
    plain = ",".join(item for item in items if item != "L")
    days = [str(value) for value in _expand(plain, _DAYS, hash_id)] if plain else []
    return ",".join([*days, "L"] if "L" in items else days)


def _read_weekdays(text: str, hash_id: str) -> str:
    if text in ("*", "?"):
        return "*"
    special: list[str] = []
    plain: list[str] = []
    for item in text.split(","):
        if match := _NTH_WEEKDAY.fullmatch(item):
            day = _weekday(_value(item, match["day"], _WEEKDAY), _WEEKDAY)
            if match["nth"] not in ("1", "2", "3", "4", "5"):
                raise ScheduleError(
                    f"{item!r} in the day of week field: a month has no weekday "
                    f"number {match['nth']}, write 1 to 5"
                )
            special.append(f"{day}#{match['nth']}")
        elif match := _LAST_WEEKDAY.fullmatch(item):
            day = _weekday(_value(item, match["day"], _WEEKDAY), _WEEKDAY)
            special.append(f"L{day}")
        else:
            plain.append(item)
    if special and plain:
        raise ScheduleError(
            f"{text!r} in the day of week field mixes weekdays of every week with "
            "numbered ones: use two schedules"
        )
    if special:
        return ",".join(special)
    days = _expand(",".join(plain), _WEEKDAY, hash_id)
    return ",".join(map(str, days)) if len(days) < _WEEKDAY.size else "*"


def _check_dates(spec: CronSpec) -> None:
    """Refuse dates that never come, or not five times.

    Raises:
        ScheduleError: with the reason.
    """
    if spec.dates == "* * *":
        return
    try:
        croniter.expand(f"0 0 {spec.dates}", strict=True)
        dates = croniter(f"0 0 {spec.dates}", _CHECKED_FROM)
        for _ in range(_MUST_MATCH):
            dates.get_next(datetime)
    except CroniterError as error:
        raise ScheduleError(
            "it never comes: no date matches its day of month, month and day of week "
            f"({spec.dates})"
        ) from error

"""A cron expression in words, from what was read of it. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from relay.scheduler.expression import CronSpec

__all__ = ["in_words"]

# So many times of a day are told one by one.
FEW: Final = 6

_WEEKDAYS: Final = (
    *("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"),
)
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July", "August"),
    *("September", "October", "November", "December"),
)
_NTH: Final = ("first", "second", "third", "fourth", "fifth")


def in_words(spec: CronSpec) -> str:
    """Return when an expression is due, such as "at 07:00, Monday to Friday".

    Two expressions that are due at different times have different words.
    """
    dates = _dates(spec.dates)
    return f"{_times(spec)}, {dates}" if dates else _times(spec)


# --- times of the day ----------------------------------------------------------------


def _times(spec: CronSpec) -> str:
    hours, minutes, seconds = spec.hours, spec.minutes, spec.seconds
    if spec.times_per_day <= FEW:
        listed = itertools.product(hours, minutes, seconds)
        return f"at {_joined([_clock(*each, spec.has_seconds) for each in listed])}"
    if seconds != (0,):
        return _with_seconds(hours, minutes, seconds)
    if len(hours) == 24:
        return _of_every_hour(minutes)
    every = _every(minutes, 60, "minute")
    if minutes == (0,):
        every = "every hour"
        if (step := _step(hours, 24)) is not None:
            return f"every {step} hours"
    if every is not None and _is_run(hours):
        first, last = _clock(hours[0], 0), _clock(hours[-1], minutes[-1])
        return f"{every} from {first} to {last}"
    text = every if every and minutes != (0,) else f"at {_numbers('minute', minutes)}"
    return f"{text} of {_numbers('hour', hours)}"


def _of_every_hour(minutes: Sequence[int]) -> str:
    if minutes == (0,):
        return "every hour"
    every = _every(minutes, 60, "minute")
    return every or f"at {_numbers('minute', minutes)} of every hour"


def _with_seconds(
    hours: Sequence[int], minutes: Sequence[int], seconds: Sequence[int]
) -> str:
    every = _every(seconds, 60, "second")
    text = every or f"at {_numbers('second', seconds)}"
    if len(minutes) < 60:
        text += f" of {_numbers('minute', minutes)}"
        return (
            f"{text} of {_numbers('hour', hours) if len(hours) < 24 else 'every hour'}"
        )
    if len(hours) < 24:
        return f"{text} of every minute of {_numbers('hour', hours)}"
    return every or f"{text} of every minute"


def _clock(hour: int, minute: int, second: int = 0, has_seconds: bool = False) -> str:
    text = f"{hour:02}:{minute:02}"
    return f"{text}:{second:02}" if has_seconds else text


def _step(values: Sequence[int], size: int) -> int | None:
    """Return by how much the values go from 0 through the whole, if they do evenly."""
    step = size // len(values)
    is_even = step * len(values) == size and tuple(values) == tuple(
        range(0, size, step)
    )
    return step if is_even else None


def _every(values: Sequence[int], size: int, unit: str) -> str | None:
    step = _step(values, size)
    if step is None or step == size:
        return None
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


def _is_run(values: Sequence[int]) -> bool:
    return len(values) > 1 and values[-1] - values[0] == len(values) - 1


# --- dates ---------------------------------------------------------------------------


def _dates(text: str) -> str:
    days, months, weekdays = text.split(" ")
    parts = [part for part in (_days(days), _weekdays(weekdays)) if part]
    found = " and ".join(parts)  # a date that is either is due
    if months != "*":
        names = [_MONTHS[int(month) - 1] for month in months.split(",")]
        within = f"in {_joined(names)}"
        found = f"{found} {within}" if found else within
    return found


def _days(text: str) -> str:
    if text == "*":
        return ""
    if text.endswith("W"):
        return f"on the weekday nearest to day {text[:-1]} of the month"
    items = text.split(",")
    numbers = [int(item) for item in items if item != "L"]
    found = [f"on {_numbers('day', numbers)} of the month"] if numbers else []
    if "L" in items:
        found.append("on the last day of the month")
    return " and ".join(found)


def _weekdays(text: str) -> str:
    if text == "*":
        return ""
    if "#" in text or "L" in text:
        return f"on {_joined([_numbered(item) for item in text.split(',')])}"
    # From Monday on: a weekend is one stretch.
    numbers = sorted((int(item) - 1) % 7 for item in text.split(","))
    names = [_WEEKDAYS[(number + 1) % 7] for number in numbers]
    if len(names) > 2 and _is_run(numbers):
        return f"{names[0]} to {names[-1]}"
    return _joined(names)


def _numbered(item: str) -> str:
    if item.startswith("L"):
        return f"the last {_WEEKDAYS[int(item[1:])]} of the month"
    day, _, nth = item.partition("#")
    return f"the {_NTH[int(nth) - 1]} {_WEEKDAYS[int(day)]} of the month"


# --- lists ---------------------------------------------------------------------------


def _numbers(unit: str, values: Sequence[int]) -> str:
    """Return numbers with their unit: a stretch of three or more by its ends."""
    found: list[str] = []
    for _, group in itertools.groupby(
        enumerate(values), key=lambda pair: pair[1] - pair[0]
    ):
        run = [value for _, value in group]
        found += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run)
    return f"{unit}{'' if len(values) == 1 else 's'} {_joined(found)}"


def _joined(items: Sequence[str]) -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"

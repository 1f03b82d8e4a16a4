"""Cron expressions in words."""

from __future__ import annotations

import random

import pytest

from relay.exceptions import ScheduleError
from relay.scheduler.expression import parse
from relay.scheduler.words import in_words

WORDS = {
    "* * * * *": "every minute",
    "*/5 * * * *": "every 5 minutes",
    "0 * * * *": "every hour",
    "30 * * * *": "at minute 30 of every hour",
    "0,15,17 * * * *": "at minutes 0, 15 and 17 of every hour",
    "0 */2 * * *": "every 2 hours",
    "0 */12 * * *": "at 00:00 and 12:00",
    "0 8-18 * * *": "every hour from 08:00 to 18:00",
    "*/15 8-17 * * 1-5": "every 15 minutes from 08:00 to 17:45, Monday to Friday",
    "* 3 * * *": "every minute of hour 3",
    "*/20 1,3 * * *": "at 01:00, 01:20, 01:40, 03:00, 03:20 and 03:40",
    "*/15 1,3 * * *": "every 15 minutes of hours 1 and 3",
    "0 1-23/2 * * *": "at minute 0 of hours 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21 and "
    "23",
    "10,40 1-5 * * *": "at minutes 10 and 40 of hours 1 to 5",
    "0 7 * * 1-5": "at 07:00, Monday to Friday",
    "30 7,19 * * *": "at 07:30 and 19:30",
    "0 9 * * 6,0": "at 09:00, Saturday and Sunday",
    "0 9 * * 5-7": "at 09:00, Friday to Sunday",
    "0 9 * * MON,WED": "at 09:00, Monday and Wednesday",
    "0 0 1 * *": "at 00:00, on day 1 of the month",
    "0 0 1,15,L * *": "at 00:00, on days 1 and 15 of the month and on the last day of "
    "the month",
    "0 0 1-5 1,7 *": "at 00:00, on days 1 to 5 of the month in January and July",
    "0 0 * 12 *": "at 00:00, in December",
    "0 0 15W * *": "at 00:00, on the weekday nearest to day 15 of the month",
    "0 0 * * MON#2": "at 00:00, on the second Monday of the month",
    "0 0 * * L5": "at 00:00, on the last Friday of the month",
    "0 0 1 * MON": "at 00:00, on day 1 of the month and Monday",
    "@weekly": "at 00:00, Sunday",
}
SECONDS = {
    "* * * * * *": "every second",
    "*/10 * * * * *": "every 10 seconds",
    "30 0 7 * * *": "at 07:00:30",
    "0 * * * * *": "every minute",
    "5 * * * * *": "at second 5 of every minute",
    "*/20 * 8 * * *": "every 20 seconds of every minute of hour 8",
    "7 */30 * * * *": "at second 7 of minutes 0 and 30 of every hour",
}


@pytest.mark.parametrize("expression", WORDS)
def test_an_expression_has_words(expression: str) -> None:
    assert in_words(parse(expression)) == WORDS[expression]


@pytest.mark.parametrize("expression", SECONDS)
def test_an_expression_with_seconds_has_words(expression: str) -> None:
    assert in_words(parse(expression, seconds=True)) == SECONDS[expression]


def test_different_times_have_different_words() -> None:
    rng = random.Random(7)
    minutes = [
        "*",
        "*/2",
        "*/7",
        "*/15",
        "0",
        "5",
        "0,30",
        "5-9",
        "1,2,5",
        "0-58",
        "59",
    ]
    hours = ["*", "*/2", "*/5", "0", "8", "8-9", "8-18", "8,18", "0-22", "1-23/2"]
    days = ["*", "1", "1,2", "1-3", "L", "1,L", "15W", "1-31", "*/2"]
    months = ["*", "1", "1,2", "1-11", "*/3"]
    weekdays = ["*", "0", "1-5", "6,0", "1-6", "MON#2", "L5", "MON#1,TUE#1", "5-7"]
    met: dict[str, object] = {}

    for _ in range(4_000):
        seconds = rng.random() < 0.4
        parts = [rng.choice(minutes)] if seconds else []
        parts += [rng.choice(each) for each in (minutes, hours, days, months, weekdays)]
        try:
            spec = parse(" ".join(parts), seconds=seconds)
        except ScheduleError:
            continue
        due = (spec.seconds, spec.minutes, spec.hours, spec.dates)
        assert met.setdefault(in_words(spec), due) == due
    assert len(met) > 1_000

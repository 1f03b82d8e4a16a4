"""When expressions are due: the golden table, and two oracles."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.exceptions import ScheduleError
from relay.scheduler.cron import load_zone, occurrences, parse, survey
from tests.scheduler.oracle import Fields, due


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def instants(
    expression: str, zone: str, after: str, limit: int, **options: Any
) -> list[str]:
    found = occurrences(
        parse(expression, **options), ZoneInfo(zone), after=utc(after), limit=limit
    )
    return [f"{instant:%Y-%m-%d %H:%M}" for instant in found]


# zone, expression, after, the next instants in UTC. The page
# docs/explanation/schedules.md prints these.
GOLDEN = [
    # Forward 02:00 -> 03:00 at 01:00Z.
    (
        "Europe/Berlin",
        "30 2 * * *",
        "2026-03-28 12:00",
        ["2026-03-29 01:00", "2026-03-30 00:30", "2026-03-31 00:30"],
    ),
    (
        "Europe/Berlin",
        "*/30 * * * *",
        "2026-03-29 00:00",
        ["2026-03-29 00:30", "2026-03-29 01:00", "2026-03-29 01:30"],
    ),
    # Back 03:00 -> 02:00 at 01:00Z.
    (
        "Europe/Berlin",
        "30 2 * * *",
        "2026-10-24 12:00",
        ["2026-10-25 00:30", "2026-10-26 01:30"],
    ),
    (
        "Europe/Berlin",
        "30 * * * *",
        "2026-10-25 00:00",
        ["2026-10-25 00:30", "2026-10-25 01:30", "2026-10-25 02:30"],
    ),
    (
        "Europe/Berlin",
        "*/30 2 * * *",
        "2026-10-24 12:00",
        ["2026-10-25 00:00", "2026-10-25 00:30", "2026-10-26 01:00"],
    ),
    # A stepped star follows the local clock: 02:00 is not there, then there twice.
    (
        "Europe/Berlin",
        "0 */2 * * *",
        "2026-03-28 22:00",
        ["2026-03-28 23:00", "2026-03-29 02:00", "2026-03-29 04:00"],
    ),
    (
        "Europe/Berlin",
        "0 */2 * * *",
        "2026-10-24 22:00",
        ["2026-10-25 00:00", "2026-10-25 01:00", "2026-10-25 03:00"],
    ),
    (
        "America/New_York",
        "30 2 * * *",
        "2026-03-07 12:00",
        ["2026-03-08 07:00", "2026-03-09 06:30"],
    ),
    (
        "America/New_York",
        "30 1 * * *",
        "2026-10-31 12:00",
        ["2026-11-01 05:30", "2026-11-02 06:30"],
    ),
    (
        "America/New_York",
        "0 * * * *",
        "2026-11-01 04:30",
        ["2026-11-01 05:00", "2026-11-01 06:00", "2026-11-01 07:00"],
    ),
    # Half an hour: forward 02:00 -> 02:30 at 15:30Z, back 02:00 -> 01:30 at 15:00Z.
    (
        "Australia/Lord_Howe",
        "15 2 * * *",
        "2026-10-02 16:00",
        ["2026-10-03 15:30", "2026-10-04 15:15"],
    ),
    (
        "Australia/Lord_Howe",
        "45 1 * * *",
        "2027-04-02 15:00",
        ["2027-04-03 14:45", "2027-04-04 15:15"],
    ),
    (
        "Australia/Lord_Howe",
        "*/7 * * * *",
        "2027-04-03 14:50",
        [
            "2027-04-03 14:56",
            "2027-04-03 15:05",
            "2027-04-03 15:12",
            "2027-04-03 15:19",
            "2027-04-03 15:26",
            "2027-04-03 15:30",
        ],
    ),
    # Midnight left out on 2018-11-04, and 23:00-24:00 twice on 2018-02-17.
    (
        "America/Sao_Paulo",
        "0 0 * * *",
        "2018-11-03 12:00",
        ["2018-11-04 03:00", "2018-11-05 02:00"],
    ),
    (
        "America/Sao_Paulo",
        "30 23 * * *",
        "2018-02-17 12:00",
        ["2018-02-18 01:30", "2018-02-19 02:30"],
    ),
    (
        "America/Sao_Paulo",
        "30 * * * *",
        "2018-02-18 01:00",
        ["2018-02-18 01:30", "2018-02-18 02:30", "2018-02-18 03:30"],
    ),
    # Midnight left out on 2026-04-24, and 23:00-24:00 twice on 2026-10-29.
    (
        "Africa/Cairo",
        "30 0 * * *",
        "2026-04-23 12:00",
        ["2026-04-23 22:00", "2026-04-24 21:30"],
    ),
    (
        "Africa/Cairo",
        "30 23 * * *",
        "2026-10-29 12:00",
        ["2026-10-29 20:30", "2026-10-30 21:30"],
    ),
    (
        "America/Santiago",
        "0 0 * * *",
        "2026-09-05 12:00",
        ["2026-09-06 04:00", "2026-09-07 03:00"],
    ),
    (
        "America/Santiago",
        "30 23 * * *",
        "2026-04-04 12:00",
        ["2026-04-05 02:30", "2026-04-06 03:30"],
    ),
    (
        "UTC",
        "30 2 * * *",
        "2026-03-28 12:00",
        ["2026-03-29 02:30", "2026-03-30 02:30"],
    ),
    (
        "UTC",
        "30 2 * * *",
        "2026-10-24 12:00",
        ["2026-10-25 02:30", "2026-10-26 02:30"],
    ),
    # Back 00:01 -> 23:01 of the day before at 02:31Z: midnight comes twice.
    (
        "America/St_Johns",
        "0 0 * * *",
        "2006-10-28 12:00",
        ["2006-10-29 02:30", "2006-10-30 03:30"],
    ),
    (
        "America/St_Johns",
        "0 * * * *",
        "2006-10-29 02:00",
        ["2006-10-29 02:30", "2006-10-29 03:30", "2006-10-29 04:30"],
    ),
    (
        "America/St_Johns",
        "30 * 28 * *",
        "2006-10-29 01:30",
        ["2006-10-29 02:00", "2006-10-29 03:00", "2006-11-28 04:00"],
    ),
    # A whole day left out.
    (
        "Pacific/Apia",
        "0 12 30 12 *",
        "2011-06-01 12:00",
        ["2011-12-30 10:00", "2012-12-29 22:00"],
    ),
    (
        "Pacific/Apia",
        "0 12 * * *",
        "2011-12-29 12:00",
        ["2011-12-29 22:00", "2011-12-30 10:00", "2011-12-30 22:00"],
    ),
]


@pytest.mark.parametrize(("zone", "expression", "after", "expected"), GOLDEN)
def test_b16_golden_table(
    zone: str, expression: str, after: str, expected: list[str]
) -> None:
    assert instants(expression, zone, after, len(expected)) == expected


# Four days around each change, in both directions.
CHANGES = [
    ("Europe/Berlin", "2026-03-27"),
    ("Europe/Berlin", "2026-10-23"),
    ("America/New_York", "2026-03-06"),
    ("America/New_York", "2026-10-30"),
    ("Australia/Lord_Howe", "2026-10-02"),
    ("Australia/Lord_Howe", "2027-04-02"),
    ("America/Sao_Paulo", "2018-11-02"),
    ("America/Sao_Paulo", "2018-02-16"),
    ("Africa/Cairo", "2026-04-22"),
    ("Africa/Cairo", "2026-10-28"),
    ("America/Santiago", "2026-09-04"),
    ("America/Santiago", "2026-04-03"),
    ("America/St_Johns", "2006-10-27"),
    ("Pacific/Apia", "2011-12-28"),
    ("UTC", "2026-03-27"),
]
some = st.frozensets
FIELDS = st.builds(
    Fields,
    minutes=st.none() | some(st.integers(0, 59), min_size=1, max_size=5),
    hours=st.none() | some(st.sampled_from([0, 1, 2, 3, 12, 22, 23]), min_size=1),
    days=st.none() | some(st.integers(1, 31), min_size=1, max_size=20),
    months=st.none(),
    weekdays=st.none() | some(st.integers(0, 6), min_size=1, max_size=6),
)


@settings(max_examples=60, deadline=None)
@given(change=st.sampled_from(CHANGES), fields=FIELDS, start=st.integers(0, 5000))
def test_instants_are_those_of_looking_at_every_minute(
    change: tuple[str, str], fields: Fields, start: int
) -> None:
    zone = ZoneInfo(change[0])
    begin = utc(change[1]) + timedelta(minutes=start)
    end = begin + timedelta(days=3)

    found = list(
        occurrences(
            parse(str(fields)),
            zone,
            after=begin - timedelta(seconds=1),
            until=end - timedelta(seconds=1),
        )
    )

    assert found == list(due(fields, zone, begin, end))


@settings(max_examples=60, deadline=None)
@given(
    change=st.sampled_from(CHANGES),
    expression=st.sampled_from(
        ["30 2 * * *", "*/7 * * * *", "0 0 * * MON", "15 */3 1,15 * *", "59 23 L * *"]
    ),
    offset=st.integers(-3_000_000, 3_000_000),
    length=st.integers(0, 500_000),
)
def test_a_survey_counts_what_would_be_visited(
    change: tuple[str, str], expression: str, offset: int, length: int
) -> None:
    spec, zone = parse(expression), ZoneInfo(change[0])
    after = utc(change[1]) + timedelta(seconds=offset)
    until = after + timedelta(seconds=length)

    visited = list(occurrences(spec, zone, after=after, until=until))

    assert survey(spec, zone, after=after, until=until) == (
        len(visited),
        visited[0] if visited else None,
        visited[-1] if visited else None,
    )
    assert all(first < second for first, second in pairwise(visited))


@pytest.mark.parametrize(
    "expression",
    [
        "* * * * *",
        "*/7 * * * *",
        "0 * * * *",
        "30 2 * * *",
        "15,45 0-4 * * *",
        "0 9 * * MON-FRI",
        "0 12 * * 5-7",
        "5 4 1,15 * *",
        "0 0 29 2 *",
        "0 0 1 1 *",
        "0 0 * * FRI#2",
        "30 6 L * *",
        "0 */6 * JAN-MAR *",
        "10-50/20 1 * * *",
        "0 0 13 * FRI",
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_instants_are_those_of_cronsim(expression: str, zone: str) -> None:
    start = datetime(2026, 3, 1, tzinfo=ZoneInfo(zone))
    cronsim = CronSim(expression, start)

    found = list(occurrences(parse(expression), ZoneInfo(zone), after=start, limit=400))

    assert found == [next(cronsim).astimezone(UTC) for _ in found]


@pytest.mark.parametrize(
    ("expression", "dates"),
    [
        ("0 0 15W * *", ["2026-01-15", "2026-02-16", "2026-03-16"]),
        ("0 0 1W * *", ["2026-01-01", "2026-02-02", "2026-03-02"]),
        ("0 0 L * *", ["2026-01-31", "2026-02-28", "2026-03-31"]),
        ("0 0 * * MON#2", ["2026-01-12", "2026-02-09", "2026-03-09"]),
        ("0 0 L * 1", ["2026-01-05", "2026-01-12", "2026-01-19"]),
    ],
)
def test_calendar_words(expression: str, dates: list[str]) -> None:
    found = instants(expression, "UTC", "2025-12-31 23:59", 3)

    assert found == [f"{day} 00:00" for day in dates]


def test_six_fields_begin_with_the_second() -> None:
    spec = parse("*/20 30 2 * * *", seconds=True)

    found = occurrences(spec, ZoneInfo("Europe/Berlin"), after=utc("2026-10-25"))

    assert [str(next(found))[11:19] for _ in range(4)] == [
        "00:30:00",
        "00:30:20",
        "00:30:40",
        "01:30:00",
    ]


def test_an_alias_is_its_five_fields() -> None:
    assert parse("@weekly").dates == parse("0 0 * * 0").dates


def test_a_hash_is_stable_differs_and_stays_in_range() -> None:
    spec = parse("H H(1-5) H * *", hash_id="a")

    assert spec == parse("H H(1-5) H * *", hash_id="a")
    assert len({parse("H H * * *", hash_id=str(n)).minutes for n in range(100)}) > 30
    for number in range(200):
        spec = parse("H/20 H(1-5) H H *", hash_id=str(number))
        assert len(spec.minutes) == 3
        assert 1 <= spec.hours[0] <= 5
        assert 1 <= int(spec.dates.split()[0]) <= 28


@pytest.mark.parametrize(
    ("expression", "is_fixed"),
    [
        ("0 2 * * *", True),
        ("0 0,12 * * *", True),
        ("* 8-18 * * *", True),
        ("0 0-22/2 * * *", True),
        ("0 * * * *", False),
        ("0 */2 * * *", False),
        ("0 0-23 * * *", False),
        ("0 */4,5 * * *", False),
    ],
)
def test_what_a_fixed_hour_is(expression: str, is_fixed: bool) -> None:
    assert parse(expression).is_fixed_hour is is_fixed


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("R R * * *", "another value on every machine"),
        ("R(0-10) 2 * * *", "another value on every machine"),
        ("0 0 30 2 *", "never comes"),
        ("0 0 31W 2 *", "never comes"),
        ("0 0 31 4,6,9,11 *", "never comes"),
        ("59/15 * * * *", "step"),
        ("5-5 * * * *", "range of one value"),
        ("0 0 * * 0-0", "range of one value"),
        ("0 0 * * 5/2", "no end"),
        ("60 * * * *", "0-59"),
        ("0 24 * * *", "0-23"),
        ("0 0 0 * *", "1-31"),
        ("0 0 * 13 *", "1-12"),
        ("0 0 * * 8", "0-7"),
        ("0 0 LW * *", "not understood"),
        ("0 0 1,15W * *", "not understood"),
        ("0 0 * * MON,TUE#2", "mixes"),
        ("-1 * * * *", "not understood"),
        ("1,,2 * * * *", "not understood"),
        ("0 0 13 * L5", "two schedules"),
        ("0 0 13 * 5#2", "two schedules"),
        ("0 0 15W * 1", "two schedules"),
        ("@reboot", "not known"),
        ("CRON_TZ=UTC 0 0 * * *", "6 fields"),
        ("٣ * * * *", "cannot stand"),
        ("0\u00a00 * * *", "cannot stand"),
        ("0 0 * * *\x00", "cannot stand"),
        ("", "empty"),
        ("   ", "empty"),
    ],
)
def test_what_is_refused_says_why(expression: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        parse(expression)


@pytest.mark.parametrize(
    ("expression", "begins"),
    [
        ("a b c d e", "'a b c d e': "),
        (" @every 5m ", "'@every 5m': "),
        ("x" * 300, f"'{'x' * 100}…': "),
    ],
)
def test_a_refusal_names_the_expression(expression: str, begins: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        parse(expression)

    assert str(refused.value).startswith(begins)
    assert str(refused.value).count(expression.strip()[:100]) == 1


@pytest.mark.parametrize(
    "zone", ["Europe/Berln", "", "localtime", "../etc/passwd", "x" * 300, "Zürich"]
)
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(ScheduleError, match="no IANA time zone"):
        load_zone(zone)


def test_failure_038_a_daily_run_comes_once_when_clocks_go_back() -> None:
    assert instants("30 2 * * *", "Europe/Berlin", "2026-10-24 12:00", 2) == [
        "2026-10-25 00:30",
        "2026-10-26 01:30",
    ]
    assert instants("30 1 * * *", "America/New_York", "2026-10-31 12:00", 2) == [
        "2026-11-01 05:30",
        "2026-11-02 06:30",
    ]


def test_failure_039_a_daily_run_in_the_missing_hour_comes_once() -> None:
    assert instants("30 2 * * *", "Europe/Berlin", "2026-03-28 12:00", 2) == [
        "2026-03-29 01:00",
        "2026-03-30 00:30",
    ]
    assert instants("15 2 * * *", "Australia/Lord_Howe", "2026-10-02 16:00", 2) == [
        "2026-10-03 15:30",
        "2026-10-04 15:15",
    ]
    assert instants("0 8 * * 0", "America/Chicago", "2026-03-07 12:00", 2) == [
        "2026-03-08 13:00",
        "2026-03-15 13:00",
    ]


def test_failure_112_a_midnight_that_does_not_exist_ends_no_loop() -> None:
    parse.cache_clear()

    found = instants("0 0 * * 0", "America/Santiago", "2026-08-25", 10)

    assert found[:4] == [
        "2026-08-30 04:00",
        "2026-09-06 04:00",
        "2026-09-13 03:00",
        "2026-09-20 03:00",
    ]
    assert all(first < second for first, second in pairwise(found))


def test_failure_126_an_hourly_schedule_keeps_the_repeated_hour() -> None:
    day = occurrences(
        parse("0 * * * *"),
        ZoneInfo("America/New_York"),
        after=utc("2026-11-01 03:59"),
        until=utc("2026-11-02 04:59"),
    )

    assert [instant.hour for instant in day] == [*range(4, 24), 0, 1, 2, 3, 4]
    assert instants("0 * * * *", "America/New_York", "2026-11-01 04:00", 3) == [
        "2026-11-01 05:00",
        "2026-11-01 06:00",
        "2026-11-01 07:00",
    ]


@pytest.mark.parametrize(
    ("weekday", "dates"),
    [
        ("MON-SUN", "*"),
        ("0-7", "*"),
        ("1-7", "*"),
        ("5-7", "0,5,6"),
        ("FRI-MON", "0,1,5,6"),
        ("0,7", "0"),
        ("1-7/2", "0,1,3,5"),
        ("sat-sun", "0,6"),
        ("FRI-MON/2", "0,5"),
        ("L5", "L5"),
        ("7", "0"),
    ],
)
def test_failure_128_weekday_names_and_ranges(weekday: str, dates: str) -> None:
    assert parse(f"0 0 * * {weekday}").dates == f"* * {dates}"


def test_failure_128_a_sixth_weekday_is_refused() -> None:
    with pytest.raises(ScheduleError, match="no weekday number 6"):
        parse("0 0 * * MON#6")


def test_failure_128_the_last_friday_is_that() -> None:
    assert instants("0 0 * * L5", "UTC", "2026-01-01", 3) == [
        "2026-01-30 00:00",
        "2026-02-27 00:00",
        "2026-03-27 00:00",
    ]


@pytest.mark.parametrize(
    ("expression", "seconds", "reason"),
    [
        ("* * * * * *", False, "seconds=True"),
        ("* * * * *", True, "exactly six"),
        ("* * * * * * *", False, "exactly five"),
        ("* * * * * * *", True, "exactly six"),
        ("@daily", True, "five fields"),
        ("*/61 * * * *", False, "1-60"),
        ("0 0 */40 * *", False, "1-31"),
        ("@every 5m", False, "not known"),
        ("0 0\n* * *", False, "cannot stand"),
    ],
)
def test_failure_129_what_is_finer_or_coarser_is_refused(
    expression: str, seconds: bool, reason: str
) -> None:
    with pytest.raises(ScheduleError, match=reason):
        parse(expression, seconds=seconds)


def test_failure_129_surrounding_white_space_is_trimmed() -> None:
    assert parse(" 0 0 * * * \n") == parse("0 0 * * *")


@pytest.mark.parametrize(
    "expression",
    [
        "0-99999999/1 * * * *",
        "*/0 * * * *",
        ",".join(["1"] * 50_000) + " * * * *",
        "* " * 10_000,
        "0 0 30 2 *",
        "0 0 31 2,4,6,9,11 *",
    ],
)
def test_failure_146_a_costly_expression_is_refused_at_once(expression: str) -> None:
    began = time.thread_time()
    with pytest.raises(ScheduleError):
        parse(expression)

    assert time.thread_time() - began < 1  # milliseconds, and not minutes


@pytest.mark.parametrize("expression", ["0 0 29 2 *", "0 0 * 2 1#5", "0 */23 29 2 *"])
def test_failure_146_a_rare_date_is_found_at_once(expression: str) -> None:
    parse.cache_clear()
    began = time.thread_time()
    found = instants(expression, "America/Santiago", "2096-03-01", 5)

    assert len(found) == 5
    assert time.thread_time() - began < 1  # milliseconds, and not minutes


def test_failure_140_the_zone_of_the_host_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = instants("30 2 * * MON", "Europe/Berlin", "2026-03-20", 5)
    monkeypatch.setenv("TZ", "Asia/Almaty")
    time.tzset()
    try:
        assert instants("30 2 * * MON", "Europe/Berlin", "2026-03-20", 5) == before
    finally:
        monkeypatch.undo()
        time.tzset()
        assert "TZ" not in os.environ or os.environ["TZ"] != "Asia/Almaty"


def test_the_page_prints_the_golden_table() -> None:
    page = Path(__file__).parents[2] / "docs/explanation/schedules.md"

    table = page.read_text().split("| zone | expression | after | next due |")[1]
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in table.split("\n\n")[0].splitlines()[2:]
    ]

    assert rows == [
        [zone, expression, after, ", ".join(expected)]
        for zone, expression, after, expected in GOLDEN
    ]

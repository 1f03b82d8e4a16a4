"""Intervals, single instants, bounds, exclusions and spread."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from relay.exceptions import ScheduleError
from relay.scheduler.catchup import decide
from relay.scheduler.cron import naive, parse
from relay.scheduler.exclusions import join, read_exclusions
from relay.scheduler.timetable import Interval, Rule, Timetable, spread_of

BERLIN = ZoneInfo("Europe/Berlin")
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - naive UTC
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def times(
    rule: Rule | str,
    after: str,
    until: str,
    *,
    excluded: str | None = None,
    zone: ZoneInfo = BERLIN,
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
) -> list[str]:
    """Return the instants, having checked that the survey counts the same."""
    timetable = Timetable(
        rule=parse(rule) if isinstance(rule, str) else rule,
        zone=zone,
        excluded=read_exclusions(excluded),
        starts_at=starts_at,
        ends_at=ends_at,
    )
    found = list(timetable.occurrences(after=at(after), until=at(until)))
    survey = timetable.survey(after=at(after), until=at(until))
    assert survey.total == len(found)
    assert (survey.first, survey.last) == ((found or [None])[0], (found or [None])[-1])
    assert all(before < later for before, later in itertools.pairwise(found))
    return [f"{instant:%m-%d %H:%M}" for instant in found]


def every(interval: timedelta, anchor: datetime = EPOCH) -> Interval:
    return Interval(interval, anchor)


def test_an_interval_counts_from_1970_whatever_started_when() -> None:
    assert times(every(6 * HOUR), "2026-06-01 01:23", "2026-06-02 00:00") == [
        "06-01 06:00",
        "06-01 12:00",
        "06-01 18:00",
        "06-02 00:00",
    ]


def test_an_interval_counts_from_its_anchor() -> None:
    anchor = naive(at("2026-06-01 09:10:05.25"))
    found = Timetable(rule=every(90 * timedelta(minutes=1), anchor), zone=BERLIN)

    assert list(found.occurrences(after=at("2026-06-01 12:00"), limit=2)) == [
        at("2026-06-01 12:10:05.25"),
        at("2026-06-01 13:40:05.25"),
    ]


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_an_interval_is_real_time_when_the_clocks_change(day: str) -> None:
    found = times(every(HOUR), f"{day} 00:00", f"{day} 23:00")

    assert len(found) == 23


@pytest.mark.parametrize(
    "interval", [timedelta(seconds=7), 11 * HOUR, 5 * DAY, 400 * timedelta(hours=20)]
)
def test_an_interval_equals_its_arithmetic(interval: timedelta) -> None:
    after, until = at("2026-03-27 12:34:56"), at("2026-03-27 12:34:56") + 40 * interval
    timetable = Timetable(rule=every(interval), zone=BERLIN)
    first = at("1970-01-01") + ((after - at("1970-01-01")) // interval + 1) * interval

    found = list(timetable.occurrences(after=after, until=until))

    assert found == [first + n * interval for n in range(40)]


def test_one_instant_is_due_once() -> None:
    once = at("2026-06-01 10:00")

    assert times(once, "2026-05-01 00:00", "2026-06-01 10:00") == ["06-01 10:00"]
    assert times(once, "2026-05-01 00:00", "2026-06-01 09:59") == []
    assert times(once, "2026-06-01 10:00", "2026-07-01 00:00") == []


def test_start_and_end_are_included() -> None:
    found = times(
        "0 * * * *",
        "2026-06-01 00:00",
        "2026-06-02 00:00",
        starts_at=at("2026-06-01 09:00"),
        ends_at=at("2026-06-01 11:00"),
    )

    assert found == ["06-01 09:00", "06-01 10:00", "06-01 11:00"]


def test_after_the_end_nothing_is_due() -> None:
    timetable = Timetable(
        rule=parse("0 * * * *"), zone=BERLIN, ends_at=at("2026-06-01 11:00")
    )

    assert timetable.first_after(at("2026-06-01 11:00")) is None


def test_a_decision_after_the_end_has_no_next_instant() -> None:
    timetable = Timetable(rule=at("2026-06-01 11:00"), zone=BERLIN)

    decision = decide(
        timetable,
        next_due_at=at("2026-06-01 11:00"),
        now=at("2026-06-01 11:00:01"),
        catch_up="none",
        window=DAY,
    )

    assert decision.fire == (at("2026-06-01 11:00"),)
    assert decision.next_due_at is None


@pytest.mark.parametrize(
    ("rule", "excluded", "left"),
    [
        ("0 7 * * *", "2026-12-25", [24, 26, 27, 28]),
        ("0 7 * * *", "2026-12-25/2026-12-27", [24, 28]),
        ("0 7 * * *", "# holidays\n\n2026-12-24 # eve\n* * 26 12 *", [25, 27, 28]),
        ("0 7 * * *", "* * * * SAT,SUN", [24, 25, 28]),
        ("0 7 * * *", "* 0-6 * * *", [24, 25, 26, 27, 28]),
        ("0 7 * * *", "0 7 25 12 *", [24, 26, 27, 28]),
        ("0 7 * * *", "* * * * SUN#4", [24, 25, 26, 28]),
        (every(DAY), "2026-12-25\n2026-12-28", [24, 26, 27]),
    ],
)
def test_excluded_days_are_left_out(
    rule: Rule | str, excluded: str, left: list[int]
) -> None:
    found = times(rule, "2026-12-23 12:00", "2026-12-28 12:00", excluded=excluded)

    assert [int(text[3:5]) for text in found] == left


@pytest.mark.parametrize("rule", ["*/20 * * * *", every(timedelta(minutes=20))])
def test_excluded_minutes_are_those_of_the_local_clock(rule: Rule | str) -> None:
    found = times(
        rule,
        "2026-06-01 18:30",
        "2026-06-01 23:00",
        excluded="* 22-23 * * *\n20-40 21 * * *",
    )

    assert found == [
        "06-01 18:40",
        "06-01 19:00",
        "06-01 22:00",
        "06-01 22:20",
        "06-01 22:40",
        "06-01 23:00",
    ]


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_an_excluded_hour_when_the_clocks_change(day: str) -> None:
    found = times("30 * * * *", f"{day} 00:00", f"{day} 04:00", excluded="* 2 * * *")

    # In spring 02:30 does not exist; in autumn both of them are left out.
    left = ["00:30", "01:30", "02:30", "03:30"]
    assert [text[6:] for text in found] == left[-(4 if day[5:7] == "03" else 2) :]


def test_exclusions_over_years_of_seconds_are_counted_without_visiting_each() -> None:
    timetable = Timetable(
        rule=parse("* * * * * *", seconds=True),
        zone=BERLIN,
        excluded=read_exclusions("* 22-23 * * *\n2026-12-25"),
    )

    found = timetable.survey(after=at("2026-01-01"), until=at("2027-01-01"))

    assert found.total == 364 * 22 * 3600


@pytest.mark.parametrize(
    ("rule", "excluded"),
    [
        (parse("0 0 25 12 *"), "* * 25 12 *"),
        (parse("* * * * * *", seconds=True), "* * * * *"),
        (parse("1-59/2 * * * *"), "1-59/2 * * * *"),
        (every(timedelta(seconds=1)), "* * * * *"),
    ],
)
def test_a_schedule_that_is_wholly_excluded_is_never_due(
    rule: Rule, excluded: str
) -> None:
    timetable = Timetable(rule=rule, zone=BERLIN, excluded=read_exclusions(excluded))

    assert timetable.first_after(at("2026-06-01")) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("christmas", "excludes nothing"),
        ("2026-13-01", "excludes nothing"),
        ("2026-12-26/2026-12-25", "ends before it begins"),
        ("2026-12-25/", "excludes nothing"),
        ("61 * * * *", "0-59"),
        ("* * * * * *", "seconds=True"),
        ("2026-12-25\n" * 401, "400 at most"),
        ("x" * 20_001, "characters"),
    ],
    ids=range(8),
)
def test_exclusions_that_cannot_be_read_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        read_exclusions(text)


def test_exclusions_are_given_one_by_one() -> None:
    assert join([date(2026, 12, 25), "* * 1 1 *"]) == "2026-12-25\n* * 1 1 *"
    assert join([]) is None
    with pytest.raises(ScheduleError, match="excludes no date"):
        join([at("2026-12-25")])


def test_the_instant_before_is_found_however_long_ago() -> None:
    timetable = Timetable(rule=parse("0 0 29 2 *"), zone=ZoneInfo("UTC"))
    started = Timetable(
        rule=parse("0 * * * *"), zone=BERLIN, starts_at=at("2026-06-01 09:00")
    )

    assert timetable.last_before(at("2028-02-29")) == at("2024-02-29")
    assert started.last_before(at("2026-06-01 10:00")) == at("2026-06-01 09:00")
    assert started.last_before(at("2026-06-01 09:00")) is None


def test_a_thousand_schedules_spread_evenly_and_always_alike() -> None:
    spread_ms = 600_000
    spreads = [spread_of(f"schedule-{n}", spread_ms) for n in range(1_000)]

    assert spreads == [spread_of(f"schedule-{n}", spread_ms) for n in range(1_000)]
    assert all(timedelta(0) <= spread < timedelta(minutes=10) for spread in spreads)
    by_minute = [
        sum(spread // timedelta(minutes=1) == n for spread in spreads)
        for n in range(10)
    ]
    assert min(by_minute) > 60
    assert max(by_minute) < 140
    assert spread_of("schedule-1", None) == timedelta(0)


def test_the_spread_of_a_name_never_changes() -> None:
    # What it once was it stays, on every machine and in every release.
    assert spread_of("nightly", 600_000) == timedelta(seconds=526)
    assert spread_of("nächtlich", 600_000) == timedelta(seconds=435)

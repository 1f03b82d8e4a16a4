"""The generator and the judge of the time campaign see what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from relay.scheduler.cron import occurrences, parse
from tests.chaos.timing.almanac import EPOCHS, FIFTY, Plan, due
from tests.chaos.timing.judge import Fired, Missed, judge

HOUR = timedelta(hours=1)
EXPECTED = [datetime(2018, 11, 4, hour, tzinfo=UTC) for hour in range(4)]
FIRED = [Fired(due_at=at, at=at + timedelta(seconds=1)) for at in EXPECTED]


def _daily(zone: str, hour: int, minute: int, *, is_wildcard: bool = False) -> Plan:
    return Plan(
        name="daily",
        expression="",
        zone=zone,
        minutes=(minute,),
        hours=(hour,),
        is_wildcard=is_wildcard,
    )


@pytest.mark.parametrize(
    ("plan", "day", "wanted"),
    [
        # Shown twice: the first of both; with a star in the hours, both.
        (_daily("America/New_York", 1, 30), "2018-11-04", ["05:30"]),
        (
            _daily("America/New_York", 1, 30, is_wildcard=True),
            "2018-11-04",
            ["05:30", "06:30"],
        ),
        # In a gap: at its end, or not at all.
        (_daily("Europe/Berlin", 2, 30), "2019-03-31", ["01:00"]),
        (_daily("Europe/Berlin", 2, 30, is_wildcard=True), "2019-03-31", []),
        (_daily("America/Sao_Paulo", 0, 0), "2018-11-04", ["03:00"]),
        (_daily("Australia/Lord_Howe", 2, 15), "2019-10-05", ["15:30"]),
        (_daily("Africa/Cairo", 0, 0), "2023-04-27", ["22:00"]),
        (_daily("UTC", 2, 30), "2019-03-31", ["02:30"]),
    ],
)
def test_changes_of_the_clocks_are_worked_out(
    plan: Plan, day: str, wanted: list[str]
) -> None:
    begin = datetime.fromisoformat(f"{day}T00:00+00:00")

    found = due(plan, begin, begin + timedelta(days=1) - timedelta(seconds=1))

    assert [f"{instant:%H:%M}" for instant in found] == wanted


@pytest.mark.parametrize("begin", EPOCHS)
def test_relay_agrees_for_all_schedules_around_the_changes_of_a_season(
    begin: datetime,
) -> None:
    end = begin + timedelta(days=30)

    for plan in FIFTY:
        by_relay = occurrences(
            parse(plan.expression),
            ZoneInfo(plan.zone),
            after=begin - timedelta(microseconds=1),
            until=end,
        )
        assert list(by_relay) == due(plan, begin, end), plan.name


def test_every_occurrence_once_and_none_early_is_good() -> None:
    assert list(judge("one", EXPECTED, FIRED)) == []
    passed = [Missed(first=EXPECTED[0], last=EXPECTED[1], count=2)]
    assert list(judge("one", EXPECTED, FIRED[2:], passed)) == []


@pytest.mark.parametrize(
    ("rule", "fired", "missed"),
    [
        ("S1", [*FIRED, FIRED[0]], []),
        ("S1", FIRED, [Missed(first=EXPECTED[0], last=EXPECTED[0], count=1)]),
        ("S1", [replace(FIRED[0], is_recorded=False), *FIRED[1:]], []),
        ("S2", FIRED[1:], []),
        ("S2", FIRED[2:], [Missed(first=EXPECTED[0], last=EXPECTED[1], count=3)]),
        ("S3", [*FIRED, Fired(EXPECTED[-1] + HOUR, EXPECTED[-1] + 2 * HOUR)], []),
        ("S5", [replace(FIRED[0], at=FIRED[0].due_at - HOUR), *FIRED[1:]], []),
    ],
)
def test_what_is_wrong_is_seen(
    rule: str, fired: Sequence[Fired], missed: Sequence[Missed]
) -> None:
    [found] = judge("one", EXPECTED, fired, missed)

    assert found.startswith(f"{rule}: one: ")

"""What becomes of instants that have passed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from relay.exceptions import ScheduleError
from relay.scheduler.catchup import Decision, decide
from relay.scheduler.cron import parse
from relay.scheduler.timetable import Timetable

BERLIN = ZoneInfo("Europe/Berlin")
DAY = timedelta(days=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-06-{text}").replace(tzinfo=UTC)


def outage(
    cron: str,
    since: str,
    now: str,
    catch_up: str,
    *,
    window: timedelta = DAY,
    seconds: bool = False,
    limit: int = 500,
) -> Decision:
    return decide(
        Timetable(rule=parse(cron, seconds=seconds), zone=BERLIN),
        next_due_at=at(since),
        now=at(now),
        catch_up=catch_up,
        window=window,
        limit=limit,
    )


@pytest.mark.parametrize(
    ("catch_up", "hours", "missed"),
    [("none", [], 3), ("latest", [12], 2), ("all", [10, 11, 12], 0)],
)
def test_three_hours_of_an_hourly_schedule(
    catch_up: str, hours: list[int], missed: int
) -> None:
    decision = outage("0 * * * *", "01 10:00", "01 12:30", catch_up)

    assert [instant.hour for instant in decision.fire] == hours
    assert decision.missed.total == missed
    assert decision.next_due_at == at("01 13:00")


@pytest.mark.parametrize("catch_up", ["none", "latest", "all"])
@pytest.mark.parametrize("window", [timedelta(0), DAY])
def test_failure_011_a_deploy_gap_loses_no_run(
    catch_up: str, window: timedelta
) -> None:
    decision = outage("0 14 * * *", "01 12:00", "01 12:00:05", catch_up, window=window)

    assert decision.fire == (at("01 12:00"),)
    assert decision.missed.total == 0


def test_failure_011_a_weekly_schedule_survives_a_restart_each_hour() -> None:
    timetable = Timetable(rule=parse("30 4 * * SUN"), zone=BERLIN)
    now = at("01 00:00")
    next_due_at = timetable.first_after(now)
    found = []

    # All that outlives a restart is the row: next_due_at.
    for _ in range(8 * 24):
        now += timedelta(hours=1)
        assert next_due_at is not None
        if next_due_at <= now:
            decision = decide(
                timetable,
                next_due_at=next_due_at,
                now=next_due_at + timedelta(seconds=1),
                catch_up="none",
                window=timedelta(0),
            )
            found += decision.fire
            next_due_at = decision.next_due_at

    assert found == [at("07 02:30")]


def test_under_none_the_newest_runs_if_it_is_on_time() -> None:
    decision = outage("* * * * *", "01 09:00", "01 12:00:20", "none")

    assert decision.fire == (at("01 12:00"),)
    assert decision.missed == (180, at("01 09:00"), at("01 11:59"))


def test_a_short_pause_of_a_schedule_in_seconds_drops_nothing() -> None:
    decision = outage("* * * * * *", "01 09:00:00", "01 09:00:04", "none", seconds=True)

    assert len(decision.fire) == 5
    assert decision.missed.total == 0


def test_a_long_pause_of_a_schedule_in_seconds_runs_one() -> None:
    decision = outage(
        "* * * * * *", "01 09:00:00", "01 12:00:00", "latest", seconds=True
    )

    assert decision.fire == (at("01 12:00:00"),)
    assert decision.missed.total == 3 * 3600


def test_latest_beyond_the_window_is_missed() -> None:
    decision = outage("0 6 * * *", "01 04:00", "03 12:00", "latest", window=DAY / 8)

    assert decision.fire == ()
    assert decision.missed == (3, at("01 04:00"), at("03 04:00"))


def test_all_reaches_as_far_as_the_window() -> None:
    decision = outage("0 * * * *", "01 10:00", "05 10:00", "all")

    assert decision.fire[0] == at("04 10:00")
    assert len(decision.fire) == 25
    assert decision.missed == (72, at("01 10:00"), at("04 09:00"))


def test_a_window_longer_than_occurrences_are_kept_is_cut() -> None:
    decision = outage("0 0 * * *", "01 22:00", "30 22:30", "all", window=40 * DAY)
    longer = decide(
        Timetable(rule=parse("0 0 * * *"), zone=BERLIN),
        next_due_at=at("01 22:00") - 100 * DAY,
        now=at("01 22:30"),
        catch_up="all",
        window=400 * DAY,
    )

    assert len(decision.fire) == 30
    assert len(longer.fire) == 31
    assert longer.missed.total == 70


def test_all_is_cut_at_its_limit_and_goes_on_there() -> None:
    first = outage("* * * * *", "01 10:00", "01 12:00", "all", limit=100)
    assert first.next_due_at is not None
    second = decide(
        Timetable(rule=parse("* * * * *"), zone=BERLIN),
        next_due_at=first.next_due_at,
        now=at("01 12:00"),
        catch_up="all",
        window=DAY,
        limit=100,
    )

    assert first.fire + second.fire == tuple(
        at("01 10:00") + timedelta(minutes=n) for n in range(121)
    )
    assert second.next_due_at == at("01 12:01")


def test_a_plan_set_back_between_two_instants_runs_only_real_ones() -> None:
    decision = outage("0 * * * *", "01 10:20", "01 11:40", "all")

    assert decision.fire == (at("01 11:00"),)


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ScheduleError, match="some"):
        outage("0 * * * *", "01 10:00", "01 11:00", "some")

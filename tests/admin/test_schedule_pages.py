"""What a schedule's page edits and shows beyond its expression."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from relay.ids import uuid7
from relay.models import Occurrence, Schedule
from relay.scheduler.preview import preview
from tests.admin.test_others import FORM, SCHEDULES, make_schedule, page

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
TIMES = {
    f"{name}_{part}": ""
    for name in ("once_at", "starts_at", "ends_at")
    for part in (0, 1)
}


def post(browser: Client, address: str, **values: str) -> Any:
    return browser.post(address, {**FORM, **TIMES, **values})


def occur(schedule: Schedule, hours_ago: int, **values: Any) -> Occurrence:
    return Occurrence.objects.create(
        schedule=schedule, due_at=NOW - timedelta(hours=hours_ago), **values
    )


def test_an_interval_is_added_in_spans_of_time(browser: Client) -> None:
    response = post(
        browser,
        f"{SCHEDULES}add/",
        cron="",
        every_ms="01:30:00",
        spread_ms="10:00",
        success_within_ms="2 00:00:00",
        overlap="queue",
        starts_at_0="2026-06-01",
        starts_at_1="09:00:00",
        excluded="2026-12-25\r\n* 22-23 * * *",
    )

    assert response.status_code == 302
    row = Schedule.objects.get()
    assert (row.cron, row.every_ms, row.spread_ms) == ("", 5_400_000, 600_000)
    assert (row.success_within_ms, row.overlap) == (172_800_000, "queue")
    assert row.starts_at == datetime(2026, 6, 1, 9, tzinfo=UTC)
    assert row.excluded is not None
    assert row.excluded.split() == ["2026-12-25", "*", "22-23", "*", "*", "*"]


def test_a_single_instant_is_edited(browser: Client) -> None:
    schedule = make_schedule()
    address = f"{SCHEDULES}{schedule.pk}/change/"

    response = post(
        browser, address, cron="", once_at_0="2030-01-02", once_at_1="03:04:05"
    )

    assert response.status_code == 302
    schedule.refresh_from_db()
    assert schedule.cron == ""
    assert schedule.once_at == datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    text = page(browser, address)
    assert "2030-01-02" in text
    assert "03:04:05" in text


def test_an_unchanged_form_changes_nothing(browser: Client) -> None:
    schedule = make_schedule(spread_ms=90_000, starts_at=NOW, excluded="2026-12-25")
    address = f"{SCHEDULES}{schedule.pk}/change/"
    form = browser.get(address).context["adminform"].form
    values = {
        bound.html_name: bound.value()
        for bound in form
        if bound.value() is not None and bound.name != "starts_at"
    }
    values |= {"starts_at_0": "2026-06-01", "starts_at_1": "12:00:00"}
    before = Schedule.objects.values().get()

    response = browser.post(address, {**TIMES, **values})

    assert response.status_code == 302
    assert Schedule.objects.values().get() == before
    assert form["spread_ms"].value() == "00:01:30"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("every_ms", "00:05:00"),
        ("spread_ms", "2 00:00:00"),
        ("spread_ms", "soon"),
        ("excluded", "someday"),
        ("overlap", "perhaps"),
        ("success_within_ms", "0"),
        ("success_within_ms", "9" * 18),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_reason(
    browser: Client, field: str, value: str
) -> None:
    response = post(browser, f"{SCHEDULES}add/", **{field: value})

    assert response.status_code == 200
    wrong = "cron" if field == "every_ms" else field
    assert wrong in response.context["adminform"].form.errors
    assert not Schedule.objects.exists()


def test_what_code_declares_is_shown_and_not_edited(browser: Client) -> None:
    schedule = make_schedule(
        source="code",
        cron="",
        every_ms=5_400_000,
        spread_ms=600_000,
        starts_at=NOW,
        excluded="2026-12-25",
        overlap="skip",
    )

    text = page(browser, f"{SCHEDULES}{schedule.pk}/change/")

    for shown in ("1:30:00", "0:10:00", ">2026-06-01 12:00:00</time>", "2026-12-25"):
        assert shown in text
    for name in ("every_ms", "spread_ms", "starts_at_0", "excluded", "overlap"):
        assert f'name="{name}"' not in text


def test_the_page_shows_the_runs_that_come(browser: Client) -> None:
    schedule = make_schedule(
        cron="*/20 3 * * *",
        timezone="Europe/Berlin",
        excluded="* * * * SUN",
        spread_ms=600_000,
    )

    text = page(browser, f"{SCHEDULES}{schedule.pk}/change/")

    runs = preview(schedule, now=timezone.now(), limit=10)
    assert len(runs) == 10
    for run in runs:
        assert f"{run.local:%Y-%m-%d %H:%M:%S} Europe/Berlin" in text
        assert f"({run.planned_at:%Y-%m-%d %H:%M:%S} UTC), spread to" in text


def test_the_page_says_that_nothing_comes_any_more(browser: Client) -> None:
    schedule = make_schedule(ends_at=NOW - timedelta(days=9000))

    assert "nothing is due any more" in page(
        browser, f"{SCHEDULES}{schedule.pk}/change/"
    )


def test_the_page_lists_what_became_of_occurrences(browser: Client) -> None:
    schedule = make_schedule()
    job_id = uuid7()
    occur(schedule, 1, state="skipped", reason="the run before it has not ended")
    occur(schedule, 2, job_id=job_id, outcome="failed")
    occur(schedule, 30, state="missed", count=28, until_at=NOW)

    text = page(browser, f"{SCHEDULES}{schedule.pk}/change/")

    assert text.count("skipped: the run before it has not ended") == 2
    assert text.count("missed 28 times") == 2
    assert text.count("</time> failed") == 1
    assert f"/admin/relay/job/{job_id}/change/" in text


def test_list_and_page_tell_what_is_late_or_does_not_succeed(browser: Client) -> None:
    late = make_schedule(next_due_at=timezone.now() - timedelta(hours=1, seconds=5))
    idle = make_schedule(name="idle", success_within_ms=3_600_000)
    Schedule.objects.filter(pk=idle.pk).update(
        created_at=timezone.now() - timedelta(hours=2, seconds=5)
    )

    text = page(browser, SCHEDULES)

    assert "late by 1:00:" in text
    assert "no success for 2:00:" in text
    assert "late by 1:00:" in page(browser, f"{SCHEDULES}{late.pk}/change/")


@pytest.mark.parametrize("name", ["once_at", "starts_at", "ends_at"])
@pytest.mark.parametrize(
    ("zone", "day", "time"),
    [
        ("America/New_York", "9999-12-31", "23:59:59"),
        ("Asia/Tokyo", "0001-01-01", "00:00:00"),
        ("UTC", "9999-12-31", "00:00:00"),  # none in other zones
    ],
)
def test_a_time_at_the_edge_of_time_is_refused_at_its_field(
    browser: Client, settings: Any, zone: str, day: str, time: str, name: str
) -> None:
    settings.TIME_ZONE = zone
    rule = {"cron": ""} if name == "once_at" else {}

    response = post(
        browser, f"{SCHEDULES}add/", **rule, **{f"{name}_0": day, f"{name}_1": time}
    )

    errors = response.context["adminform"].form.errors
    assert errors.keys() == {name}
    assert "give an instant from 1970-01-01 to 9999-12-29" in str(errors)
    assert not Schedule.objects.exists()

"""What the overview warns of, and whom."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from relay.dashboard import shared
from relay.models import Queue, Schedule
from tests.dashboard.pages import shown, url
from tests.dashboard.test_pages import make_schedule, make_worker
from tests.operations.factory import make_job


@pytest.fixture(autouse=True)
def _forgotten() -> None:
    shared.forget()


def warned(browser: Client) -> str:
    return shown(browser.get(url("overview", query="part=warnings")))


def test_nothing_is_said_where_all_is_well(browser: Client) -> None:
    make_worker()
    make_schedule(next_due_at=timezone.now() + timedelta(hours=1))
    make_job("queued")

    assert warned(browser).strip() == ""


def test_that_no_worker_is_there_is_said_once(browser: Client) -> None:
    make_job("queued")

    page = warned(browser)

    assert "No worker is there: nothing runs jobs." in page
    assert "No worker serves" not in page


def test_a_queue_that_nobody_serves_is_named_where_jobs_wait_in_it(
    browser: Client,
) -> None:
    make_worker(queues=["default"])
    Queue.objects.create(name="mail")
    make_job("queued", queue="mail")

    page = warned(browser)

    assert "No worker serves mail: its jobs wait." in page
    assert url("queue", "mail") in page


def test_leases_that_ran_out_are_counted_for_an_hour(browser: Client) -> None:
    now = timezone.now()
    make_worker()
    silent = {"heartbeat_at": now - timedelta(minutes=5)}
    gone = {"lease_expires_at": now - timedelta(minutes=4)}
    make_worker(name="a", state="lost", **silent, **gone)
    make_worker(name="b", **silent, **gone)  # nobody has taken it back yet
    make_worker(name="c", state="stopped", **silent, **gone)
    gone["heartbeat_at"] = now - timedelta(hours=2)
    make_worker(name="d", state="lost", **gone)

    assert "2 workers were lost within the hour: their leases ran out." in (
        warned(browser)
    )


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"next_due_at": -10, "created_at": -60}, "nightly is late by 10 min."),
        ({"last_error": "no such zone"}, "nightly cannot be kept."),
    ],
)
def test_a_schedule_that_is_late_or_cannot_be_kept_is_named(
    browser: Client, values: dict[str, Any], text: str
) -> None:
    schedule = make_schedule()
    now = timezone.now()
    Schedule.objects.filter(pk=schedule.pk).update(
        **{
            name: now + timedelta(minutes=value) if isinstance(value, int) else value
            for name, value in values.items()
        }
    )

    assert text in warned(browser)


def test_migrations_that_are_missing_are_named(browser: Client) -> None:
    MigrationRecorder(connection).record_unapplied("relay", "0001_initial")

    assert "Migrations are not applied: 0001_initial." in warned(browser)


@pytest.mark.parametrize(("ahead", "word"), [(-7_230, "ahead of"), (90, "behind")])
def test_clocks_that_differ_are_told(
    browser: Client, monkeypatch: pytest.MonkeyPatch, ahead: float, word: str
) -> None:
    now = time.time
    monkeypatch.setattr("relay.queries.soundness.time.time", lambda: now() + ahead)

    page = warned(browser)

    span = "2 h" if ahead < 0 else "1 min"
    assert f"The clock of the database is {span} {word} this machine" in page


def test_migrations_and_clocks_are_looked_at_once_for_many_pages(
    browser: Client,
) -> None:
    shown(browser.get(url("overview")))

    with CaptureQueriesContext(connection) as captured:
        shown(browser.get(url("overview")))

    assert not [one for one in captured if "django_migrations" in one["sql"]]


def test_who_may_see_a_part_is_warned_of_that_part(
    browser_of: Callable[..., Client],
) -> None:
    MigrationRecorder(connection).record_unapplied("relay", "0001_initial")
    looks = browser_of("view_worker")

    page = warned(looks)

    assert "No worker is there" in page
    assert "Migrations" not in page

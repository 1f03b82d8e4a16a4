"""Live regions: what is asked for again costs little, and is right for who asks."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from relay.dashboard import shared
from relay.exceptions import ReadTimeout
from relay.models import Queue, Stat
from relay.operations import Actor
from relay.queries import list_queues
from relay.queries.reading import bounded_read, reading_together
from tests.dashboard.pages import PAGES, shown, url
from tests.dashboard.test_pages import fill, make_schedule, make_worker
from tests.operations.factory import make_job

REGIONS = [
    *(("overview", each) for each in ("queues", "failing", "staff", "upcoming")),
    *(("overview", "throughput"), ("overview", "warnings")),
    *(("jobs", "jobs"), ("jobs", "tabs")),
    *(("failures", "failures"), ("queues", "queues"), ("workers", "workers")),
    *(("schedules", "schedules"), ("bulk", "bulk")),
    *(("metrics", "charts"), ("metrics", "totals")),
]


@pytest.fixture(autouse=True)
def _forgotten() -> None:
    shared.forget()


def region(browser: Client, name: str, part: str, tag: str = "") -> Any:
    headers = {"If-None-Match": tag} if tag else {}
    return browser.get(url(name, query=f"part={part}"), headers=headers)


# --- nothing new ---------------------------------------------------------------------


@pytest.mark.parametrize(("name", "part"), REGIONS)
def test_a_region_in_which_nothing_is_new_is_not_sent(
    browser: Client, name: str, part: str
) -> None:
    make_job("failed", error_class="ValueError", error_message="no")
    make_schedule()
    Queue.objects.create(name="mail")

    for _ in range(3):
        begun = timezone.now().minute
        first = region(browser, name, part)
        again = region(browser, name, part, first["ETag"])
        weak = region(browser, name, part, f"W/{first['ETag']}")
        if begun == timezone.now().minute:  # which charts begin at
            break

    assert first.status_code == 200
    assert (again.status_code, again.content) == (304, b"")
    assert again["ETag"] == first["ETag"]
    assert again["Cache-Control"] == "no-store"
    assert "Content-Security-Policy" in again
    assert weak.status_code == 304


def test_a_page_knows_the_tags_of_its_regions(browser: Client) -> None:
    make_job("failed")

    page = shown(browser.get(url("jobs")))
    tag = region(browser, "jobs", "jobs")["ETag"]

    assert f'data-tag="{tag.replace(chr(34), "&quot;")}"' in page


def test_ages_alone_are_nothing_new(browser: Client) -> None:
    job = make_job("failed", finished_at=timezone.now() - timedelta(seconds=30))
    tag = region(browser, "jobs", "jobs")["ETag"]
    shown_at = region(browser, "jobs", "jobs").content

    later = region(browser, "jobs", "jobs", tag)
    job.finished_at = timezone.now() - timedelta(days=3)
    job.save()
    moved = region(browser, "jobs", "jobs", tag)

    assert b'<time class="ago"' in shown_at
    assert later.status_code == 304
    assert moved.status_code == 200


@pytest.mark.parametrize("name", PAGES)
def test_lists_renew_half_as_often_as_the_overview(browser: Client, name: str) -> None:
    seconds = 5 if name in ("overview", "metrics", "system") else 10

    page = shown(browser.get(url(name)))

    assert f'data-every="{seconds}"' in page
    assert '<option value="10">' in page


def test_what_is_new_is_sent(browser: Client) -> None:
    tag = region(browser, "jobs", "jobs")["ETag"]
    make_job("failed")

    answer = region(browser, "jobs", "jobs", tag)

    assert answer.status_code == 200
    assert answer["ETag"] != tag


def test_a_new_secret_of_the_forms_is_new(ada: User) -> None:
    make_job("failed")
    client = Client()
    client.force_login(ada)
    client.get(url("queues"))
    tag = region(client, "queues", "queues")["ETag"]
    assert region(client, "queues", "queues", tag).status_code == 304

    del client.cookies["csrftoken"]

    assert region(client, "queues", "queues", tag).status_code == 200


def test_an_idle_page_costs_few_statements(browser: Client) -> None:
    fill(2)
    tag = region(browser, "jobs", "jobs")["ETag"]

    with CaptureQueriesContext(connection) as captured:
        answer = region(browser, "jobs", "jobs", tag)

    asked = [one["sql"] for one in captured if one["sql"].startswith("SELECT")]
    # Who asks: the session and the account. How it is read, and the page of jobs.
    assert answer.status_code == 304
    assert len(asked) <= 4, asked


def test_a_region_costs_at_most_six_statements(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "SECONDS", 3_600)
    fill(2)
    for name, part in REGIONS:
        with CaptureQueriesContext(connection) as captured:
            region(browser, name, part)
        asked = [
            one["sql"]
            for one in captured
            if one["sql"].lstrip().startswith(("SELECT", "WITH"))
        ]
        assert len(asked) <= 6, (name, part, asked)


def test_warnings_alone_cost_six_statements(browser: Client) -> None:
    fill(2)
    region(browser, "overview", "warnings")  # migrations and clocks are known by now
    shared._kept.pop(next(key for key in shared._kept if key[2] == "workers"))
    for key in [key for key in shared._kept if key[2] in ("queues", "schedules")]:
        shared._kept.pop(key)

    with CaptureQueriesContext(connection) as captured:
        region(browser, "overview", "warnings")

    asked = [one["sql"] for one in captured]
    asked = [sql for sql in asked if sql.lstrip().startswith(("SELECT", "WITH"))]
    assert len(asked) <= 6, asked


# --- shared figures ------------------------------------------------------------------


def about(captured: CaptureQueriesContext) -> list[str]:
    return [one["sql"] for one in captured if "relay_" in one["sql"]]


@pytest.mark.parametrize("part", [part for name, part in REGIONS if name == "overview"])
def test_ten_tabs_cost_one_read(
    browser: Client, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "SECONDS", 3_600)
    region(browser, "overview", part)

    with CaptureQueriesContext(connection) as captured:
        for _ in range(9):
            assert region(browser, "overview", part).status_code == 200

    assert about(captured) == []


def test_who_may_see_something_else_has_figures_of_their_own(
    browser: Client,
    browser_of: Callable[..., Client],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared, "SECONDS", 3_600)
    make_job("failed", error_class="ValueError")
    make_worker(name="web-1")
    looks, counts = browser_of("view_job"), browser_of("view_queue")

    everything = [
        region(browser, "overview", part).content
        for name, part in REGIONS
        if name == "overview" and part != "warnings"
    ]
    assert all(everything)
    assert b"ValueError" in region(looks, "overview", "failing").content
    for client, part in (
        (looks, "queues"),
        (looks, "staff"),
        (looks, "upcoming"),
        (looks, "throughput"),
        (counts, "failing"),
    ):
        assert region(client, "overview", part).content == b"", part
    seen = region(counts, "overview", "queues").content
    assert b"default" in seen
    assert b'class="spark"' not in seen
    assert b'class="spark"' in region(browser, "overview", "queues").content


def test_a_page_and_who_has_just_acted_see_what_is(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "SECONDS", 3_600)
    assert b"paused" not in region(browser, "overview", "queues").content
    Queue.objects.create(name="mail", paused_at=timezone.now())
    assert b"paused" not in region(browser, "overview", "queues").content

    assert ">paused</span>" in shown(browser.get(url("overview")))
    browser.post(url("act_on_queue", "mail"), {"action": "resume"})
    assert b">paused</span>" not in region(browser, "overview", "queues").content


def test_figures_are_kept_no_longer_than_they_are_shown(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "SECONDS", -1)
    for _ in range(3):
        region(browser, "overview", "queues")

    assert len(shared._kept) <= 1


# --- what is read together -----------------------------------------------------------


def settings_asked(captured: CaptureQueriesContext) -> int:
    return sum("set_config" in one["sql"] for one in captured)


@pytest.mark.django_db
def test_alike_reads_are_one_transaction() -> None:
    with CaptureQueriesContext(connection) as captured, reading_together():
        for bitmaps in (False, False, True, True, False):
            with bounded_read("default", bitmaps=bitmaps):
                pass

    assert settings_asked(captured) == 3
    with connection.cursor() as cursor:
        cursor.execute("SHOW enable_seqscan")
        assert cursor.fetchone() == ("on",)


@pytest.mark.django_db
def test_a_read_within_one_of_another_kind_leaves_it_as_it_was() -> None:
    with reading_together(), connection.cursor() as cursor, bounded_read("default"):
        with bounded_read("default", bitmaps=True):
            cursor.execute("SHOW enable_bitmapscan")
            assert cursor.fetchone() == ("on",)
        cursor.execute("SHOW enable_bitmapscan")
        assert cursor.fetchone() == ("off",)


@pytest.mark.django_db
def test_a_read_that_takes_too_long_leaves_the_next_ones_sound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with reading_together():
        monkeypatch.setattr("relay.queries.reading.LOOK_SECONDS", 0.02)
        with (
            pytest.raises(ReadTimeout),
            bounded_read("default"),
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT pg_sleep(5)")
        monkeypatch.undo()
        with bounded_read("default"), connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            assert cursor.fetchone() == (1,)


# --- the last hour -------------------------------------------------------------------


def add_stat(minutes: int, **values: Any) -> None:
    minute = timezone.now().replace(second=0, microsecond=0)
    Stat.objects.create(
        seconds=60,
        at=minute - timedelta(minutes=minutes),
        **{
            **{"queue": "default", "task": "app.mail", "outcome": "completed"},
            **{"count": 1, "run_seconds": 0.1, "wait_seconds": 0.1},
            **{"run_buckets": [0] * 24, "wait_buckets": [0] * 24, **values},
        },
    )


def test_the_table_of_tasks_has_how_long_the_slowest_waited(browser: Client) -> None:
    add_stat(5, count=7, wait_buckets=[0] * 23 + [7])

    page = shown(browser.get(url("metrics")))

    heads = re.findall(r'<th scope="col"[^>]*>(?:Waited|Ran) (\w+)</th>', page)
    assert heads == ["p50", "p95", "p99"] * 2


def test_each_queue_has_its_last_hour_as_a_line(browser: Client) -> None:
    add_stat(5, count=7)
    add_stat(5, count=2, outcome="failed", task="app.other")
    add_stat(70, count=1_000)
    add_stat(3, count=4, queue="nobody")
    Queue.objects.create(name="mail")

    page = shown(browser.get(url("overview")))

    # Other tests' tasks have queues too.
    queues = [queue["name"] for queue in list_queues(Actor(name="ann", source="api"))]
    assert {"default", "mail"} <= set(queues)
    assert page.count('class="spark"') == len(queues)
    assert "9 attempts ended in the last hour, at most 9 in a minute" in page
    assert "0 attempts ended in the last hour" in page
    assert "11 completed, 2 failed" in page


def test_all_queues_lines_are_one_read(browser: Client) -> None:
    for number in range(5):
        Queue.objects.create(name=f"q{number}")
        add_stat(2, queue=f"q{number}")

    with CaptureQueriesContext(connection) as captured:
        shown(browser.get(url("overview")))

    assert sum("relay_stat" in one["sql"] for one in captured) == 1

"""What the pages show, of whatever rows hold, and what they cost."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from relay import queries
from relay.exceptions import ReadTimeout
from relay.ids import uuid7
from relay.models import (
    Attempt,
    BulkOperation,
    History,
    Job,
    JobState,
    Occurrence,
    Output,
    Queue,
    Schedule,
    Stat,
    Step,
    Worker,
)
from tests.dashboard.pages import PAGES, shown, url
from tests.operations.factory import make_job

HOSTILE = "<img src=x onerror=alert(1)></script>\"'{{ 7*7 }}"
SHOWN = ("now", "past", "logs")
INERT = "&lt;img src=x onerror=alert(1)&gt;"


def make_worker(**values: Any) -> Worker:
    given = {
        "name": "web-1",
        "host": "web",
        "pid": 7,
        "queues": ["default"],
        "concurrency": 10,
        "version": "1",
        "lease_expires_at": timezone.now() + timedelta(minutes=1),
    }
    return Worker.objects.create(**{**given, **values})


def make_schedule(**values: Any) -> Schedule:
    given = {"name": "nightly", "task": "testproject.tasks.add", "cron": "0 3 * * *"}
    return Schedule.objects.create(**{**given, **values})


def fill(count: int = 20) -> Job:
    """Make some of everything; return a job that failed."""
    worker = make_worker()
    for number in range(count):
        for state in JobState.values:
            values: dict[str, Any] = {"queue": f"q{number % 5}"}
            if state == "running":
                values |= {"worker_id": worker.pk, "started_at": timezone.now()}
            if state == "failed":
                values |= {"error_class": "ValueError", "error_message": f"n {number}"}
            job = make_job(state, **values)
        make_schedule(name=f"schedule {number}")
        BulkOperation.objects.create(action="retry", filter="state:failed", actor="a")
    Queue.objects.create(name="q1", paused_at=timezone.now())
    job = make_job("failed", error_class="ValueError", error_message="boom")
    Attempt.objects.create(job=job, attempt=1, outcome="fail", traceback="Traceback")
    History.objects.create(job=job, event="retry", actor="ada")
    Output.objects.create(job=job, attempt=1, text="a line")
    Step.objects.create(job=job, attempt=1, name="first", value=1)
    return job


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_nothing_opens(browser: Client, name: str) -> None:
    page = shown(browser.get(url(name)))

    assert '<main id="main"' in page
    assert page.count("<h1") == 1
    assert 'aria-current="page"' in page


# Who asks is read besides: the session and the account. The overview shows five lists;
# the page of the system has the checks run, which ask for themselves.
MOST = {"overview": 8, "metrics": 6}


@pytest.mark.parametrize("name", [each for each in PAGES if each != "system"])
def test_failure_050_a_page_reads_at_most_six_times(browser: Client, name: str) -> None:
    fill()
    browser.get(url(name))

    with CaptureQueriesContext(connection) as captured:
        shown(browser.get(url(name)))

    asked = [one["sql"] for one in captured if is_read(one["sql"])]
    assert len(asked) <= MOST.get(name, 6), asked


def is_read(statement: str) -> bool:
    return statement.lstrip().startswith(("SELECT", "WITH"))


@pytest.mark.parametrize("state", JobState.values)
@pytest.mark.parametrize("query", ["", "show=past", "show=logs"])
def test_a_jobs_page_reads_at_most_six_times(
    browser: Client, state: str, query: str
) -> None:
    worker = make_worker()
    values = {"worker_id": worker.pk} if state == "running" else {}
    job = make_job(state, **values)

    assert len(reads(browser, url("job", job.pk, query=query))) <= 6


def reads(browser: Client, where: str) -> list[str]:
    """Return the statements that read relay's tables, besides who asks."""
    with CaptureQueriesContext(connection) as captured:
        shown(browser.get(where))
    return [one["sql"] for one in captured if "relay_" in one["sql"]]


# --- jobs ----------------------------------------------------------------------------


@pytest.mark.parametrize("state", JobState.values)
def test_the_list_shows_a_state(browser: Client, state: str) -> None:
    jobs = {each: make_job(each) for each in JobState.values}

    page = shown(browser.get(url("jobs", query=f"state={state}")))

    assert f'id="job-{jobs[state].pk}"' in page
    assert page.count('<tr id="job-') == 1
    assert 'aria-current="page">' in page


def test_the_list_takes_the_filter_language(browser: Client) -> None:
    found = make_job("failed", error_class="ValueError", tags=["vip"])
    make_job("failed", error_class="KeyError")

    page = shown(browser.get(url("jobs", query="q=error:ValueError+tag:vip")))

    assert page.count('<tr id="job-') == 1
    assert str(found.pk) in page


def test_each_qualifier_is_a_parameter_too_and_a_new_search_keeps_it(
    browser: Client,
) -> None:
    found = make_job("failed", error_class="ValueError")
    make_job("failed", error_class="KeyError")

    page = shown(browser.get(url("jobs", query="state=failed&error=ValueError")))

    assert page.count('<tr id="job-') == 1
    assert str(found.pk) in page
    assert '<input type="hidden" name="error" value="ValueError">' in page


@pytest.mark.parametrize("query", ["q=colour:red", "colour=red"])
def test_a_filter_that_cannot_be_read_is_told_and_changes_nothing(
    browser: Client, query: str
) -> None:
    page = shown(browser.get(url("jobs", query=query)))

    assert "unknown qualifier" in page
    assert 'name="action"' not in page


def test_an_id_leads_to_its_job(browser: Client) -> None:
    job = make_job()

    answer = browser.get(url("jobs", query=f"q={job.pk}"))

    assert answer.status_code == 302
    assert answer["Location"] == url("job", job.pk)


def test_failure_136_pages_of_the_list_follow_each_other(browser: Client) -> None:
    ids = {str(make_job("failed").pk) for _ in range(60)}
    where = url("jobs", query="state=failed")

    first = browser.get(where).content.decode()
    where = html.unescape(first.partition('id="next" href="')[2].partition('"')[0])
    second = browser.get(url("jobs") + where).content.decode()

    assert (first.count('<tr id="job-'), second.count('<tr id="job-')) == (50, 10)
    assert all(each in first + second for each in ids)
    assert 'id="previous"' in second


def test_a_cursor_of_nobodys_is_told(browser: Client) -> None:
    assert "cursor" in shown(browser.get(url("jobs", query="cursor=nonsense")))


def test_a_jobs_page_tells_why_it_does_not_run(browser: Client) -> None:
    Queue.objects.create(name="default", paused_at=timezone.now())
    job = make_job("queued")
    make_worker()

    page = shown(browser.get(url("job", job.pk)))

    assert "Why is this job not running?" in page
    assert "<code>queue_paused</code>" in page


def test_a_jobs_page_tells_its_whole_past(browser: Client) -> None:
    job = fill(1)

    now = shown(browser.get(url("job", job.pk)))
    past = shown(browser.get(url("job", job.pk, query="show=past")))
    logs = shown(browser.get(url("job", job.pk, query="show=logs")))

    for text in ("ValueError", "boom", "How did it end?"):
        assert text in now
    for text in ("Traceback", "retry", "by ada"):
        assert text in past
    for text in ("a line", "first"):
        assert text in logs


def test_a_job_that_is_gone_is_not_found(browser: Client) -> None:
    answer = browser.get(url("job", uuid7()))

    assert answer.status_code == 404
    assert "does not exist" in answer.content.decode()


def test_failure_016_what_jobs_bring_is_text(browser: Client) -> None:
    job = make_job(
        "failed",
        task=HOSTILE,
        tags=["<b>"],
        args={"args": [HOSTILE], "kwargs": {HOSTILE: HOSTILE}},
        error_class=HOSTILE,
        error_message=HOSTILE,
        meta={HOSTILE: HOSTILE},
        progress={"text": HOSTILE},
    )
    Attempt.objects.create(
        job=job,
        attempt=1,
        outcome=HOSTILE,
        error_class=HOSTILE,
        error_message=HOSTILE,
        traceback=HOSTILE,
    )
    History.objects.create(job=job, event=HOSTILE, actor=HOSTILE, detail=[HOSTILE])
    Output.objects.create(job=job, attempt=1, text=HOSTILE)
    Step.objects.create(job=job, attempt=1, name=HOSTILE, value=HOSTILE)
    Queue.objects.create(name=HOSTILE)
    make_worker(name=HOSTILE, host=HOSTILE, queues=[HOSTILE])
    BulkOperation.objects.create(action=HOSTILE, filter=HOSTILE, actor=HOSTILE)
    make_schedule(name=HOSTILE)
    where = [url(name) for name in PAGES]
    where += [*(url("job", job.pk, query=f"show={show}") for show in SHOWN)]
    where += [url("schedule", HOSTILE), url("queue", HOSTILE)]
    where += [url("replay_job", job.pk), url("jobs", query=f"q={quote(HOSTILE)}")]

    for each in where:
        page = shown(browser.get(each))
        assert "<img src=x" not in page, each
    page = shown(browser.get(url("job", job.pk)))
    assert INERT in page
    assert "{{ 7*7 }}" in page


@pytest.mark.parametrize("name", ["a/b", "x y", "ä", "..", "a?b#c", "line\nbreak", ""])
def test_names_that_no_enqueue_takes_open_all_the_same(
    browser: Client, name: str
) -> None:
    job = make_job("failed", queue=name, task=name or "t")
    Queue.objects.create(name=name)

    for where in (*map(url, PAGES), url("job", job.pk)):
        assert browser.get(where).status_code == 200
    if name and "\n" not in name and name != "..":
        assert browser.get(url("queue", name)).status_code == 200


@pytest.mark.parametrize("instant", ["infinity", "-infinity", "20000-01-01"])
def test_times_that_python_cannot_hold_open(browser: Client, instant: str) -> None:
    job = make_job("failed")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE relay_job SET created_at = %s, finished_at = %s, expires_at = %s",
            [instant] * 3,
        )

    assert browser.get(url("job", job.pk)).status_code == 200
    assert browser.get(url("jobs")).status_code == 200


def test_payloads_are_masks_without_view_payload(
    browser_of: Callable[..., Client],
) -> None:
    job = make_job(
        "completed",
        args={"args": ["canary"], "kwargs": {"token": "canary"}},
        result="canary",
        progress={"text": "canary"},
    )
    Step.objects.create(job=job, attempt=1, name="first", value="canary")
    looks = browser_of("view_job")

    for where in (
        url("jobs"),
        *(url("job", job.pk, query=f"show={show}") for show in SHOWN),
    ):
        page = shown(looks.get(where))
        assert "canary" not in page
        assert "•••" in page or "show=past" in where
    answer = looks.get(url("jobs", query="q=args.0:canary"))
    assert answer.status_code == 403
    assert "view_payload" in answer.content.decode()
    assert str(job.pk) not in answer.content.decode()


def test_failure_056_secrets_are_masks_with_view_payload_too(browser: Client) -> None:
    job = make_job("failed", args={"args": ["seen"], "kwargs": {"token": "canary"}})

    for where in (url("jobs"), url("job", job.pk), url("replay_job", job.pk)):
        page = shown(browser.get(where))
        assert "seen" in page
        assert "canary" not in page


# --- live regions --------------------------------------------------------------------


def test_a_region_is_answered_alone(browser: Client) -> None:
    job = make_job("failed")

    whole = shown(browser.get(url("jobs", query="state=failed")))
    region = shown(browser.get(url("jobs", query="state=failed&part=jobs")))

    assert 'hx-get="?state=failed&amp;part=jobs"' in whole
    assert f'id="job-{job.pk}"' in region
    assert "<html" not in region
    assert "<h1" not in region


def test_a_region_that_takes_too_long_says_so_and_leaves_the_others(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_long(*_args: Any, **_options: Any) -> Any:
        raise ReadTimeout(2)

    make_worker(name="still there", queues=["default"])
    monkeypatch.setattr(queries, "list_failures", too_long)

    page = shown(browser.get(url("overview")))

    assert page.count('class="note error"') == 1
    assert 'href="/ops/dashboard/queues/default/"' in page


def test_the_region_of_a_job_that_has_ended_rests(browser: Client) -> None:
    ended, waits = make_job("failed"), make_job("queued")

    assert "hx-get" not in shown(browser.get(url("job", ended.pk)))
    assert "hx-get" in shown(browser.get(url("job", waits.pk)))


# --- the other pages -----------------------------------------------------------------


def test_failures_are_groups_with_a_way_to_all_of_each(browser: Client) -> None:
    for number in range(3):
        make_job("failed", error_class="ValueError", error_message=f"same\n{number}")
    make_job("failed", error_class="KeyError", error_message="other")

    page = shown(browser.get(url("failures")))

    assert page.count('<tr id="group-') == 2
    assert "ValueError" in page
    assert ">Retry all…</button>" in page


def test_a_schedules_page_tells_its_next_and_latest_runs(browser: Client) -> None:
    schedule = make_schedule()
    Occurrence.objects.create(
        schedule=schedule,
        due_at=datetime(2026, 1, 1, tzinfo=UTC),
        state="missed",
    )

    page = shown(browser.get(url("schedule", schedule.name)))

    assert page.count("03:00:00") >= 5
    assert ">missed</span>" in page


def test_a_chart_has_its_figures_in_a_table(browser: Client) -> None:
    minute = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=3)
    buckets = [0] * 24
    buckets[5] = 7
    for seconds in (60, 3600):
        Stat.objects.create(
            seconds=seconds,
            at=minute,
            queue="default",
            task="app.mail",
            outcome="completed",
            count=7,
            run_seconds=0.2,
            wait_seconds=0.2,
            run_buckets=buckets,
            wait_buckets=buckets,
        )

    page = shown(browser.get(url("metrics", query="window=1h")))

    assert '<rect class="completed"' in page
    assert "7 completed" in page
    assert "app.mail" in page


def test_a_form_belongs_to_its_page_in_the_navigation(browser: Client) -> None:
    for name in ("new_schedule", "enqueue"):
        page = shown(browser.get(url(name)))
        listed = url("schedules" if name == "new_schedule" else "jobs")

        assert re.search(f'href="{listed}"[^>]* aria-current="page"', page), name


def test_a_page_is_in_the_navigation_of_who_may_see_it(
    browser_of: Callable[..., Client],
) -> None:
    page = shown(browser_of("view_queue").get(url("queues")))

    assert ">Queues</a>" in page
    assert ">Jobs</a>" not in page
    assert browser_of("view_queue").get(url("jobs")).status_code == 403


def test_where_no_job_waits_no_time_is_told_on_either_page(browser: Client) -> None:
    one, every = (
        shown(browser.get(page)) for page in (url("queue", "default"), url("queues"))
    )
    make_job()
    busy = shown(browser.get(url("queue", "default")))

    assert "Oldest waits</dt><dd>–</dd>" in one  # noqa: RUF001 - an en dash
    assert '<td class="num">–</td>' in every  # noqa: RUF001 - an en dash
    assert re.search(r"Oldest waits</dt><dd>\d+ ms</dd>", busy)

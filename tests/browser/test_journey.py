"""The journey of somebody on call, with scripts and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from django.utils import timezone

from relay.models import BulkOperation, Job, Queue, Schedule
from tests.api.factory import make_schedule
from tests.operations.factory import make_job
from tests.waiting import until
from tests.worker.harness import Database, Workers

if TYPE_CHECKING:
    from playwright.sync_api import Page

ADD = "testproject.tasks.add"


@pytest.mark.parametrize("javascript", [True, False], ids=["scripts", "no scripts"])
def test_from_the_login_to_a_thousand_retries(
    open_page: Callable[..., Page],
    database: Database,
    workers: Workers,
    javascript: bool,
) -> None:
    failed = database.enqueue(
        "testproject.tasks.fail",
        "boom",
        count=1_000,
        wake=False,
        queue="away",
        state="failed",
        finished_at=timezone.now(),
        error_class="ValueError",
        error_message="the mail server said no",
    )
    Queue.objects.create(name="away")
    worker = workers.start("-c", "2", "-q", "default")
    running = database.enqueue_one("anap", 600)
    database.wait_for_start(running)
    page = open_page(javascript=javascript)

    # Log in.
    page.goto("./")
    page.fill("[name=username]", "ada")
    page.fill("[name=password]", "wonder")
    page.click("[type=submit]")
    page.wait_for_selector("h1:text('Overview')")

    # Find a failed job, and read why.
    page.click("nav >> text=Failures")
    page.click("th >> text=testproject.tasks.fail")
    page.wait_for_selector("h1:text('Jobs')")
    page.locator("tbody th a").first.click()
    page.wait_for_selector("text=the mail server said no")

    # Replay it.
    page.click("button:text-is('Replay')")
    page.wait_for_selector("text=This is the replay of")
    assert Job.objects.filter(replay_of__in=failed).count() == 1

    # Cancel one that runs.
    page.click("nav >> text=Jobs")
    page.click("#tab-running")
    page.click(f"#job-{running} th a")
    page.click("button:text-is('Cancel')")
    page.fill("#reason", "it takes too long")
    page.click("button:text-is('Cancel 1 job')")
    page.wait_for_selector("text=was asked to stop")
    database.wait_for(running, "cancelled")

    # Pause a queue.
    page.click("nav >> text=Queues")
    page.click("[aria-label='Pause away']")
    page.wait_for_selector("text=away is paused")
    assert Queue.objects.get(name="away").paused_at is not None

    # Retry a thousand.
    page.click("nav >> text=Failures")
    page.click("button:text-is('Retry all…')")
    page.fill("#typed", "1,000")
    page.click("button:text-is('Retry 1,000 jobs')")
    page.wait_for_selector("text=A worker does it")
    until(lambda: BulkOperation.objects.filter(state="completed").exists())
    page.reload()
    page.wait_for_selector(".state:has-text('completed')")
    assert BulkOperation.objects.get().done == 1_000
    assert Job.objects.filter(pk__in=failed, state="queued").count() == 1_000
    assert worker.stop() == 0


def test_without_scripts_jobs_queues_and_schedules_are_acted_on(
    open_page: Callable[..., Page], log_in: Callable[[Page], None]
) -> None:
    failed = [make_job("failed", task=ADD, queue="mail") for _ in range(3)]
    waiting = make_job("queued", task=ADD, queue="mail")
    Queue.objects.create(name="mail")
    make_schedule(task=ADD, args={"args": [1, 2], "kwargs": {}})
    page = open_page(javascript=False)
    log_in(page)

    # Tick two jobs, and retry them.
    page.goto("jobs/?state=failed")
    for job in failed[:2]:
        page.check(f"#tick-{job.pk}")
    page.click("button[value=retry]")
    page.click("button:text-is('Retry 2 jobs')")
    page.wait_for_selector("text=2 jobs are ready again")

    # Edit one that waits.
    page.goto(f"jobs/{waiting.pk}/")
    page.click("a:text-is('Edit')")
    page.fill("[name=priority]", "7")
    page.click("button:text-is('Change it')")
    page.wait_for_selector("text=Changed.")

    # Enqueue one.
    page.goto("jobs/new/")
    page.select_option("#task", ADD)
    page.click("button:text-is('Choose')")
    page.fill("[name=args]", "[1, 2]")
    page.click("button:text-is('Enqueue')")
    page.wait_for_selector("text=Enqueued.")

    # Run a schedule, and pause it.
    page.goto("schedules/nightly/")
    page.click("button[value=run]")
    page.wait_for_selector("text=nightly runs now")
    page.click("button[value=pause]")
    page.wait_for_selector("text=nightly is paused")

    # Purge a queue.
    page.goto("queues/mail/")
    page.click("button[value=purge]")
    page.fill("#typed", "mail")
    page.click("button:text-is('Purge mail')")
    page.wait_for_selector("text=A worker deletes what waits in mail")

    states = Job.objects.filter(pk__in=[job.pk for job in failed])
    assert sorted(states.values_list("state", flat=True)) == [
        *("failed", "queued", "queued")
    ]
    waiting.refresh_from_db()
    assert waiting.priority == 7
    assert Job.objects.filter(task=ADD, schedule_id__isnull=False).count() == 1
    assert Job.objects.filter(task=ADD, args__args=[1, 2]).count() == 2
    assert not Schedule.objects.get().enabled
    assert BulkOperation.objects.get().action == "delete"

"""Acts on queues, workers and schedules from the dashboard."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.test import Client
from django.utils import timezone

from relay.models import Audit, BulkOperation, Job, Queue, Schedule, Worker
from relay.operations import bulk
from tests.dashboard.pages import given, said, shown, url
from tests.dashboard.test_acts import YES, acted
from tests.dashboard.test_pages import make_schedule, make_worker
from tests.operations.factory import make_job

# --- queues --------------------------------------------------------------------------


def test_a_queue_is_paused_and_resumed(browser: Client) -> None:
    where = url("act_on_queue", "default")

    assert "is paused" in said(browser.post(where, {"action": "pause"}))
    assert Queue.objects.get(name="default").paused_at is not None
    assert ">paused</span>" in shown(browser.get(url("queues")))
    assert "goes on" in said(browser.post(where, {"action": "resume"}))
    assert Queue.objects.get(name="default").paused_at is None
    assert acted() == [
        ("pause_queue", "default", "dashboard"),
        ("resume_queue", "default", "dashboard"),
    ]


def test_a_queue_is_paused_for_a_while(browser: Client) -> None:
    browser.post(url("act_on_queue", "default"), {"action": "pause", "minutes": "60"})

    until = Queue.objects.get(name="default").paused_until
    assert until is not None
    assert until > timezone.now()


@pytest.mark.parametrize("order", ["fifo", "priority"])
def test_a_queue_is_ordered(browser: Client, order: str) -> None:
    browser.post(url("act_on_queue", "default"), {"action": "fifo"})

    browser.post(url("act_on_queue", "default"), {"action": order})

    assert Queue.objects.get(name="default").policy == order


def test_a_purge_wants_the_queues_name_typed(browser: Client) -> None:
    for _ in range(3):
        make_job("queued")
    where, act = url("act_on_queue", "default"), {"action": "purge"}

    question = shown(browser.post(where, act))
    wrong = shown(browser.post(where, {**act, **YES, "typed": "mail"}))
    assert "Type default to go on" in question
    assert "Nothing was changed" in wrong
    assert not BulkOperation.objects.exists()
    assert "Waiting now: 3." in question
    assert 'name="expected" value="3"' in question
    yes = {**act, **YES, "typed": "default"}
    assert "3 jobs match and 2 were" in said(
        browser.post(where, {**yes, "expected": 2})
    )
    answer = browser.post(where, {**yes, "expected": 3})

    made = BulkOperation.objects.get()
    assert answer["Location"] == url("bulk_one", made.pk)
    assert (made.action, made.expected) == ("delete", 3)


def test_an_empty_queue_is_not_purged(browser: Client) -> None:
    act = {"action": "purge"}

    assert "No job matches" in said(browser.post(url("act_on_queue", "default"), act))


def test_beyond_what_is_counted_all_that_are_there_are_meant(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "COUNT_LIMIT", 2)
    for _ in range(3):
        make_job("queued")
    purge, act = url("act_on_queue", "default"), {"action": "purge"}
    every, matching = url("act_on_all"), {"action": "cancel", "filter": "state:queued"}

    assert "Waiting now: 2+." in shown(browser.post(purge, act))
    question = shown(browser.post(every, matching))
    assert "none that is enqueued later" in question
    assert "Type all to go on" in question
    yes = {**matching, **YES, "expected": 2, "capped": "yes"}
    assert "Nothing was changed" in shown(browser.post(every, {**yes, "typed": "2"}))
    browser.post(every, {**yes, "typed": "all"})

    made = BulkOperation.objects.get()
    assert (made.action, made.expected) == ("cancel", None)


def test_a_queue_that_nothing_names_is_not_found(browser: Client) -> None:
    answer = browser.post(url("act_on_queue", "nobody"), {"action": "pause"})

    assert answer.status_code == 404
    assert browser.get(url("queue", "nobody")).status_code == 404


def test_a_queue_that_nothing_names_is_offered_what_is_not_refused(
    browser: Client,
) -> None:
    make_job(queue="mial")

    page = shown(browser.get(url("queue", "mial")))
    row = shown(browser.get(url("queues")))

    assert "name it in RELAY" in page
    assert 'value="purge"' in page
    assert not {'value="pause"', 'value="fifo"', 'value="weigh"'} & {*page.split()}
    assert url("act_on_queue", "default") in row
    assert url("act_on_queue", "mial") not in row


@pytest.mark.parametrize("weight", ["0", "1001", "", "x", "9" * 20])
def test_a_queue_is_weighed(browser: Client, weight: str) -> None:
    where = url("act_on_queue", "default")

    wrong = browser.post(where, {"action": "weigh", "weight": weight})
    done = browser.post(where, {"action": "weigh", "weight": "6"})

    assert "from 1 to 1,000" in said(wrong)
    assert "weighs 6" in said(done)
    assert Queue.objects.get().weight == 6
    assert acted() == [("weigh_queue", "default", "dashboard")]


@pytest.mark.parametrize("action", ["pause", "resume", "fifo", "weigh", "purge"])
def test_a_queue_is_managed_by_who_may(
    browser_of: Callable[..., Client], action: str
) -> None:
    looks = browser_of("view_queue", "bulk_job", "delete_job")

    answer = looks.post(
        url("act_on_queue", "default"), {"action": action, **YES, "typed": "default"}
    )

    assert answer.status_code == 403
    assert 'name="action"' not in shown(looks.get(url("queues")))
    assert not Queue.objects.exists()


# --- workers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "state", "asked"),
    [("quiet", "running", "quiet"), ("resume", "quiet", "resume")],
)
def test_a_worker_is_asked(
    browser: Client, action: str, state: str, asked: str
) -> None:
    worker = make_worker(state=state)

    said(browser.post(url("act_on_worker", worker.pk), {"action": action}))

    assert Worker.objects.get().asked == asked
    assert acted() == [(f"{action}_worker", str(worker.pk), "dashboard")]


def test_a_shut_down_asks_first(browser: Client) -> None:
    worker = make_worker()
    where, act = url("act_on_worker", worker.pk), {"action": "stop"}

    assert "Shut down this worker?" in shown(browser.post(where, act))
    assert Worker.objects.get().asked is None
    said(browser.post(where, {**act, **YES}))

    assert Worker.objects.get().asked == "stop"


def test_a_worker_that_has_ended_is_not_asked(browser: Client) -> None:
    worker = make_worker(state="stopped")

    answer = browser.post(url("act_on_worker", worker.pk), {"action": "quiet"})

    assert "Nothing was done" in said(answer)
    assert 'value="quiet"' not in shown(browser.get(url("worker", worker.pk)))


def test_the_row_of_a_worker_that_has_ended_is_deleted(browser: Client) -> None:
    worker, alive = make_worker(state="lost"), make_worker()
    where = url("worker", worker.pk)
    act = {"action": "delete", "back": where}

    page = shown(browser.get(where))
    refused = browser.post(url("act_on_worker", alive.pk), act)
    gone = browser.post(url("act_on_worker", worker.pk), act)

    assert 'value="delete"' in page
    assert "it is running" in said(refused)
    assert gone["Location"] == url("workers")
    assert Worker.objects.get().pk == alive.pk


# --- schedules -----------------------------------------------------------------------


def test_a_schedule_runs_now(browser: Client) -> None:
    schedule = make_schedule(args={"args": [1, 2], "kwargs": {}})

    told = said(browser.post(url("act_on_schedule", schedule.name), {"action": "run"}))

    job = Job.objects.get()
    assert str(job.pk) in told
    assert job.schedule_id == schedule.pk


def test_a_schedule_is_paused_and_resumed(browser: Client) -> None:
    schedule = make_schedule()
    where = url("act_on_schedule", schedule.name)

    browser.post(where, {"action": "pause"})
    assert not Schedule.objects.get().enabled
    browser.post(where, {"action": "resume"})

    assert Schedule.objects.get().enabled


def test_deleting_a_schedule_wants_its_name_typed(browser: Client) -> None:
    schedule = make_schedule()
    where, act = url("act_on_schedule", schedule.name), {"action": "delete"}

    assert "Type nightly to go on" in shown(browser.post(where, act))
    assert Schedule.objects.exists()
    said(browser.post(where, {**act, **YES, "typed": "nightly"}))

    assert not Schedule.objects.exists()


def test_what_code_declares_is_not_deleted(browser: Client) -> None:
    schedule = make_schedule(source="code")
    act = {"action": "delete", **YES, "typed": "nightly"}

    told = said(browser.post(url("act_on_schedule", schedule.name), act))

    assert "declared in code" in told
    assert Schedule.objects.exists()
    page = shown(browser.get(url("schedule", schedule.name)))
    assert 'value="delete"' not in page


SCHEDULE = {
    "name": "hourly",
    "task": "testproject.tasks.add",
    "cron": "0 * * * *",
    "timezone": "Europe/Rome",
    "catch_up": "latest",
    "overlap": "skip",
    "args": "[1, 2]",
    "kwargs": "",
}


def test_a_schedule_is_added(browser: Client) -> None:
    shown(browser.get(url("new_schedule")))

    answer = browser.post(url("new_schedule"), SCHEDULE)

    assert answer["Location"] == url("schedule", "hourly")
    made = Schedule.objects.get()
    assert (made.cron, made.timezone, made.overlap) == (
        "0 * * * *",
        "Europe/Rome",
        "skip",
    )
    assert made.args == {"args": [1, 2], "kwargs": {}}
    assert acted() == [("create_schedule", "hourly", "dashboard")]


def test_a_schedule_has_all_that_rest_takes(browser: Client) -> None:
    times = {"starts_at": "2998-01-01T00:00Z", "ends_at": "2999-01-01T00:00Z"}
    spans = {"spread": "60", "success_within": "7200.5", "catch_up_window": "3600"}
    given_too = {**times, **spans, "excluded": "2998-12-25\r\n2998-12-26"}

    said(browser.post(url("new_schedule"), {**SCHEDULE, **given_too}))
    made = Schedule.objects.get()
    fields = given(browser.get(url("edit_schedule", "hourly")))
    fields["excluded"] = fields["excluded"].replace("\n", "\r\n")
    said(browser.post(url("edit_schedule", "hourly"), {**fields, "spread": "30"}))
    once = {**SCHEDULE, "name": "once", "cron": "", "once_at": "2999-01-01T00:00Z"}
    said(browser.post(url("new_schedule"), once))

    assert (made.spread_ms, made.success_within_ms) == (60_000, 7_200_500)
    assert (made.catch_up_window_ms, made.excluded) == (
        3_600_000,
        "2998-12-25\n2998-12-26",
    )
    assert (made.starts_at, made.ends_at) == (
        datetime(2998, 1, 1, tzinfo=UTC),
        datetime(2999, 1, 1, tzinfo=UTC),
    )
    changed = Audit.objects.get(operation="edit_schedule").detail
    assert changed == {"spread_ms": [60_000, 30_000]}
    assert Schedule.objects.get(name="once").once_at == made.ends_at


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("cron", "61 * * * *", "61"),
        ("cron", "", "in one way"),
        ("every", "60", "in one way"),
        ("timezone", "Mars/Base", "Mars/Base"),
        ("name", "", "required"),
        ("args", "{}", "Give a list"),
        ("priority", "1000", "1000"),
        ("starts_at", "9999-12-31 23:59-05:00", "Enter a valid date/time."),
        ("ends_at", "9999-12-31 23:59Z", "from 1970-01-01 to 9999-12-29"),
    ],
)
def test_what_cannot_be_kept_of_a_schedule_is_told_at_its_field(
    browser: Client, field: str, value: str, reason: str
) -> None:
    answer = browser.post(url("new_schedule"), {**SCHEDULE, field: value})

    page = shown(answer)
    assert 'class="wrong"' in page
    assert reason in page
    assert not Schedule.objects.exists()


def test_a_name_is_given_once(browser: Client) -> None:
    make_schedule(name="hourly")

    page = shown(browser.post(url("new_schedule"), SCHEDULE))

    assert "there is a schedule" in page
    assert Schedule.objects.count() == 1


def test_a_schedule_is_edited_and_only_what_was_changed(browser: Client) -> None:
    stored = {"args": [], "kwargs": {"token": "canary"}}
    schedule = make_schedule(args=stored, excluded="2026-12-25")
    form = browser.get(url("edit_schedule", schedule.name))
    fields = given(form)

    answer = browser.post(
        url("edit_schedule", schedule.name),
        {**fields, "name": "weekly", "cron": "0 3 * * 1", "every": ""},
    )

    assert "canary" not in shown(form)
    assert answer["Location"] == url("schedule", "weekly")
    schedule.refresh_from_db()
    assert (schedule.cron, schedule.args, schedule.excluded) == (
        "0 3 * * 1",
        stored,
        "2026-12-25",
    )
    assert sorted(Audit.objects.get().detail) == ["cron", "name"]


def test_what_code_declares_is_not_edited(browser: Client) -> None:
    schedule = make_schedule(source="code")
    fields = given(browser.get(url("edit_schedule", schedule.name)))

    page = shown(
        browser.post(
            url("edit_schedule", schedule.name), {**fields, "cron": "0 4 * * *"}
        )
    )

    assert "declared in code" in page
    assert "/edit/" not in shown(browser.get(url("schedule", schedule.name)))


@pytest.mark.parametrize("name", ["new_schedule", "edit_schedule"])
def test_a_schedules_form_is_for_who_manages_them(
    browser_of: Callable[..., Client], name: str
) -> None:
    where = [make_schedule().name] if name == "edit_schedule" else []

    answer = browser_of("view_schedule").get(url(name, *where))

    assert answer.status_code == 403


# --- marks ---------------------------------------------------------------------------


def test_a_mark_is_made_and_stands_on_the_charts(browser: Client) -> None:
    back = url("metrics", query="window=24h")
    values = {"label": "deploy <1.4>", "back": back}

    answer = browser.post(url("mark"), values)

    assert answer["Location"] == back
    assert "deploy <1.4>" in said(answer)
    for where in (back, url("queue", "default")):
        page = shown(browser.get(where))
        assert page.count('<g class="mark">') >= 2
        assert ">deploy &lt;1.4&gt;</text>" in page
        assert '<div class="small">deploy &lt;1.4&gt;</div>' in page
        assert "Marks: deploy &lt;1.4&gt; (" in page


def test_a_mark_that_is_none_is_refused(browser: Client) -> None:
    assert "1 to 100 characters" in said(browser.post(url("mark"), {"label": " "}))


def test_who_may_not_mark_has_no_form(browser_of: Callable[..., Client]) -> None:
    looks = browser_of("view_metrics")

    assert url("mark") not in shown(looks.get(url("metrics")))
    assert looks.post(url("mark"), {"label": "x"}).status_code == 403

"""Buttons of a page, and what asks before it is done."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import DELETION, LogEntry
from django.contrib.auth.models import User
from django.test import Client, override_settings

from relay.models import Audit, BulkOperation, Job, JobState, Queue, Worker
from tests.admin.test_jobs import (
    LIST,
    XSS,
    client_of,
    make_job,
    page_of,
    posted,
    press,
    press_all,
    said,
)
from tests.admin.test_others import (
    QUEUES,
    SCHEDULES,
    WORKERS,
    make_schedule,
    make_worker,
)


def buttons(text: str) -> set[str]:
    """Return the actions that a page offers as buttons."""
    start = 'name="action" value="'
    return {part.partition('"')[0] for part in text.split(start)[1:]}


def push(browser: Client, address: str, action: str, **values: str) -> Any:
    return browser.post(f"{address}act/", {"action": action, **values}, follow=True)


@pytest.mark.parametrize(
    ("state", "offered"),
    [
        ("scheduled", {"cancel", "run_now"}),
        ("queued", {"cancel"}),
        ("running", {"cancel"}),
        ("retrying", {"cancel", "run_now"}),
        ("completed", {"replay"}),
        ("failed", {"retry", "replay"}),
        ("cancelled", {"retry", "replay"}),
    ],
)
def test_a_job_s_page_offers_what_its_state_allows(
    browser: Client, state: str, offered: set[str]
) -> None:
    text = page_of(browser, make_job(state))

    assert buttons(text) == offered
    assert ("/edit/" in text) == (state in ("scheduled", "queued", "retrying"))
    assert ("/delete/" in text) == (state != "running")


def test_a_button_does_what_the_action_of_the_list_does(browser: Client) -> None:
    job, other = make_job("failed"), make_job("failed")

    response = push(
        browser,
        f"{LIST}{job.pk}/",
        "retry",
        select_across="1",
        _selected_action=str(other.pk),
        reason="fixed",
    )

    assert response.redirect_chain[-1][0] == f"{LIST}{job.pk}/change/"
    assert "1 job made ready again" in said(response)
    states = dict(Job.objects.values_list("pk", "state"))
    assert states == {job.pk: "queued", other.pk: "failed"}
    assert Audit.objects.get().reason == "fixed"


def test_queues_workers_and_schedules_have_their_actions_as_buttons(
    browser: Client,
) -> None:
    queue, worker = Queue.objects.create(name="mail"), make_worker()
    schedule = make_schedule()

    push(browser, f"{QUEUES}mail/", "pause")
    push(browser, f"{WORKERS}{worker.pk}/", "quiet")
    run = push(browser, f"{SCHEDULES}{schedule.pk}/", "run_now")
    shown = browser.get(f"{QUEUES}mail/change/").text

    queue.refresh_from_db()
    worker.refresh_from_db()
    assert queue.paused_at is not None
    assert worker.asked == "quiet"
    assert "1 enqueued." in said(run)
    assert Job.objects.get().schedule_id == schedule.pk
    assert {"resume", "order_fifo"} == buttons(shown)


@pytest.mark.parametrize("action", ["cancel", "retry", "replay", "run_now", "delete"])
def test_an_action_without_its_permission_is_refused(db: None, action: str) -> None:
    client = client_of("view_job", "enqueue_job")
    job = make_job("failed")

    text = client.get(LIST).text + page_of(client, job)
    listed = press(client, action, job)
    pushed = push(client, f"{LIST}{job.pk}/", action)

    assert f'value="{action}"' not in text
    assert (listed.status_code, pushed.status_code) == (403, 403)
    assert Job.objects.get().state == "failed"
    assert not Audit.objects.exists()


@pytest.mark.parametrize("action", ["cancel", "delete_model", "get_urls", "__init__"])
def test_nothing_but_a_button_s_action_can_be_pushed(
    browser: Client, action: str
) -> None:
    job = make_job()
    address = f"{LIST}{job.pk}/"

    assert browser.get(f"{address}act/").status_code == 405
    if action != "cancel":
        assert push(browser, address, action).status_code == 403
    with override_settings(RELAY={"READ_ONLY": True}):
        assert push(browser, address, action).status_code == 403
        assert not buttons(page_of(browser, job))
    job.refresh_from_db()
    assert job.state == "queued"


def test_a_push_needs_a_token_and_a_login(ada: User) -> None:
    client = Client(enforce_csrf_checks=True)
    job = make_job()

    stranger = client.post(f"{LIST}{job.pk}/act/", {"action": "cancel"})
    client.force_login(ada)
    forged = client.post(f"{LIST}{job.pk}/act/", {"action": "cancel"})

    assert (stranger.status_code, forged.status_code) == (403, 403)
    assert Client().post(f"{LIST}{job.pk}/act/").status_code == 302


# --- delete and purge ----------------------------------------------------------------


def test_jobs_are_deleted_once_somebody_has_said_yes(browser: Client) -> None:
    job, running = make_job("failed", task="app.ended"), make_job("running")

    asked = press(browser, "delete", job, running)
    untouched = Job.objects.count()
    answer = {"action": "delete", "confirmed": "yes", "reason": "tidy"}
    ids = [str(job.pk), str(running.pk)]
    done = browser.post(LIST, {**answer, "_selected_action": ids}, follow=True)

    assert "app.ended" in asked.text
    assert 'value="Delete 2 jobs"' in asked.text
    assert untouched == 2
    assert Job.objects.get() == running
    assert "1 job deleted. 1 job skipped: 1 is running." in said(done)
    row = Audit.objects.get()
    assert (row.operation, row.target, row.reason) == (
        "delete_jobs",
        str(job.pk),
        "tidy",
    )
    entry = LogEntry.objects.get()
    assert (entry.action_flag, entry.object_id) == (DELETION, str(job.pk))


def test_one_job_is_deleted_from_its_page(browser: Client) -> None:
    job = make_job("failed")
    address = f"{LIST}{job.pk}/delete/"

    asked = browser.get(address)
    response = browser.post(address, {"post": "yes"}, follow=True)

    assert asked.status_code == 200
    assert response.status_code == 200
    assert not Job.objects.exists()
    assert Audit.objects.get().operation == "delete_jobs"


def test_a_job_that_has_started_meanwhile_is_not_deleted(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job("running")
    monkeypatch.setattr(
        "relay.admin.job_acts.JobActs.has_delete_permission",
        lambda self, request, obj=None: True,
    )

    response = browser.post(f"{LIST}{job.pk}/delete/", {"post": "yes"}, follow=True)

    assert "Nothing was done: " in said(response)
    assert Job.objects.exists()
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(("typed", "is_done"), [("3", True), ("2", False)])
def test_to_delete_all_that_match_their_number_is_typed(
    browser: Client, monkeypatch: pytest.MonkeyPatch, typed: str, is_done: bool
) -> None:
    monkeypatch.setattr("relay.admin.job_acts.MOST_AT_ONCE", 2)
    for _ in range(3):
        make_job("failed")

    asked = press_all(browser, "delete", "?state=failed")
    answer = {**posted(asked), "typed": typed}
    response = press_all(browser, "delete", "?state=failed", **answer)

    assert "type <b>3</b>" in asked.text
    assert BulkOperation.objects.filter(action="delete").exists() == is_done
    assert ("Nothing was done" in said(response)) != is_done


def test_a_queue_is_purged_once_its_name_is_typed(browser: Client) -> None:
    Queue.objects.create(name="mail")
    make_job(queue="mail")
    address = f"{QUEUES}mail/purge/"

    asked = browser.get(address)
    wrong = browser.post(address, {"confirmed": "yes", "typed": "mial"}, follow=True)
    untouched = BulkOperation.objects.exists()
    right = {"confirmed": "yes", "typed": "mail", "reason": "test data"}
    fewer = browser.post(address, {**right, "expected": "0"}, follow=True)
    assert "1 jobs match and 0 were expected" in said(fewer)
    right["expected"] = "1"
    done = browser.post(address, right, follow=True)

    assert "Waiting now: 1." in asked.text
    assert 'name="expected" value="1"' in asked.text
    assert address in browser.get(f"{QUEUES}mail/change/").text
    assert "that is not" in said(wrong)
    assert not untouched
    made = BulkOperation.objects.get()
    assert (made.action, made.reason) == ("delete", "test data")
    assert made.expected == 1
    assert f"/admin/relay/bulkoperation/{made.pk}/change/" in said(done)


def test_a_purge_needs_its_permission(db: None) -> None:
    client = client_of("view_queue")
    Queue.objects.create(name="mail")
    address = f"{QUEUES}mail/purge/"
    answer = {"confirmed": "yes", "typed": "mail"}

    assert "purge" not in client.get(f"{QUEUES}mail/change/").text
    assert client.get(address).status_code == 403
    assert client.post(address, answer).status_code == 403
    assert not BulkOperation.objects.exists()


def test_a_question_shows_what_is_stored_as_text(browser: Client) -> None:
    queue, job = Queue.objects.create(name=XSS), make_job("failed", task=XSS)

    deleting = press(browser, "delete", job)
    purging = browser.get(f"{QUEUES}{_quoted(XSS)}/purge/", follow=True)
    purged = browser.post(
        f"{QUEUES}{_quoted(queue.name)}/purge/",
        {"confirmed": "yes", "typed": XSS},
        follow=True,
    )

    for response in (deleting, purging, purged):
        assert response.status_code == 200
        assert "<img src=x" not in response.text
    assert "cannot name a queue" in said(purged)


def _quoted(key: str) -> str:
    from urllib.parse import quote as of_url

    from django.contrib.admin.utils import quote

    return of_url(quote(key))


def test_all_states_have_a_page_that_opens(browser: Client) -> None:
    for state in JobState.values:
        assert browser.get(f"{LIST}{make_job(state).pk}/change/").status_code == 200


def test_a_queue_is_weighed_in_a_form(browser: Client) -> None:
    Queue.objects.create(name="mail")
    page = f"{QUEUES}mail/weigh/"

    shown = browser.get(page).text
    wrong = browser.post(page, {"weight": "1001"})
    done = browser.post(page, {"weight": "6", "reason": "slow"}, follow=True)

    assert 'value="1"' in shown
    assert "less than or equal to 1000" in wrong.text
    assert "The weight is 6" in said(done)
    assert Queue.objects.get().weight == 6
    assert Audit.objects.get().reason == "slow"
    assert f'href="{page}"' in done.text
    assert client_of("view_queue").post(page, {"weight": "2"}).status_code == 403


def test_workers_that_have_ended_are_deleted(browser: Client) -> None:
    lost, alive = make_worker(name="a", state="lost"), make_worker(name="b")

    assert buttons(browser.get(f"{WORKERS}{lost.pk}/change/").text) == {"forget"}
    assert "forget" not in buttons(browser.get(f"{WORKERS}{alive.pk}/change/").text)
    kept = push(browser, f"{WORKERS}{alive.pk}/", "forget")
    gone = push(browser, f"{WORKERS}{lost.pk}/", "forget")

    assert "it is running" in said(kept)
    assert "1 deleted." in said(gone)
    assert gone.redirect_chain[-1][0] == WORKERS
    assert list(Worker.objects.values_list("name", flat=True)) == ["b"]
    assert LogEntry.objects.get().action_flag == DELETION


def test_a_job_s_page_leads_to_the_dashboard_s_where_there_is_one(
    browser: Client, settings: Any
) -> None:
    job = make_job()

    linked = page_of(browser, job)
    settings.ROOT_URLCONF = "tests.admin.without_dashboard"
    alone = page_of(browser, job)

    assert f'href="/dashboard/jobs/{job.pk}/"' in linked
    assert "On the dashboard" not in alone

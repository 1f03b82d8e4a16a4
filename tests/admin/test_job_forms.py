"""Jobs are enqueued, edited and replayed by forms; an operation does it each time."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.admin.models import ADDITION, LogEntry
from django.test import Client, override_settings

from relay import Unique, task
from relay.models import Audit, Job
from tests.admin.test_jobs import (
    LIST,
    XSS,
    client_of,
    make_job,
    page_of,
    said,
)

ADD = f"{LIST}add/"
EMPTY = {f"{name}_{part}": "" for name in ("run_at", "deadline") for part in (0, 1)} | {
    "queue": "",
    "priority": "",
    "max_retries": "",
    "timeout": "",
    "tags": "",
}


@task(name="tests.admin.forms.greet")
def greet(name: str, *, loud: bool = False) -> None: ...


@task(name="tests.admin.forms.once", unique=Unique())
def once() -> None: ...


def enqueue(browser: Client, **values: str) -> Any:
    given = {**EMPTY, "task": greet.name, "args": '["ada"]', "kwargs": "", **values}
    return browser.post(ADD, given, follow=True)


def edit(browser: Client, job: Job, **values: str) -> Any:
    """Post the form of a job as a browser would, with these values changed."""
    address = f"{LIST}{job.pk}/edit/"
    form = browser.get(address).context["adminform"].form
    given: dict[str, Any] = {}
    for bound in form:
        value = bound.value()
        if bound.name in ("run_at", "deadline"):
            parts = ("", "") if value is None else (f"{value:%Y-%m-%d}", f"{value:%T}")
            given |= dict(
                zip((f"{bound.name}_0", f"{bound.name}_1"), parts, strict=True)
            )
        else:
            given[bound.name] = "" if value is None else str(bound.value())
    given["tags"] = "\n".join(form["tags"].value() or [])
    return browser.post(address, {**given, **values}, follow=True)


def errors_of(response: Any) -> dict[str, list[str]]:
    assert response.status_code == 200
    found = response.context["adminform"].form.errors
    return json.loads(found.as_json()) if found else {}


# --- enqueue -------------------------------------------------------------------------


def test_a_job_is_enqueued_with_all_that_the_form_takes(browser: Client) -> None:
    offered = browser.get(f"{ADD}?task={greet.name}&queue=mail")

    response = enqueue(
        browser,
        kwargs='{"loud": true}',
        queue="mail",
        priority="7",
        run_at_0="2999-01-02",
        run_at_1="03:04:05",
        max_retries="2",
        timeout="10:00",
        deadline_0="2999-02-03",
        deadline_1="00:00:00",
        tags="one\r\ntwo words\r\n",
        reason="by hand",
    )

    assert f'<option value="{greet.name}">' in offered.text
    assert offered.context["adminform"].form["queue"].value() == "mail"
    job = Job.objects.get()
    assert response.redirect_chain[-1][0] == f"{LIST}{job.pk}/change/"
    assert (job.task, job.queue, job.priority) == (greet.name, "mail", 7)
    assert job.args == {"args": ["ada"], "kwargs": {"loud": True}}
    assert job.run_at == datetime(2999, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert (job.max_retries, job.timeout_ms) == (2, 600_000)
    assert job.deadline_at == datetime(2999, 2, 3, tzinfo=UTC)
    assert job.tags == ["one", "two words"]
    row = Audit.objects.get()
    assert (row.operation, row.actor, row.reason) == ("enqueue_job", "ada", "by hand")
    entry = LogEntry.objects.get()
    assert (entry.action_flag, entry.object_id) == (ADDITION, str(job.pk))


def test_a_task_that_nobody_knows_here_is_enqueued_by_its_name(browser: Client) -> None:
    enqueue(browser, task="email:send", args="", kwargs='{"to": "a@b.example"}')

    job = Job.objects.get()
    assert (job.task, job.queue) == ("email:send", "default")
    assert job.args == {"args": [], "kwargs": {"to": "a@b.example"}}


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"task": ""}, "task"),
        ({"task": "two words"}, "__all__"),
        ({"args": "[1, 2, 3]"}, "__all__"),
        ({"args": "{}"}, "args"),
        ({"args": "[NaN]"}, "args"),
        ({"args": "["}, "args"),
        ({"args": f"{'[' * 5_000}{']' * 5_000}"}, "args"),
        ({"args": '["\\ud800"]'}, "args"),
        ({"kwargs": "[]"}, "kwargs"),
        ({"queue": "no queue"}, "queue"),
        ({"priority": "101"}, "priority"),
        ({"priority": "high"}, "priority"),
        ({"max_retries": "-1"}, "max_retries"),
        ({"timeout": "9" * 30}, "timeout"),
        ({"timeout": "-5"}, "timeout"),
        ({"run_at_0": "2026-13-01"}, "run_at"),
        ({"tags": "x" * 101}, "__all__"),
    ],
)
def test_what_cannot_be_enqueued_is_refused_with_the_reason(
    browser: Client, values: dict[str, str], field: str
) -> None:
    response = enqueue(browser, **values)

    assert field in errors_of(response)
    assert not Job.objects.exists()


def test_a_duplicate_is_told_and_leads_to_the_other(browser: Client) -> None:
    first = once.enqueue()

    response = enqueue(browser, task=once.name, args="")

    assert "holds the unique key" in said(response)
    assert str(first.id) in response.redirect_chain[-1][0]
    assert Job.objects.count() == 1


# --- edit ----------------------------------------------------------------------------


def test_an_edit_asks_for_what_has_changed_and_nothing_else(browser: Client) -> None:
    job = make_job(
        task=greet.name,
        args={"args": ["ada"], "kwargs": {"loud": True}},
        timeout_ms=90_000,
        tags=["a", "b"],
        priority=3,
    )

    response = edit(browser, job, priority="9", timeout="", reason="in a hurry")

    assert "The job was changed." in said(response)
    job.refresh_from_db()
    assert (job.priority, job.timeout_ms, job.tags) == (9, None, ["a", "b"])
    assert job.args == {"args": ["ada"], "kwargs": {"loud": True}}
    row = Audit.objects.get()
    assert (row.operation, row.reason) == ("edit_job", "in a hurry")
    assert row.detail == {"priority": [3, 9], "timeout_ms": [90_000, None]}
    assert "priority, timeout" in LogEntry.objects.get().change_message


def test_arguments_are_edited_and_a_due_time(browser: Client) -> None:
    job = make_job(task=greet.name, args={"args": ["ada"], "kwargs": {"loud": True}})

    edit(browser, job, args='["bob"]', run_at_0="2999-01-02", run_at_1="03:04:05")

    job.refresh_from_db()
    assert job.args == {"args": ["bob"], "kwargs": {"loud": True}}
    assert (job.state, job.run_at.year) == ("scheduled", 2999)


def test_an_unchanged_form_changes_nothing(browser: Client) -> None:
    job = make_job(task=greet.name, args={"args": ["ada"], "kwargs": {}}, tags=["a"])
    before = Job.objects.values().get()

    response = edit(browser, job)

    assert "Nothing was changed." in said(response)
    assert Job.objects.values().get() == before
    assert not Audit.objects.exists()


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"queue": "nobody-knows"}, "__all__"),
        ({"priority": "200"}, "priority"),
        ({"args": "[1, 2, 3]"}, "__all__"),
    ],
)
def test_what_cannot_be_edited_is_refused_with_the_reason(
    browser: Client, values: dict[str, str], field: str
) -> None:
    job = make_job(task=greet.name, args={"args": ["ada"], "kwargs": {}})

    response = edit(browser, job, **values)

    assert field in errors_of(response)


def test_a_job_that_has_started_meanwhile_says_so(browser: Client) -> None:
    job = make_job(task=greet.name, state="failed")

    response = edit(browser, job, priority="9")

    assert "it is failed" in str(errors_of(response))


@pytest.mark.parametrize(
    "args",
    [
        {"args": [], "kwargs": {"password": "canary"}},
        {
            "args": [{"__relay__": "sealed", "key": "k", "value": "canary"}],
            "kwargs": {},
        },
        {"args": [{"__relay__": "datetime", "value": "canary"}], "kwargs": {}},
        {"args": ["canary" * 5_000], "kwargs": {}},
    ],
)
def test_what_is_not_shown_stands_in_no_form_and_stays(
    browser: Client, args: dict[str, Any]
) -> None:
    job = make_job(args=args)

    text = browser.get(f"{LIST}{job.pk}/edit/").text
    edit(browser, job, priority="9")

    assert "canary" not in text
    assert "left empty, it stays as it is" in text
    job.refresh_from_db()
    assert (job.priority, job.args) == (9, args)


def test_who_may_not_see_payloads_edits_without(db: None) -> None:
    client = client_of("view_job", "edit_job")
    job = make_job(args={"args": ["canary"], "kwargs": {}})

    text = client.get(f"{LIST}{job.pk}/edit/").text
    edit(client, job, args='["new"]')

    assert "canary" not in text
    job.refresh_from_db()
    assert job.args == {"args": ["new"], "kwargs": {}}


# --- replay --------------------------------------------------------------------------


def test_a_job_is_replayed_with_other_arguments(browser: Client) -> None:
    job = make_job("failed", task=greet.name, args={"args": ["ada"], "kwargs": {}})
    address = f"{LIST}{job.pk}/replay/"

    form = browser.get(address).context["adminform"].form
    response = browser.post(
        address, {"args": '["bob"]', "kwargs": "", "reason": "wrong name"}, follow=True
    )

    assert form["args"].value() == '["ada"]'
    made = Job.objects.get(replay_of=job.pk)
    assert made.args == {"args": ["bob"], "kwargs": {}}
    assert response.redirect_chain[-1][0] == f"{LIST}{made.pk}/change/"
    row = Audit.objects.get()
    assert (row.operation, row.reason) == ("replay_job", "wrong name")
    again = browser.post(address, {"args": "[1, 2]", "kwargs": ""})
    assert "__all__" in errors_of(again)


# --- who and what --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("permissions", "allowed"),
    [
        ((), set()),
        (("enqueue_job",), {"add"}),
        (("edit_job",), {"edit"}),
        (("edit_job", "retry_job"), {"edit", "replay"}),
    ],
)
def test_each_page_needs_the_permission_of_its_act(
    db: None, permissions: tuple[str, ...], allowed: set[str]
) -> None:
    client = client_of("view_job", *permissions)
    waiting, ended = make_job(), make_job("failed")
    pages = {
        "add": ADD,
        "edit": f"{LIST}{waiting.pk}/edit/",
        "replay": f"{LIST}{ended.pk}/replay/",
    }

    offered = {
        name
        for name, address in pages.items()
        if address in client.get(LIST).text + page_of(client, waiting)
        or address in page_of(client, ended)
    }

    assert offered == allowed
    for name, address in pages.items():
        status = 200 if name in allowed else 403
        assert client.get(address).status_code == status, name
        assert client.post(address, {"args": "["}).status_code == status, name
    with override_settings(RELAY={"READ_ONLY": True}):
        for address in pages.values():
            assert client.post(address, {"args": "[]"}).status_code == 403


@pytest.mark.parametrize("page", ["edit", "replay", "act", "delete"])
@pytest.mark.parametrize("key", ["x", "%00", "_00"])
def test_a_page_of_no_job_leads_back(browser: Client, page: str, key: str) -> None:
    values = {"action": "cancel"}

    response = browser.post(f"{LIST}{key}/{page}/", values, follow=True)

    assert response.status_code == 200
    assert "exist. Perhaps it was deleted?" in said(response)


def test_a_form_holds_what_was_typed_as_text(browser: Client) -> None:
    response = enqueue(browser, args=f'["{XSS}"', queue=XSS, tags=XSS)

    assert "<img src=x" not in response.text
    job = make_job(queue=XSS, task=XSS, tags=[XSS], args={"args": [XSS], "kwargs": {}})
    assert "<img src=x" not in browser.get(f"{LIST}{job.pk}/edit/").text


@pytest.mark.parametrize("page", [ADD, "edit", "replay"])
def test_a_form_without_a_token_is_refused(ada: Any, page: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    job = make_job("failed" if page == "replay" else "queued")
    address = page if page == ADD else f"{LIST}{job.pk}/{page}/"

    assert client.post(address, {"args": "[]"}).status_code == 403


@pytest.mark.parametrize("name", ["run_at", "deadline"])
@pytest.mark.parametrize(
    ("zone", "day", "time"),
    [
        ("America/New_York", "9999-12-31", "23:59:59"),
        ("Asia/Tokyo", "0001-01-01", "00:00:00"),
    ],
)
def test_a_time_that_is_none_in_utc_is_refused_at_its_field(
    browser: Client, settings: Any, zone: str, day: str, time: str, name: str
) -> None:
    settings.TIME_ZONE = zone
    job, given = make_job("scheduled"), {f"{name}_0": day, f"{name}_1": time}

    answers = [enqueue(browser, **given), edit(browser, job, **given)]

    for answer in answers:
        form = answer.context["adminform"].form
        assert form.errors == {name: ["Enter a valid date."]}
    assert [each.pk for each in Job.objects.all()] == [job.pk]

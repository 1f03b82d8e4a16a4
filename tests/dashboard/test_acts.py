"""Acts from the dashboard: asked first where it matters, done once, on record."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from relay.conf import OWN_QUEUE
from relay.ids import uuid7
from relay.models import Audit, BulkOperation, Job
from relay.operations import bulk
from tests.dashboard.pages import given, job_of, said, shown, url
from tests.dashboard.test_pages import HOSTILE
from tests.operations.factory import make_job

YES = {"answer": "yes"}


def acted() -> list[tuple[str, str, str]]:
    """Return what is on record: the operation, the target and the surface."""
    rows = Audit.objects.order_by("id")
    return list(rows.values_list("operation", "target", "source"))


# --- one job -------------------------------------------------------------------------


def test_a_cancel_asks_first(browser: Client) -> None:
    job = make_job("queued")
    act = {"action": "cancel"}

    question = shown(browser.post(url("act_on_job", job.pk), act))
    assert "Cancel 1 job?" in question
    assert '<input type="hidden" name="action" value="cancel">' in question
    assert 'name="typed"' not in question
    assert Job.objects.get(pk=job.pk).state == "queued"

    answer = browser.post(
        url("act_on_job", job.pk), {**act, **YES, "reason": "wrong list"}
    )

    assert str(job.pk) in said(answer)
    assert answer["Location"] == url("job", job.pk)
    assert Job.objects.get(pk=job.pk).state == "cancelled"
    assert acted() == [("cancel_jobs", str(job.pk), "dashboard")]
    assert Audit.objects.get().reason == "wrong list"


@pytest.mark.parametrize(
    ("action", "state", "after"),
    [("retry", "failed", "queued"), ("run_now", "scheduled", "queued")],
)
def test_what_can_be_undone_does_not_ask(
    browser: Client, action: str, state: str, after: str
) -> None:
    job = make_job(state)

    answer = browser.post(url("act_on_job", job.pk), {"action": action})

    assert "1 job is ready" in said(answer)
    assert Job.objects.get(pk=job.pk).state == after


def test_a_replay_leads_to_the_new_job(browser: Client) -> None:
    job = make_job("failed")

    answer = browser.post(url("act_on_job", job.pk), {"action": "replay"})

    assert Job.objects.get(pk=job_of(answer)).replay_of == job.pk


def test_a_delete_wants_the_number_typed(browser: Client) -> None:
    job = make_job("failed")
    act = {"action": "delete"}

    assert "Type 1 to go on" in shown(browser.post(url("act_on_job", job.pk), act))
    for typed in ("", "2", "one"):
        wrong = browser.post(url("act_on_job", job.pk), {**act, **YES, "typed": typed})
        assert "Nothing was changed." in shown(wrong)
        assert Job.objects.filter(pk=job.pk).exists()
    answer = browser.post(url("act_on_job", job.pk), {**act, **YES, "typed": " 1 "})

    assert "1 job was deleted" in said(answer)
    assert not Job.objects.filter(pk=job.pk).exists()


def test_what_its_state_does_not_allow_is_told(browser: Client) -> None:
    job = make_job("completed")

    answer = browser.post(url("act_on_job", job.pk), {"action": "retry"})

    assert "1 left as they were" in said(answer)
    assert not Audit.objects.exists()


@pytest.mark.parametrize("action", ["", "explode", "delete_job"])
def test_an_act_that_there_is_not_is_not_found(browser: Client, action: str) -> None:
    job = make_job("failed")

    answer = browser.post(url("act_on_job", job.pk), {"action": action})

    assert answer.status_code == 404


@pytest.mark.parametrize(
    "back", ["https://evil.example/", "//evil.example/", "/admin/", "javascript:x"]
)
def test_the_way_back_stays_in_the_dashboard(browser: Client, back: str) -> None:
    job = make_job("failed")

    answer = browser.post(
        url("act_on_jobs"), {"action": "retry", "job": job.pk, "back": back}
    )

    assert answer["Location"] == url("jobs")


# --- several -------------------------------------------------------------------------


def test_what_is_ticked_asks_once_and_comes_back_to_the_same_list(
    browser: Client,
) -> None:
    jobs = [make_job("failed") for _ in range(3)]
    make_job("failed")
    back = url("jobs", query="state=failed&queue=default")
    act = {"action": "retry", "job": [job.pk for job in jobs], "back": back}

    question = shown(browser.post(url("act_on_jobs"), act))
    answer = browser.post(url("act_on_jobs"), {**act, **YES})

    assert "Retry 3 jobs?" in question
    assert all(f'name="job" value="{job.pk}"' in question for job in jobs)
    assert answer["Location"] == back
    assert "3 jobs are ready again" in said(answer)
    [where] = re.findall(r'<a href="([^"]+)">Show these jobs</a>', said(answer))
    assert len(where) < 250
    found = shown(browser.get(html.unescape(where)))
    assert set(re.findall(r'id="job-([^"]+)"', found)) == {str(job.pk) for job in jobs}
    assert Job.objects.filter(state="queued").count() == 3


def test_nothing_ticked_is_told(browser: Client) -> None:
    assert "No job was ticked" in said(
        browser.post(url("act_on_jobs"), {"action": "retry"})
    )


def test_what_is_no_id_is_not_found(browser: Client) -> None:
    answer = browser.post(url("act_on_jobs"), {"action": "retry", "job": HOSTILE})

    assert answer.status_code == 404


def test_more_than_100_ticked_are_refused(browser: Client) -> None:
    act = {"action": "retry", "job": [uuid7() for _ in range(101)]}

    assert "101 jobs are too many" in said(browser.post(url("act_on_jobs"), act))


def test_all_that_match_are_counted_asked_about_and_left_to_a_worker(
    browser: Client,
) -> None:
    for number in range(120):
        make_job("failed", error_class="ValueError" if number else "KeyError")
    act = {"action": "retry", "filter": "error:ValueError"}

    question = shown(browser.post(url("act_on_all"), act))
    assert "Retry 119 jobs?" in question
    assert "Type 119 to go on" in question
    assert not BulkOperation.objects.exists()
    answer = browser.post(
        url("act_on_all"), {**act, **YES, "expected": "119", "typed": "119"}
    )
    made = BulkOperation.objects.get()
    assert answer["Location"] == url("bulk_one", made.pk)
    assert (made.expected, made.actor, made.source) == (119, "ada", "dashboard")
    assert "No worker runs." in shown(browser.get(url("bulk_one", made.pk)))
    of_job = shown(browser.get(url("job", made.job_id)))
    assert OWN_QUEUE in of_job
    assert f"queues/{OWN_QUEUE}" not in of_job
    bulk.run_bulk(str(made.pk))

    page = shown(browser.get(url("bulk_one", made.pk)))
    assert "<dd>119</dd>" in page
    assert Job.objects.filter(state="queued", error_class="ValueError").count() == 119


def test_all_of_a_group_of_failures_are_those_that_the_page_counts(
    browser: Client,
) -> None:
    line = 'no <b>"a"</b> & \\n, \'b\'\tin "c'
    for message in (line, f"also {line}", f"{line}\r\nmore"):
        make_job("failed", error_message=message, error_class="odd\nclass")
    page = browser.get(url("failures")).content.decode()
    forms = re.findall(r'name="filter" value="([^"]*)"', page)
    [text] = [html.unescape(form) for form in forms if "also" not in form]
    # As a browser sends it.
    act = {"action": "retry", "filter": text.replace("\n", "\r\n")}

    question = shown(browser.post(url("act_on_all"), act))
    browser.post(url("act_on_all"), {**act, **YES, "expected": "2"})
    bulk.run_bulk(str(BulkOperation.objects.get().pk))

    assert "Retry 2 jobs?" in question
    left = Job.objects.get(state="failed")
    assert left.error_message == f"also {line}"


def test_more_than_the_question_said_is_a_conflict(browser: Client) -> None:
    for _ in range(12):
        make_job("failed", queue="mail")
    act = {"action": "retry", "filter": "queue:mail", **YES, "expected": "10"}

    assert "12 jobs match and 10 were expected" in said(
        browser.post(url("act_on_all"), act)
    )
    assert not BulkOperation.objects.exists()


@pytest.mark.parametrize("text", ["", "colour:red", "state:running"])
def test_a_filter_that_cannot_be_acted_on_is_told(browser: Client, text: str) -> None:
    act = {"action": "delete", "filter": text}

    assert "Nothing was done" in said(browser.post(url("act_on_all"), act))


def test_a_filter_that_nothing_matches_is_told(browser: Client) -> None:
    act = {"action": "retry", "filter": "queue:nothing"}

    assert "No job matches" in said(browser.post(url("act_on_all"), act))


def test_all_needs_the_permission_for_bulk_and_for_the_act(
    browser_of: Callable[..., Client],
) -> None:
    make_job("failed")
    act = {"action": "retry", "filter": "state:failed"}

    for names in (("view_job", "bulk_job"), ("view_job", "retry_job")):
        assert browser_of(*names).post(url("act_on_all"), act).status_code == 403


def test_a_bulk_operation_is_ended(browser: Client) -> None:
    made = BulkOperation.objects.create(
        action="retry", filter="state:failed", actor="ada", source="api"
    )

    answer = browser.post(url("act_on_bulk", made.pk), {"action": "cancel"})
    again = browser.post(url("act_on_bulk", made.pk), {"action": "cancel"})

    assert "no further" in said(answer)
    assert "Nothing was done" in said(again)
    assert BulkOperation.objects.get().state == "cancelled"


# --- forms ---------------------------------------------------------------------------


def test_a_job_is_enqueued_by_a_form(browser: Client) -> None:
    form = shown(browser.get(url("enqueue", query="task=testproject.tasks.add")))
    assert "testproject.tasks.add(a, b)" in form

    answer = browser.post(
        url("enqueue"),
        {
            "task": "testproject.tasks.add",
            "args": "[1]",
            "kwargs": '{"b": 2}',
            "priority": "7",
            "tags": "one two",
        },
    )

    job = Job.objects.get(pk=job_of(answer))
    assert job.args == {"args": [1], "kwargs": {"b": 2}}
    assert (job.priority, job.tags) == (7, ["one", "two"])
    assert acted() == [("enqueue_job", str(job.pk), "dashboard")]


def test_the_form_takes_all_that_may_be_said_of_a_job(browser: Client) -> None:
    options = {
        **{"max_retries": "2", "timeout": "1.5", "deadline": "2999-01-01T00:00Z"},
        **{"unique_for": "60", "unique_key": "one", "meta": '{"order": 7}'},
    }
    call = {"task": "testproject.tasks.add", "args": "[1, 2]", **options}

    job = Job.objects.get(pk=job_of(browser.post(url("enqueue"), call)))
    again = browser.post(url("enqueue"), {**call, "args": "[3, 4]"})
    wrong = browser.post(url("enqueue"), {**call, "max_retries": "-1"})

    assert (job.max_retries, job.timeout_ms) == (2, 1_500)
    assert job.deadline_at == datetime(2999, 1, 1, tzinfo=UTC)
    assert job.meta["order"] == 7
    assert "holds the same unique key" in said(again)
    assert job_of(again) == job.pk
    assert "max_retries=-1" in shown(wrong)


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ("[1, 2, 3]", "too many positional arguments"),
        ("{}", "Give a list"),
        ("[", "valid JSON"),
        ("[" * 100_000, "too deep"),
        ('[{"__relay__": "nothing"}]', "nothing"),
        ('["\\u0000", 1]', "NUL"),
    ],
)
def test_arguments_that_cannot_be_taken_are_told_and_shown_again(
    browser: Client, args: str, reason: str
) -> None:
    answer = browser.post(
        url("enqueue"), {"task": "testproject.tasks.add", "args": args}
    )

    assert reason in shown(answer)
    assert not Job.objects.exists()


def test_a_waiting_job_is_edited_and_only_what_was_changed(browser: Client) -> None:
    job = make_job(
        "scheduled",
        task="testproject.tasks.add",
        args={"args": [1, 2], "kwargs": {}},
        run_at=timezone.now() + timedelta(days=1),
    )
    form = browser.get(url("edit_job", job.pk))
    fields = given(form)

    same = browser.post(url("edit_job", job.pk), fields)
    assert "Nothing was changed" in said(same)
    assert acted() == []
    answer = browser.post(
        url("edit_job", job.pk), {**fields, "priority": "3", "args": "[3, 4]"}
    )

    assert "Changed" in said(answer)
    job.refresh_from_db()
    assert (job.priority, job.args["args"]) == (3, [3, 4])
    assert Audit.objects.get().detail == {"priority": [0, 3], "args": [None, None]}


def test_a_job_that_runs_is_not_edited(browser: Client) -> None:
    job = make_job("queued", task="testproject.tasks.echo")
    fields = given(browser.get(url("edit_job", job.pk)))
    Job.objects.update(state="running", worker_id=uuid7())

    answer = browser.post(url("edit_job", job.pk), {**fields, "priority": "3"})

    assert "it is running" in shown(answer)


def test_a_replay_has_other_arguments(browser: Client) -> None:
    job = make_job(
        "failed", task="testproject.tasks.echo", args={"args": ["a"], "kwargs": {}}
    )

    answer = browser.post(url("replay_job", job.pk), {"args": '["b"]', "kwargs": "{}"})

    made = Job.objects.get(pk=job_of(answer))
    assert (made.replay_of, made.args["args"]) == (job.pk, ["b"])
    assert Audit.objects.get().detail["with_changes"] is True


def test_a_mask_is_never_taken_for_a_value(browser: Client) -> None:
    stored = {"args": [], "kwargs": {"value": {"token": "canary"}}}
    job = make_job("failed", task="testproject.tasks.echo", args=stored)

    form = browser.get(url("replay_job", job.pk))
    answer = browser.post(url("replay_job", job.pk), given(form))

    assert "Some arguments are not shown" in shown(form)
    assert Job.objects.get(pk=job_of(answer)).args == stored


def test_a_value_with_a_type_keeps_it(browser: Client) -> None:
    when = {"__relay__": "datetime", "value": "2026-01-01T00:00:00+00:00"}
    job = make_job(
        "failed",
        task="testproject.tasks.echo",
        args={"args": [[when, 1]], "kwargs": {}},
    )

    answer = browser.post(
        url("replay_job", job.pk), {"args": json.dumps([[when, 2]]), "kwargs": ""}
    )

    assert Job.objects.get(pk=job_of(answer)).args["args"] == [[when, 2]]


# --- hostile requests ----------------------------------------------------------------


def test_what_is_asked_about_is_text(browser: Client) -> None:
    job = make_job("failed")
    act = {"action": "delete", "job": job.pk, HOSTILE: HOSTILE, "reason": HOSTILE}

    page = shown(browser.post(url("act_on_jobs"), act))

    assert "<img src=x" not in page


def test_a_reason_of_many_lines_is_one_line_on_record(browser: Client) -> None:
    job = make_job("queued")
    act = {"action": "cancel", **YES, "reason": "a\nb\x1b[31m" + "x" * 1_000}

    said(browser.post(url("act_on_job", job.pk), act))

    reason = Audit.objects.get().reason
    assert reason is not None
    assert reason.startswith("a\\nb\\x1b")
    assert len(reason) == 500

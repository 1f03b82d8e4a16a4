"""Jobs in the admin: lists, pages, actions, hostile rows and hostile requests."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.db.models import Func, TextField
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_settings

from relay.admin import JobAdminMixin, job_acts, lists
from relay.admin.lists import RelayAdmin
from relay.ids import uuid7
from relay.models import (
    Attempt,
    Audit,
    BulkOperation,
    History,
    Job,
    JobState,
    Output,
    Queue,
    Step,
)
from relay.operations import Actor, job_filter
from relay.queries import list_failures, reading

LIST = "/admin/relay/job/"
XSS = "<img src=x onerror=alert(1)></script>"
SLEEP = Func(template="pg_sleep(1)::text", output_field=TextField())
ESCAPED = "&lt;img src=x onerror=alert(1)&gt;"


def make_job(state: str = "queued", **values: Any) -> Job:
    if state == "running":
        values.setdefault("worker_id", uuid7())
    if state in ("completed", "failed", "cancelled"):
        values.setdefault("finished_at", datetime(2026, 1, 1, tzinfo=UTC))
    values.setdefault("task", "tests.noop")
    return Job.objects.create(state=state, **values)


def listed(browser: Client, query: str = "") -> set[Any]:
    response = browser.get(LIST + query)
    assert response.status_code == 200
    return {job.pk for job in response.context["cl"].result_list}


def press(browser: Client, action: str, *jobs: Job, query: str = "") -> Any:
    return browser.post(
        LIST + query,
        {"action": action, "_selected_action": [str(job.pk) for job in jobs]},
        follow=True,
    )


def said(response: Any) -> str:
    return " ".join(str(message) for message in response.context["messages"])


@pytest.mark.parametrize("state", JobState.values)
def test_the_list_filters_by_state(browser: Client, state: str) -> None:
    jobs = {state: make_job(state) for state in JobState.values}

    assert listed(browser, f"?state={state}") == {jobs[state].pk}
    assert len(listed(browser)) == len(JobState.values)


def test_the_list_filters_by_queue_and_offers_those_of_rows_and_settings(
    browser: Client,
) -> None:
    Queue.objects.create(name="mail")
    mail, _ = make_job(queue="mail"), make_job()

    assert listed(browser, "?queue=mail") == {mail.pk}
    assert listed(browser, "?queue=mail&state=queued") == {mail.pk}
    assert listed(browser, "?queue=mail&state=failed") == set()
    page = browser.get(LIST).content.decode()
    assert "?queue=mail" in page
    assert "?queue=default" in page


def test_the_list_filters_by_the_most_frequent_classes_of_errors(
    browser: Client,
) -> None:
    often = [make_job("failed", error_class="KeyError") for _ in range(3)]
    for number in range(20):
        make_job("failed", error_class=f"Error{number:02}")
    make_job("retrying", error_class="Other")

    page = browser.get(LIST).content.decode()
    offered = re.findall(r'href="\?error=(\w+)"', page)

    assert offered == ["KeyError", *(f"Error{number:02}" for number in range(19))]
    assert listed(browser, "?error=KeyError") == {job.pk for job in often}
    assert listed(browser, "?error=KeyError&state=retrying") == set()
    assert listed(browser, "?error=Error19") != set()


def test_the_list_leads_to_workers(browser: Client) -> None:
    worker = uuid7()
    make_job("running", worker_id=worker)

    assert f"/admin/relay/worker/{worker}/" in browser.get(LIST).content.decode()


def test_search_finds_an_id_or_the_beginning_of_a_tasks_name(browser: Client) -> None:
    mail, other = make_job(task="mail.send"), make_job(task="other_mail.send")

    assert listed(browser, f"?q={other.pk}") == {other.pk}
    assert listed(browser, f"?q={other.pk}&state=queued") == {other.pk}
    assert listed(browser, "?q=mail.") == {mail.pk}
    assert listed(browser, "?q=m%25") == set()
    assert listed(browser, "?q=mail&state=queued") == {mail.pk}


def test_search_finds_a_group_of_failures(browser: Client) -> None:
    one = make_job("failed", error_message='no "a", sorry\nmore')
    make_job("failed", error_message='also no "a", sorry')

    group = list_failures(Actor(name="ada", source="cli"), task=one.task)["results"]
    terms = [each["filter"] for each in group if each["sample"] == str(one.pk)]

    assert listed(browser, f"?q={quote(terms[0])}") == {one.pk}


def test_search_finds_a_tag(browser: Client) -> None:
    one = Job.objects.create(task="app.one", tags=["import-7", "eu"])
    Job.objects.create(task="app.two", tags=["import-70"])
    Job.objects.create(task="app.three")

    assert listed(browser, "?q=tag:import-7") == {one.pk}
    assert listed(browser, "?q=tag:eu&state=queued") == {one.pk}
    assert listed(browser, "?q=tag:eu&state=failed") == set()
    assert b"import-7" in browser.get(f"{LIST}{one.pk}/change/").content


def test_what_no_index_serves_is_searched_among_the_newest(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ids made in one millisecond are in no order.
    ids = sorted(uuid7() for _ in range(5))
    old, *newer = [make_job("completed", queue="mail", id=id) for id in ids[:4]]
    waiting = make_job("queued", queue="mail", id=ids[4])
    monkeypatch.setattr(job_filter, "NEWEST", 3)

    found = listed(browser, "?queue=mail")

    assert found == {waiting.pk, *(job.pk for job in newer)}
    assert listed(browser, "?state=completed") == {old.pk, *(job.pk for job in newer)}
    assert old.pk not in listed(browser, "?q=tests")


def test_queued_jobs_are_listed_in_the_order_in_which_they_run(
    browser: Client,
) -> None:
    low = make_job(priority=-1)
    first, second = make_job(), make_job()
    high = make_job(priority=1)

    response = browser.get(LIST + "?state=queued")

    assert [job.pk for job in response.context["cl"].result_list] == [
        job.pk for job in (high, first, second, low)
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "query", ["", "?state=failed", "?state=completed&queue=default", "?q=tests"]
)
def test_a_list_takes_at_most_six_queries_whatever_it_shows(
    browser: Client, query: str
) -> None:
    for state in ("failed", "completed", "queued"):
        for _ in range(20):
            make_job(state)
    browser.get(LIST + query)

    with CaptureQueriesContext(connection) as queries:
        browser.get(LIST + query)

    statements = [
        one["sql"] for one in queries if one["sql"] not in ("BEGIN", "ROLLBACK")
    ]
    assert len(statements) <= 6, statements
    for column in ("args", "result", "error_message", "meta"):
        assert not any(f'"relay_job"."{column}"' in sql for sql in statements)


def test_a_count_ends_at_the_cap(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "COUNT_CAP", 100)
    Job.objects.bulk_create([Job(task="tests.noop") for _ in range(120)])
    estimate(-1)

    first = browser.get(LIST)
    last = browser.get(LIST + "?p=2")
    beyond = browser.get(LIST + "?p=3")

    assert "100+ jobs" in first.content.decode()
    assert last.status_code == 200
    assert beyond.status_code == 302
    assert beyond["Location"].endswith("?e=1")


def estimate(rows: int) -> None:
    """Have PostgreSQL estimate so many jobs, until the test ends."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pg_class SET reltuples = %s WHERE oid = 'relay_job'::regclass",
            [rows],
        )


def test_a_list_without_a_filter_tells_about_how_many_there_are(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "COUNT_CAP", 100)
    Job.objects.bulk_create([Job(task="tests.noop") for _ in range(120)])
    estimate(2_008_200)

    assert "about 2,008,200 jobs" in browser.get(LIST).content.decode()
    assert "100+ jobs" in browser.get(LIST + "?state=queued").content.decode()
    estimate(7)
    assert "100+ jobs" in browser.get(LIST).content.decode()


def test_failure_136_the_same_count_with_grouped_digits(
    browser: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.USE_THOUSAND_SEPARATOR = True
    monkeypatch.setattr(lists, "COUNT_CAP", 1_000)
    Job.objects.bulk_create([Job(task="tests.noop") for _ in range(1_001)])

    assert "1,000 jobs" in browser.get(LIST).content.decode()


@pytest.mark.parametrize(
    "query",
    [
        "?error_message__icontains=x",
        "?task__contains=x",
        "?args__has_key=x",
        "?state__exact=failed",
        "?nonsense=1",
    ],
)
def test_failure_136_an_unknown_filter_is_refused(browser: Client, query: str) -> None:
    assert browser.get(LIST + query).status_code == 400


@pytest.mark.parametrize(
    "query",
    [
        "?state=bogus",
        "?state=",
        "?queue=%00",
        "?p=1000000",
        "?p=-1",
        "?o=3.-1",
        "?all=",
    ],
)
def test_failure_136_a_bad_value_never_breaks_the_list(
    browser: Client, query: str
) -> None:
    make_job()

    response = browser.get(LIST + query, follow=True)

    assert response.status_code == 200


def test_a_search_with_a_nul_finds_nothing_and_says_so(browser: Client) -> None:
    response = browser.get(LIST + "?q=a%00b")

    assert response.status_code == 200
    assert "Null characters" in said(response)


@pytest.mark.parametrize("key", ["x", "%00", "a%00b", str(uuid7()), "_00"])
def test_failure_136_a_bad_or_unknown_id_leads_back(browser: Client, key: str) -> None:
    response = browser.get(f"{LIST}{key}/change/", follow=True)

    assert response.status_code == 200
    assert "exist. Perhaps it was deleted?" in said(response)


def test_a_list_that_takes_too_long_says_so(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(
        JobAdminMixin,
        "get_ordering",
        lambda self, request: [SLEEP] if "state" in request.GET else ["-id"],
    )
    make_job()

    response = browser.get(LIST + "?state=queued", follow=True)

    assert response.status_code == 200
    assert "did not answer within" in said(response)
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == ("0",)
        cursor.execute("SHOW enable_seqscan")
        assert cursor.fetchone() == ("on",)


def test_a_list_leaves_the_connections_settings_as_they_were(browser: Client) -> None:
    make_job()

    browser.get(LIST)

    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('statement_timeout')")
        assert cursor.fetchone() == ("0",)


# --- a job's page --------------------------------------------------------------------


def page_of(browser: Client, job: Job) -> str:
    response = browser.get(f"{LIST}{job.pk}/change/")
    assert response.status_code == 200
    return response.content.decode()


def test_a_page_shows_arguments_attempts_and_history_and_no_form(
    browser: Client,
) -> None:
    original = make_job("failed")
    job = make_job(
        "failed",
        args={"args": [1], "kwargs": {"name": "value-7"}},
        error_class="ValueError",
        error_message="no such thing",
        replay_of=original.pk,
        schedule_id=uuid7(),
    )
    Attempt.objects.create(
        job=job,
        attempt=1,
        outcome="retry",
        error_class="ValueError",
        error_message="first",
        traceback="Traceback of the first",
        started_at=datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    )
    History.objects.create(job=job, event="retry", actor="grace", detail={"a": "b-9"})

    page = page_of(browser, job)

    for text in ("value-7", "no such thing", "Traceback of the first", "grace", "b-9"):
        assert text in page
    assert f'href="{LIST}{original.pk}/change/"' in page
    assert 'name="_save"' not in page
    assert 'name="state"' not in page
    assert f"<h2>{job}</h2>" not in page  # where the buttons are


def test_the_page_cannot_be_posted_nor_are_rows_deleted_by_django(
    browser: Client,
) -> None:
    job = make_job()

    assert browser.post(f"{LIST}{job.pk}/change/", {}).status_code == 403
    response = press(browser, "delete_selected", job)
    assert "No action selected" in said(response)
    assert Job.objects.filter(pk=job.pk).exists()


def test_failure_016_stored_script_is_shown_as_text(browser: Client) -> None:
    Queue.objects.create(name=XSS)
    job = make_job(
        "failed",
        task=XSS,
        queue=XSS,
        args={"args": [XSS], "kwargs": {XSS: XSS}},
        result=XSS,
        progress={"at": XSS},
        meta={"x": XSS},
        tags=[XSS],
        error_class=XSS,
        error_message=XSS,
    )
    Attempt.objects.create(
        job=job,
        attempt=1,
        outcome=XSS,
        error_class=XSS,
        error_message=XSS,
        traceback=XSS,
    )
    Attempt.objects.create(job=job, attempt=2, outcome="x", error_message=XSS)
    History.objects.create(job=job, event=XSS, actor=XSS, detail={"x": XSS})

    for page in (
        browser.get(LIST).content.decode(),
        browser.get(f"{LIST}?queue={quote(XSS)}").content.decode(),
        page_of(browser, job),
        press(browser, "retry", job).content.decode(),
        browser.get(f"{LIST}{job.pk}/history/").content.decode(),
    ):
        assert "<img src=x" not in page
    assert page_of(browser, job).count(ESCAPED) > 10


@pytest.mark.parametrize(
    "text", ["\\ud800", "\U0001f468‍\U0001f469", "‮evil", "\x01\x1b[31m", "x" * 500_000]
)
def test_failure_085_odd_text_opens(browser: Client, text: str) -> None:
    job = make_job(
        "failed",
        args={"args": [text], "kwargs": {}},
        result=text,
        error_class=text[:1_000],
        error_message=text,
    )
    Attempt.objects.create(job=job, attempt=1, outcome="fail", traceback=text)

    assert browser.get(LIST).status_code == 200
    page = page_of(browser, job)

    assert len(page) < 200_000


def test_failure_087_a_list_reads_no_arguments_and_no_results(browser: Client) -> None:
    make_job("completed", args={"args": ["canary-args"], "kwargs": {}}, result="canary")

    with CaptureQueriesContext(connection) as queries:
        assert browser.get(LIST).status_code == 200

    read = [query["sql"] for query in queries if 'FROM "relay_job"' in query["sql"]]
    assert read
    for sql in read:
        for column in ("args", "result", "meta", "progress"):
            assert f'"relay_job"."{column}"' not in sql


def test_huge_numbers_in_arguments_open(browser: Client) -> None:
    job = make_job()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE relay_job SET args = ('{\"args\": [' || repeat('9', 9000) || "
            "', 1e5000], \"kwargs\": {}}')::jsonb"
        )

    assert browser.get(LIST).status_code == 200
    assert "999999" in page_of(browser, job)


@pytest.mark.parametrize("instant", ["infinity", "-infinity", "20000-01-01"])
def test_failure_137_times_python_cannot_hold_are_shown_as_the_nearest(
    browser: Client, instant: str
) -> None:
    job = make_job("failed")
    Attempt.objects.create(job=job, attempt=1, outcome="fail")
    History.objects.create(job=job, event="retry")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE relay_job SET created_at = %(t)s, started_at = %(t)s, "
            "finished_at = %(t)s, expires_at = %(t)s, cancel_requested_at = %(t)s, "
            "unique_until = %(t)s, occurrence_at = %(t)s",
            {"t": instant},
        )
        cursor.execute(
            "UPDATE relay_attempt SET started_at = %(t)s, ended_at = %(t)s",
            {"t": instant},
        )
        cursor.execute("UPDATE relay_history SET at = %(t)s", {"t": instant})

    year = ">0001-" if instant == "-infinity" else ">9999-"
    for state in ("", "?state=failed"):
        response = browser.get(LIST + state)
        assert response.status_code == 200
        assert year in response.content.decode()
    assert year in page_of(browser, job)


# --- actions -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "before", "after", "other"),
    [
        ("cancel", "queued", "cancelled", "completed"),
        ("retry", "failed", "queued", "running"),
        ("replay", "failed", "failed", "running"),
        ("run_now", "scheduled", "queued", "running"),
    ],
)
def test_an_action_counts_what_it_did_and_what_it_skipped(
    browser: Client, action: str, before: str, after: str, other: str
) -> None:
    job, skipped = make_job(before), make_job(other)

    response = press(browser, action, job, skipped)

    job.refresh_from_db()
    assert job.state == after
    [row] = History.objects.filter(job=job)
    assert (row.event, row.actor) == (action, "ada")
    assert "1 job " in said(response)
    assert f"1 job skipped: 1 is {other}." in said(response)
    [entry] = LogEntry.objects.all()
    assert (entry.object_id, entry.user.username) == (str(job.pk), "ada")
    assert not History.objects.filter(job=skipped).exists()


def test_cancel_asks_for_running_jobs_to_be_stopped_and_says_so(
    browser: Client,
) -> None:
    running, queued = make_job("running"), make_job("queued")

    response = press(browser, "cancel", running, queued)

    running.refresh_from_db()
    assert (running.state, running.cancel_requested_at is None) == ("running", False)
    [row] = History.objects.filter(job=running)
    assert (row.event, row.actor) == ("cancel_request", "ada")
    assert "1 job cancelled. 1 job asked to stop." in said(response)
    entries = {
        entry.object_id: entry.change_message for entry in LogEntry.objects.all()
    }
    assert "asked to stop" in entries[str(running.pk)]
    assert "cancelled" in entries[str(queued.pk)]


def test_an_action_counts_reasons_in_the_plural(browser: Client) -> None:
    response = press(browser, "run_now", make_job("running"), make_job("running"))

    assert "2 jobs skipped: 2 are running." in said(response)


def test_replay_from_two_tabs_makes_one_job(browser: Client) -> None:
    job = make_job("failed")

    press(browser, "replay", job)
    second = press(browser, "replay", job)

    assert Job.objects.filter(replay_of=job.pk).count() == 1
    assert "1 has a replay that has not ended" in said(second)


def test_an_action_says_what_left_the_filter_meanwhile(browser: Client) -> None:
    job = make_job("running")

    response = press(browser, "run_now", job, query="?state=queued")

    assert "1 is running" in said(response)
    assert response.redirect_chain[-1][0].endswith("?state=queued")


def press_all(browser: Client, action: str, query: str, **answer: str) -> Any:
    everything = {
        "action": action,
        "select_across": "1",
        "_selected_action": [str(uuid7())],
        **answer,
    }
    return browser.post(LIST + query, everything, follow=True)


def posted(asked: Any) -> dict[str, str]:
    """Return what the page that asks posts, answered."""
    hidden = dict(asked.context["posted"])
    answer = {name: hidden[name] for name in ("filter", "expected")}
    return {**answer, "confirmed": "yes", "reason": "again"}


def test_all_matching_are_acted_on_and_by_a_worker_if_they_are_many(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        make_job("failed", queue="mail", task="app.send")
    query = "?state=failed&queue=mail&q=app."

    monkeypatch.setattr(job_acts, "MOST_AT_ONCE", 2)
    asked = press_all(browser, "retry", query)
    many = press_all(browser, "retry", query, **posted(asked))
    untouched = Job.objects.filter(state="failed").count()
    monkeypatch.setattr(job_acts, "MOST_AT_ONCE", 3)
    few = press_all(browser, "retry", query)

    made = BulkOperation.objects.get()
    assert "Retry: 3 jobs that match state:failed queue:mail task:app.*" in asked.text
    assert "A worker does it to all that match" in said(many)
    assert f"/admin/relay/bulkoperation/{made.pk}/change/" in said(many)
    assert (made.action, made.actor, made.source) == ("retry", "ada", "admin")
    assert (made.expected, made.reason) == (3, "again")
    assert made.filter == "state:failed queue:mail task:app.*"
    assert untouched == 3
    assert "3 jobs made ready again" in said(few)


@pytest.mark.parametrize(
    ("query", "filter"),
    [
        (f"?q={uuid7()}", "id:"),
        ("?q=tag:%22a b%22", 'tag:"a b"'),
        ("?q=error:ValueError", "error:ValueError"),
        ("?q=app.&task=app.send", "task:app.send task:app.*"),
        ("?q=app.", "task:app.*"),
    ],
)
def test_a_search_means_the_same_to_a_bulk_operation(
    browser: Client, monkeypatch: pytest.MonkeyPatch, query: str, filter: str
) -> None:
    monkeypatch.setattr(RelayAdmin, "is_all_of_more", lambda *args, **options: True)

    asked = press_all(browser, "retry", query)
    press_all(browser, "retry", query, **posted(asked))

    assert BulkOperation.objects.get().filter.startswith(filter)


@pytest.mark.parametrize("query", ["", "?state=queued"])
def test_what_makes_no_bulk_operation_says_why(
    browser: Client, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setattr(RelayAdmin, "is_all_of_more", lambda *args, **options: True)

    response = press_all(browser, "retry", query)

    assert "Nothing was done: " in said(response)
    assert not BulkOperation.objects.exists()


@pytest.mark.parametrize("key", ["x", "a\x00b", "1" * 5_000])
def test_failure_136_a_selection_that_holds_no_id_is_refused(
    browser: Client, key: str
) -> None:
    response = browser.post(
        LIST, {"action": "cancel", "_selected_action": [key]}, follow=True
    )

    assert response.status_code == 200
    assert "no list of keys" in said(response)


def test_a_viewer_looks_but_is_offered_no_action(db: None) -> None:
    viewer = User.objects.create_user("vera", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_job"))
    client = Client()
    client.force_login(viewer)
    job = make_job()

    page = client.get(LIST)
    press(client, "cancel", job)

    assert page.status_code == 200
    assert 'value="cancel"' not in page.content.decode()
    assert client.get(f"{LIST}{job.pk}/change/").status_code == 200
    job.refresh_from_db()
    assert job.state == "queued"


def client_of(*permissions: str) -> Client:
    operator = User.objects.create_user("olga", is_staff=True)
    operator.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(operator)
    return client


def test_each_action_needs_its_own_permission(db: None) -> None:
    client = client_of("view_job", "cancel_job")
    job, failed = make_job(), make_job("failed")

    offered = client.get(LIST).content.decode()
    press(client, "cancel", job)
    press(client, "retry", failed)

    assert 'value="cancel"' in offered
    assert 'value="retry"' not in offered
    job.refresh_from_db()
    assert job.state == "cancelled"
    assert History.objects.get().actor == "olga"
    row = Audit.objects.get()
    assert (row.operation, row.actor, row.source) == ("cancel_jobs", "olga", "admin")
    failed.refresh_from_db()
    assert failed.state == "failed"


def test_nothing_is_offered_while_all_is_read_only(browser: Client) -> None:
    job = make_job()

    with override_settings(RELAY={"READ_ONLY": True}):
        offered = browser.get(LIST).content.decode()
        press(browser, "cancel", job)

    assert 'value="cancel"' not in offered
    job.refresh_from_db()
    assert job.state == "queued"


def test_payloads_are_masks_without_their_permission(db: None) -> None:
    client = client_of("view_job")
    job = make_job(
        "completed",
        args={"args": ["canary"], "kwargs": {}},
        result="canary",
        progress={"at": "canary"},
    )
    Step.objects.create(job_id=job.pk, attempt=1, name="one", value="canary")

    hidden = page_of(client, job)
    User.objects.get().user_permissions.add(
        Permission.objects.get(codename="view_payload")
    )
    shown = page_of(client, job)

    assert "canary" not in hidden
    assert hidden.count("•••") == 4
    assert shown.count("canary") == 4


def test_nobody_and_strangers_see_nothing(db: None) -> None:
    sam = User.objects.create_user("sam", is_staff=True)
    stranger = Client()
    stranger.force_login(sam)

    assert stranger.get(LIST).status_code == 403
    assert Client().get(LIST).status_code == 302


def test_an_action_without_a_token_is_refused(ada: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    job = make_job()

    response = client.post(
        LIST, {"action": "cancel", "_selected_action": [str(job.pk)]}
    )

    assert response.status_code == 403
    job.refresh_from_db()
    assert job.state == "queued"


def test_a_page_shows_neither_what_is_encrypted_nor_what_is_called_a_secret(
    browser: Client,
) -> None:
    envelope = {"__relay__": "sealed", "key": "k1", "value": "ciphertext"}
    job = make_job(
        "completed",
        args={"args": [envelope, "shown"], "kwargs": {"api_token": "s1"}, "sealed": 1},
        result={"password": {"inner": "s2"}, "name": "also shown"},
        meta={"Cookie": "s3"},
        progress={"secret": "s4"},
    )

    page = browser.get(f"{LIST}{job.pk}/change/").content.decode()

    assert "•••" in page
    assert "shown" in page
    assert "also shown" in page
    for hidden in ("ciphertext", "s1", "s2", "s3", "s4"):
        assert f">{hidden}<" not in page
        assert f"&quot;{hidden}&quot;" not in page


def test_a_replay_whose_key_is_missing_does_nothing_and_says_so(
    browser: Client,
) -> None:
    envelope = {"__relay__": "sealed", "key": "k1", "value": "A" * 64}
    job = make_job("failed", args={"args": [envelope], "kwargs": {}, "sealed": True})

    response = press(browser, "replay", job, make_job("failed"))

    assert "Nothing was done: the encryption key" in said(response)
    assert Job.objects.count() == 2


def test_a_job_s_page_shows_its_logs_steps_and_progress(browser: Client) -> None:
    job = make_job("running", progress={"percent": 40.0, "message": XSS})
    Output.objects.create(job=job, attempt=1, text=f"paid 42 {XSS}")
    Step.objects.create(
        job=job, attempt=1, name="charge", value={"receipt": "r-1", "token": "s3cret"}
    )
    Step.objects.create(job=make_job(), attempt=1, name="another's", value=None)

    page = browser.get(f"{LIST}{job.pk}/change/").content.decode()

    for text in ("paid 42", "charge", "r-1", "&quot;percent&quot;: 40.0"):
        assert text in page
    for text in (XSS, "s3cret", "another&#x27;s"):
        assert text not in page


def test_a_timeout_is_shown_as_a_span_of_time(browser: Client) -> None:
    job = make_job(timeout_ms=90_000)

    page = browser.get(f"/admin/relay/job/{job.pk}/change/").content.decode()

    assert "0:01:30" in page
    assert "90000" not in page

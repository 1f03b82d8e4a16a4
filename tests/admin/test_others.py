"""Queues, workers, schedules and occurrences in the admin."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_settings
from django.urls import reverse

from relay.admin.registration import PAGES
from relay.ids import uuid7
from relay.models import (
    Audit,
    BulkOperation,
    History,
    Job,
    Occurrence,
    Queue,
    Schedule,
    Worker,
)

XSS = "<img src=x onerror=alert(1)>"
LATER = datetime(2999, 1, 1, tzinfo=UTC)
QUEUES = "/admin/relay/queue/"
WORKERS = "/admin/relay/worker/"
SCHEDULES = "/admin/relay/schedule/"
OCCURRENCES = "/admin/relay/occurrence/"


def make_worker(**values: Any) -> Worker:
    return Worker.objects.create(
        **{
            "name": "host-1",
            "host": "host",
            "pid": 1,
            "queues": ["default", "mail"],
            "concurrency": 10,
            "version": "0",
            "lease_expires_at": LATER,
            **values,
        }
    )


def make_schedule(**values: Any) -> Schedule:
    return Schedule.objects.create(
        **{"name": "nightly", "task": "tests.noop", "cron": "0 7 * * *", **values}
    )


def press(browser: Client, address: str, action: str, *rows: Any) -> Any:
    return browser.post(
        address,
        {"action": action, "_selected_action": [str(row.pk) for row in rows]},
        follow=True,
    )


def said(response: Any) -> str:
    return " ".join(str(message) for message in response.context["messages"])


def page(browser: Client, address: str) -> str:
    response = browser.get(address)
    assert response.status_code == 200
    return response.content.decode()


def test_queues_show_what_waits_and_runs_and_whether_they_are_paused(
    browser: Client,
) -> None:
    Queue.objects.create(name="mail", paused_at=LATER)
    ended = datetime(2000, 1, 1, tzinfo=UTC)
    Queue.objects.create(name="other", paused_at=ended, paused_until=ended)
    Job.objects.create(task="t", queue="mail")
    Job.objects.create(task="t", queue="mail", state="running", worker_id=uuid7())

    rows = browser.get(QUEUES).context["cl"].result_list

    assert [
        (row.name, row.paused_now, row.waiting_count, row.running_count) for row in rows
    ] == [("mail", True, 1, 1), ("other", False, 0, 0)]
    assert page(browser, f"{QUEUES}mail/change/")


def test_queues_are_paused_and_resumed_by_actions(browser: Client) -> None:
    mail, other = (Queue.objects.create(name=name) for name in ("mail", "other"))

    press(browser, QUEUES, "pause", mail)
    mail.refresh_from_db()
    was_paused = mail.paused_at is not None
    response = press(browser, QUEUES, "resume", mail, other)

    mail.refresh_from_db()
    assert was_paused
    assert mail.paused_at is None
    assert "1 resumed, 1 skipped: not paused." in said(response)
    assert list(History.objects.order_by("id").values_list("event", "actor")) == [
        ("pause", "ada"),
        ("resume", "ada"),
    ]
    assert LogEntry.objects.count() == 2


def test_queues_are_ordered_by_actions(browser: Client) -> None:
    mail, other = Queue.objects.create(name="mail"), Queue.objects.create(name="other")

    fifo = press(browser, QUEUES, "order_fifo", mail, other)
    again = press(browser, QUEUES, "order_fifo", mail)
    back = press(browser, QUEUES, "order_by_priority", other)

    mail.refresh_from_db()
    other.refresh_from_db()
    assert (mail.policy, other.policy) == ("fifo", "priority")
    assert "2 changed to fifo." in said(fifo)
    assert "0 changed to fifo, 1 skipped: fifo already." in said(again)
    assert "1 changed to priority." in said(back)
    assert History.objects.filter(event="policy", actor="ada").count() == 3


def test_pausing_a_paused_queue_says_that_it_was_paused_already(
    browser: Client,
) -> None:
    mail, other = (Queue.objects.create(name=name) for name in ("mail", "other"))
    ended = Queue.objects.create(name="ended", paused_at=LATER, paused_until=LATER)
    press(browser, QUEUES, "pause", mail)

    response = press(browser, QUEUES, "pause", mail, other, ended)

    assert "2 paused: none" in said(response)
    assert "1 skipped: paused already." in said(response)
    ended.refresh_from_db()
    assert ended.paused_until is None
    assert History.objects.filter(event="pause").count() == 3


def test_a_queue_whose_name_was_written_by_hand_does_not_break_the_page(
    browser: Client,
) -> None:
    odd = Queue.objects.create(name=XSS)

    response = press(browser, QUEUES, "pause", odd)

    assert response.status_code == 200
    assert XSS not in response.content.decode()
    assert "cannot name a queue" in said(response)


def test_workers_show_their_state_lease_and_queues(browser: Client) -> None:
    running = make_worker(stats={"rss_bytes": 12345})
    lost = make_worker(state="lost", name="host-2")

    assert "default, mail" in page(browser, WORKERS)
    response = browser.get(WORKERS + "?state=lost")
    assert [row.pk for row in response.context["cl"].result_list] == [lost.pk]
    assert "12345" in page(browser, f"{WORKERS}{running.pk}/change/")
    assert browser.get(WORKERS + "?state=bogus").status_code == 302


@override_settings(TIME_ZONE="Europe/Rome")
def test_times_show_their_seconds_in_the_local_zone(browser: Client) -> None:
    first = datetime(2026, 7, 1, 12, 0, 3, tzinfo=UTC)
    worker = make_worker(lease_expires_at=first)
    queue = Queue.objects.create(name="mail", paused_at=first, paused_until=first)
    schedule = make_schedule(next_due_at=first)
    code = make_schedule(name="code", source="code", next_due_at=first)
    occurrence = Occurrence.objects.create(schedule=schedule, due_at=first)
    pages = [
        WORKERS,
        f"{WORKERS}{worker.pk}/change/",
        QUEUES,
        f"{QUEUES}{queue.pk}/change/",
        SCHEDULES,
        f"{SCHEDULES}{schedule.pk}/change/",
        f"{SCHEDULES}{code.pk}/change/",
        OCCURRENCES,
        f"{OCCURRENCES}{occurrence.pk}/change/",
    ]

    for address in pages:
        text = page(browser, address)
        assert ">2026-07-01 14:00:03</time>" in text, address
        assert "p.m." not in text, address
        assert ">None</div>" not in text, address


@pytest.mark.parametrize(
    "address", [f"{QUEUES}add/", f"{WORKERS}add/", f"{OCCURRENCES}add/"]
)
def test_rows_that_relay_makes_are_not_added_by_hand(
    browser: Client, address: str
) -> None:
    assert browser.get(address).status_code == 403


FORM = {
    "name": "hourly",
    "task": "tests.noop",
    "args": "{}",
    "queue": "",
    "priority": "",
    "cron": "0 * * * *",
    "timezone": "Europe/Rome",
    "overlap": "allow",
    "catch_up": "latest",
    "catch_up_window_ms": "1 00:00:00",
    "enabled": "on",
}


def test_a_schedule_is_added_with_what_the_form_offers(browser: Client) -> None:
    added = browser.get(f"{SCHEDULES}add/")
    form = added.context["adminform"].form

    response = browser.post(f"{SCHEDULES}add/", FORM, follow=True)

    assert "Created at" not in added.text
    assert form["enabled"].value() is True
    assert form["timezone"].value() == "UTC"
    assert response.status_code == 200
    schedule = Schedule.objects.get()
    assert (schedule.name, schedule.queue, schedule.source) == (
        "hourly",
        None,
        "database",
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cron", "61 * * * *"),
        ("cron", "0 0 30 2 *"),
        ("cron", "x" * 100_000),
        ("timezone", "Europe/Rom"),
        ("queue", "no queue"),
        ("priority", "101"),
        ("args", "[1]"),
        ("args", "{"),
        ("args", '{"args": [NaN]}'),
        ("args", '{"args": [1e400]}'),
        ("args", '{"args": ["\\u0000"]}'),
        pytest.param("args", f'{{"args": ["{"x" * 300_000}"]}}', id="args-large"),
        ("args", '{"args": ["\\ud800"]}'),
        ("args", f'{{"args": [{"1" * 5_000}]}}'),
        pytest.param("args", f'{{"args": {"[" * 900}{"]" * 900}}}', id="args-900"),
        pytest.param("args", f'{{"args": {"[" * 970}{"]" * 970}}}', id="args-970"),
        pytest.param("args", f'{{"args": {"[" * 5_000}{"]" * 5_000}}}', id="args-5000"),
        pytest.param("args", f'{{"args": {"[" * 80}{"]" * 80}}}', id="args-deep"),
        ("task", "no task"),
        ("name", "a\x00b"),
        ("catch_up", "sometimes"),
        ("catch_up_window_ms", "-1"),
        ("catch_up_window_ms", "9" * 18),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused_with_the_reason(
    browser: Client, field: str, value: str
) -> None:
    response = browser.post(f"{SCHEDULES}add/", {**FORM, field: value})

    assert response.status_code == 200
    assert field in response.context["adminform"].form.errors
    assert not Schedule.objects.exists()


def test_an_edit_leaves_what_the_schedulers_wrote_meanwhile(browser: Client) -> None:
    schedule = make_schedule(next_due_at=LATER)
    saved = Schedule.save

    def save(self: Schedule, *args: Any, **kwargs: Any) -> None:
        Schedule.objects.filter(pk=self.pk).update(next_due_at=None, planned="new")
        saved(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Schedule, "save", save)
        response = browser.post(f"{SCHEDULES}{schedule.pk}/change/", FORM)

    assert response.status_code == 302
    schedule.refresh_from_db()
    assert (schedule.name, schedule.cron) == ("hourly", "0 * * * *")
    assert (schedule.next_due_at, schedule.planned) == (None, "new")


def test_a_schedule_shows_when_it_fires_next(browser: Client) -> None:
    schedule = make_schedule(cron="0 7 1 1 *", timezone="Europe/Rome")

    text = page(browser, f"{SCHEDULES}{schedule.pk}/change/")

    assert text.count("-01-01 07:00:00 Europe/Rome") == 10
    assert text.count("-01-01 06:00:00 UTC") == 10


def test_a_broken_schedule_opens_with_the_reason(browser: Client) -> None:
    schedule = make_schedule()
    Schedule.objects.update(cron="not cron", last_error=XSS)

    text = page(browser, f"{SCHEDULES}{schedule.pk}/change/")

    assert "there are exactly five" in text
    assert XSS not in text
    assert XSS not in page(browser, SCHEDULES)


def test_what_code_declares_is_edited_in_the_code(browser: Client) -> None:
    schedule = make_schedule(source="code")
    address = f"{SCHEDULES}{schedule.pk}/change/"

    text = page(browser, address)
    response = browser.post(address, {**FORM, "enabled": ""})

    assert 'name="cron"' not in text
    assert 'name="enabled"' in text
    assert response.status_code == 302
    schedule.refresh_from_db()
    assert (schedule.cron, schedule.enabled) == ("0 7 * * *", False)
    assert browser.get(f"{SCHEDULES}{schedule.pk}/delete/").status_code == 403


def test_a_broken_definition_of_the_code_is_told_above_the_form(
    browser: Client,
) -> None:
    schedule = make_schedule(source="code")
    Schedule.objects.update(cron="not cron")

    response = browser.post(
        f"{SCHEDULES}{schedule.pk}/change/", {**FORM, "enabled": ""}
    )

    assert response.status_code == 200
    assert "cron: " in str(response.context["adminform"].form.non_field_errors())


def test_a_schedule_is_deleted_without_listing_its_occurrences(
    browser: Client,
) -> None:
    schedule = make_schedule()
    for day in range(1, 20):
        Occurrence.objects.create(
            schedule=schedule, due_at=datetime(2026, 1, day, tzinfo=UTC)
        )
    address = f"{SCHEDULES}{schedule.pk}/delete/"

    text = page(browser, address)
    browser.post(address, {"post": "yes"})

    assert "2026" not in text
    assert not Schedule.objects.exists()
    assert not Occurrence.objects.exists()


def test_run_now_enqueues_one_job_and_makes_no_occurrence(browser: Client) -> None:
    schedule = make_schedule(args={"args": [7]}, queue="mail", priority=3)

    response = press(browser, SCHEDULES, "run_now", schedule)

    job = Job.objects.get()
    assert (job.task, job.queue, job.priority) == ("tests.noop", "mail", 3)
    assert job.args == {"args": [7], "kwargs": {}}
    assert (job.schedule_id, job.occurrence_at) == (schedule.pk, None)
    assert not Occurrence.objects.exists()
    [row] = History.objects.all()
    assert (row.job_id, row.event, row.actor) == (job.pk, "run_schedule", "ada")
    assert "1 enqueued." in said(response)


def test_run_now_of_a_schedule_that_cannot_be_kept_says_why(browser: Client) -> None:
    good, bad = make_schedule(), make_schedule(name=XSS)
    Schedule.objects.filter(pk=bad.pk).update(args=[1])

    response = press(browser, SCHEDULES, "run_now", good, bad)

    assert Job.objects.count() == 1
    assert "the arguments must have the form" in said(response)
    assert XSS not in response.content.decode()


def test_schedules_are_resumed_and_paused_by_actions(browser: Client) -> None:
    schedule = make_schedule()

    first = press(browser, SCHEDULES, "disable", schedule)
    schedule.refresh_from_db()
    was_enabled = schedule.enabled
    second = press(browser, SCHEDULES, "disable", schedule)
    press(browser, SCHEDULES, "enable", schedule)

    schedule.refresh_from_db()
    assert (was_enabled, schedule.enabled) == (False, True)
    assert "1 paused." in said(first)
    assert "0 paused. 1 skipped: paused already." in said(second)
    assert list(History.objects.order_by("id").values_list("event", "actor")) == [
        ("disable", "ada"),
        ("enable", "ada"),
    ]


def test_occurrences_are_listed_by_schedule_and_lead_to_their_job(
    browser: Client,
) -> None:
    mine, other = make_schedule(), make_schedule(name="other")
    job_id = uuid7()
    for schedule in (mine, other):
        for day in (1, 2):
            Occurrence.objects.create(
                schedule=schedule,
                due_at=datetime(2026, 1, day, tzinfo=UTC),
                job_id=job_id,
            )

    response = browser.get(f"{OCCURRENCES}?schedule={mine.pk}")
    rows = response.context["cl"].result_list

    assert [row.due_at.day for row in rows] == [2, 1]
    assert {row.schedule_id for row in rows} == {mine.pk}
    assert f"/admin/relay/job/{job_id}/change/" in response.content.decode()
    assert "nightly" in page(browser, f"{OCCURRENCES}{rows[0].pk}/change/")
    assert browser.get(f"{OCCURRENCES}?schedule=x").status_code == 302
    beyond = browser.get(f"{OCCURRENCES}{10**30}/change/")
    assert beyond.status_code == 302


@pytest.mark.parametrize("instant", ["infinity", "-infinity", "20000-01-01"])
def test_failure_137_lists_and_pages_open_whatever_time_a_row_holds(
    browser: Client, instant: str
) -> None:
    schedule, worker = make_schedule(), make_worker()
    queue = Queue.objects.create(name="mail")
    occurrence = Occurrence.objects.create(schedule=schedule, due_at=LATER)
    with connection.cursor() as cursor:
        for table, columns in {
            "relay_queue": ("paused_at", "paused_until"),
            "relay_worker": ("started_at", "heartbeat_at", "lease_expires_at"),
            "relay_schedule": ("next_due_at", "last_due_at", "created_at"),
            "relay_occurrence": ("due_at", "until_at", "created_at"),
        }.items():
            values = ", ".join(f"{column} = '{instant}'" for column in columns)
            cursor.execute(f"UPDATE {table} SET {values}")

    for address, row in (
        (QUEUES, queue),
        (WORKERS, worker),
        (SCHEDULES, schedule),
        (OCCURRENCES, occurrence),
    ):
        page(browser, address)
        page(browser, f"{address}{row.pk}/change/")
    assert browser.post(f"{SCHEDULES}{schedule.pk}/change/", FORM).status_code == 302


def test_failure_016_stored_script_is_shown_as_text(browser: Client) -> None:
    Queue.objects.create(name=XSS)
    worker = make_worker(name=XSS, host=XSS, queues=[XSS], version=XSS, stats=[XSS])
    schedule = make_schedule()
    Schedule.objects.update(name=XSS, task=XSS, cron=XSS, timezone=XSS, last_error=XSS)
    occurrence = Occurrence.objects.create(schedule=schedule, due_at=LATER)

    for address in (
        QUEUES,
        WORKERS,
        f"{WORKERS}{worker.pk}/change/",
        SCHEDULES,
        f"{SCHEDULES}{schedule.pk}/change/",
        OCCURRENCES,
        f"{OCCURRENCES}{occurrence.pk}/change/",
    ):
        assert XSS not in page(browser, address)


@pytest.mark.django_db(transaction=True)
def test_every_list_takes_at_most_six_queries(browser: Client) -> None:
    for number in range(20):
        schedule = make_schedule(name=f"s{number}")
        Occurrence.objects.create(schedule=schedule, due_at=LATER)
        Queue.objects.create(name=f"q{number}")
        make_worker()
        BulkOperation.objects.create(action="retry", filter="state:failed", actor="a")
        Audit.objects.create(operation="retry_jobs", actor="a", source="admin")
        Job.objects.create(task="one")

    for model in PAGES:
        address = reverse(f"admin:relay_{model._meta.model_name}_changelist")
        browser.get(address)
        with CaptureQueriesContext(connection) as queries:
            browser.get(address)
        statements = [
            one["sql"] for one in queries if one["sql"] not in ("BEGIN", "ROLLBACK")
        ]
        assert len(statements) <= 6, (address, statements)


def test_actions_need_the_permission_of_their_acts(db: None) -> None:
    vera = User.objects.create_user("vera", is_staff=True)
    for model in ("queue", "schedule", "worker", "occurrence"):
        vera.user_permissions.add(Permission.objects.get(codename=f"view_{model}"))
    viewer = Client()
    viewer.force_login(vera)
    queue, schedule = Queue.objects.create(name="mail"), make_schedule()

    press(viewer, QUEUES, "pause", queue)
    press(viewer, SCHEDULES, "run_now", schedule)
    posted = viewer.post(f"{SCHEDULES}{schedule.pk}/change/", FORM)

    queue.refresh_from_db()
    assert queue.paused_at is None
    assert not Job.objects.exists()
    assert posted.status_code == 403


def test_workers_are_asked_by_actions(browser: Client) -> None:
    supervisor = uuid7()
    one, two = (make_worker(supervisor=supervisor) for _ in range(2))
    lost = make_worker(state="lost")

    response = press(browser, WORKERS, "quiet", one, two, lost)

    assert "2 asked to claim nothing more" in said(response)
    assert "it is lost" in said(response)
    assert set(Worker.objects.values_list("asked", flat=True)) == {"quiet", None}
    press(browser, WORKERS, "resume", one)
    press(browser, WORKERS, "shut_down", two)
    assert Audit.objects.count() == 6
    two.refresh_from_db()
    assert two.asked == "stop"


def test_bulk_operations_are_shown_and_cancelled(browser: Client) -> None:
    made = BulkOperation.objects.create(
        action="retry",
        filter=XSS,
        actor=XSS,
        source="api",
        skipped={XSS: 2},
        job_id=uuid7(),
    )
    address = "/admin/relay/bulkoperation/"

    one = page(browser, f"{address}{made.pk}/change/")
    for text in (page(browser, address), one):
        assert XSS not in text
    assert "was deleted" in one
    response = press(browser, address, "cancel", made)
    again = press(browser, address, "cancel", made)

    assert "1 go no further" in said(response)
    assert "it is cancelled" in said(again)
    made.refresh_from_db()
    assert made.state == "cancelled"

"""The pages of a project whose USE_TZ is off: times are what its TIME_ZONE says."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from django.test import Client

from relay.models import Job, Queue, Schedule
from tests.api.factory import make_schedule, make_worker
from tests.dashboard.pages import PAGES, given, said, shown, url
from tests.operations.factory import make_job

pytestmark = pytest.mark.django_db
ECHO = "testproject.tasks.echo"
NINE = datetime(2999, 1, 1, 9)  # noqa: DTZ001 - as USE_TZ says


@pytest.fixture(autouse=True)
def _naive(settings: Any) -> None:
    settings.USE_TZ = False
    settings.TIME_ZONE = "Asia/Tokyo"


def test_every_page_opens(browser: Client) -> None:
    failed, waits = make_job("failed", task=ECHO), make_job("scheduled", task=ECHO)
    worker = make_worker()
    make_schedule()

    pages = [
        *map(url, PAGES),
        *(url("job", failed.pk, query=f"show={each}") for each in ("now", "past")),
        *(url("edit_job", waits.pk), url("replay_job", failed.pk)),
        *(url("queue", "default"), url("worker", worker.pk)),
        *(url("schedule", "nightly"), url("edit_schedule", "nightly")),
    ]

    assert {page: browser.get(page).status_code for page in pages} == dict.fromkeys(
        pages, 200
    )


def test_a_queue_is_paused_for_some_minutes(browser: Client) -> None:
    act = url("act_on_queue", "default")

    told = said(browser.post(act, {"action": "pause", "minutes": "10"}))

    assert "paused for 10 min" in told
    assert Queue.objects.get().paused_until is not None


def test_a_time_in_a_form_is_local_and_stays_what_it_is(browser: Client) -> None:
    form = {"task": ECHO, "args": "[1]", "run_at": "2999-01-01 09:00"}
    browser.post(url("enqueue"), form)
    job = Job.objects.get()
    edit = url("edit_job", job.pk)

    page = browser.get(edit)
    told = said(browser.post(edit, _typed(page)))

    assert job.run_at == NINE
    assert 'value="2999-01-01 09:00:00"' in shown(page)
    assert told == "Nothing was changed."


def test_a_schedules_times_stay_where_something_else_is_edited(
    browser: Client,
) -> None:
    make_schedule(starts_at=NINE)
    edit = url("edit_schedule", "nightly")

    form = _typed(browser.get(edit)) | {"priority": "7"}
    browser.post(edit, form)
    browser.post(edit, form | {"ends_at": "2999-01-02 09:00"})

    schedule = Schedule.objects.get()
    assert (schedule.starts_at, schedule.priority) == (NINE, 7)
    assert schedule.ends_at == NINE.replace(day=2)


def test_the_admin_enqueues_and_edits_at_a_local_time(browser: Client) -> None:
    when = {"run_at_0": "2999-01-01", "run_at_1": "09:00:00"}
    browser.post("/admin/relay/job/add/", {"task": ECHO, "args": "[1]", **when})
    job = Job.objects.get()

    changed = {"args": "[1]", "kwargs": "", "priority": "7", **when}
    browser.post(f"/admin/relay/job/{job.pk}/edit/", changed)

    job.refresh_from_db()
    assert (job.run_at, job.priority) == (NINE, 7)


def _typed(page: Any) -> dict[str, Any]:
    """Return what a form's fields show, as text."""
    form = page.context["form"]
    shown_ = {name: form[name].as_widget() for name in form.fields}
    times = {
        name: text.partition('value="')[2].partition('"')[0]
        for name, text in shown_.items()
        if name.endswith("_at") or name == "deadline"
    }
    return given(page) | times

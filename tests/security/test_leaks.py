"""What somebody may not see is on no surface, whatever they ask and however."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client

from relay import operations
from relay.models import Audit, BulkOperation, Job, Schedule
from relay.operations import PERMISSIONS
from tests.api.factory import Api, make_token
from tests.operations.factory import make_job
from tests.security.rows import ROOT, make_rows
from tests.security.surfaces import browser_of, content_of, filled, routes

pytestmark = pytest.mark.django_db

WORD = "c4n4ry-of-nobody"
# Further looks at what an address shows.
LOOKS = {
    "v1/jobs/<job_id>": ("?include=attempts,history,logs,steps",),
    "v1/jobs": ("?state=failed",),
    "dashboard/jobs/": ("?state=failed", "?part=jobs"),
    "dashboard/jobs/<job_id>/": ("?show=past", "?show=logs", "?part=job"),
    "admin/relay/job/": ("?state=failed", "?q=state:failed"),
}
FORBIDDEN = {403, 404, 405}


def walk(browser: Client, rows: dict[str, Any]) -> dict[str, str]:
    """Return all that the addresses answer to a GET, by address."""
    found: dict[str, str] = {}
    for route in routes():
        for query in ("", *LOOKS.get(route, ())):
            address = filled(route, rows) + query
            response = browser.get(address)
            assert response.status_code < 500, address
            found[address] = content_of(response)
    for action in ("export_jsonl", "export_csv"):
        response = browser.post(
            "/admin/relay/job/",
            {"action": action, "select_across": "1", "_selected_action": [rows["job"]]},
        )
        found[action] = content_of(response)
    return found


def test_without_view_payload_no_address_tells_an_argument_or_a_result() -> None:
    rows = make_rows(WORD)
    bulk = operations.start_bulk(ROOT, "retry", f"state:failed args.given:{WORD}")
    browser = browser_of(*PERMISSIONS - {"view_payload"})

    for which in (rows, {**rows, "bulk": bulk.pk, "bulkoperation": bulk.pk}):
        told = walk(browser, which)
        assert [address for address, text in told.items() if WORD in text] == []
        assert len(told) > 120
    assert "•••" in told["export_csv"]


def test_who_may_see_payloads_is_told_them() -> None:
    rows = make_rows(WORD)
    told = walk(browser_of(*PERMISSIONS), rows)

    seen = {address for address, text in told.items() if WORD in text}
    job, schedule = rows["job"], rows["schedule"]
    assert {
        *("/v1/jobs", "/dashboard/jobs/", "export_csv", "export_jsonl"),
        *(f"/v1/jobs/{job}", f"/dashboard/jobs/{job}/"),
        *(f"/admin/relay/job/{job}/change/", "/v1/schedules/nightly"),
        *("/dashboard/schedules/nightly/", f"/admin/relay/schedule/{schedule}/change/"),
    } <= seen


def test_failure_056_no_address_tells_what_stands_under_a_secret_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = make_rows({"password": WORD, "nested": [{"api_token": {"deep": WORD}}]})
    root = User.objects.create_superuser("root")
    browser = Client()
    browser.force_login(root)

    with caplog.at_level(logging.DEBUG):
        told = walk(browser, rows)

    assert [address for address, text in told.items() if WORD in text] == []
    assert WORD not in caplog.text
    assert "\\u2022" in told["/v1/jobs"]


# --- asked with a guess --------------------------------------------------------------

GUESSES = (
    *("/v1/jobs?args.0={}", "/v1/jobs?q=args.0:{}", "/v1/jobs/count?args.given={}"),
    *("/dashboard/jobs/?args.0={}", "/dashboard/jobs/?q=args.given:{}"),
    *("/admin/relay/job/?q=args.0:{}", "/admin/relay/job/?args__0={}"),
    *("/admin/relay/job/?args={}", "/admin/relay/job/?result__icontains={}"),
    *("/admin/relay/schedule/?args__args__0={}", "/admin/relay/schedule/?q={}"),
    *("/v1/jobs?order=args", "/v1/jobs?ordering=args&x={}", "/admin/relay/job/?o=args"),
)


@pytest.mark.parametrize("address", GUESSES)
def test_a_right_guess_at_an_argument_is_answered_as_a_wrong_one(address: str) -> None:
    make_rows(WORD)
    browser = browser_of(*PERMISSIONS - {"view_payload"})

    answers = []
    for guess in (WORD, WORD[::-1]):
        response = browser.get(address.format(guess))
        text = content_of(response).replace(guess, "guess")
        answers.append((response.status_code, len(text)))

    assert answers[0][0] == answers[1][0]
    assert answers[0][0] in {*FORBIDDEN, 400, 302, 200}
    job = str(Job.objects.get(state="failed").pk)
    if answers[0][0] == 200:
        assert (job in content_of(browser.get(address.format(WORD)))) == (
            job in content_of(browser.get(address.format(WORD[::-1])))
        )


@pytest.mark.parametrize("path", ["password", "user.api_token", "PASSWORD.0"])
def test_failure_056_nobody_looks_for_what_stands_under_a_secret_name(
    path: str,
) -> None:
    make_job(args={"args": [], "kwargs": {"password": WORD}})
    client = Api(make_token("admin"))
    root = Client()
    root.force_login(User.objects.create_superuser("root"))
    text = f"args.{path}:{WORD}"

    by_rest = client.get(f"/v1/jobs?q={text}")
    by_name = client.get(f"/v1/jobs?args.{path}={WORD}")
    in_bulk = client.post("/v1/jobs/bulk", {"action": "retry", "filter": text})
    on_dashboard = root.get(f"/dashboard/jobs/?q={text}")

    assert {by_rest.status_code, by_name.status_code, in_bulk.status_code} == {400}
    assert "REDACTED_NAMES" in content_of(by_rest)
    assert str(Job.objects.get().pk) not in content_of(on_dashboard)
    assert not BulkOperation.objects.exists()


# --- what is on record ---------------------------------------------------------------


def test_the_record_of_a_bulk_act_names_no_argument() -> None:
    bulk = operations.start_bulk(ROOT, "retry", f'args.user:{WORD} "refused"')

    detail = Audit.objects.get(operation="start_bulk").detail
    assert detail is not None
    assert detail["filter"] == 'args.user:••• "refused"'
    assert bulk.filter == f'args.user:{WORD} "refused"'
    assert WORD not in str(bulk)


def test_acts_in_the_admin_leave_no_argument_in_djangos_log() -> None:
    root = Client()
    root.force_login(User.objects.create_superuser("root"))
    job = make_job(args={"args": [WORD], "kwargs": {}})
    form = {"args": json.dumps([WORD, 2]), "kwargs": "", "reason": "", "tags": ""}
    form |= {"queue": "default", "priority": "0", "max_retries": "25", "timeout": ""}
    form |= {f"{n}_{p}": "" for n in ("run_at", "deadline") for p in (0, 1)}

    response = root.post(f"/admin/relay/job/{job.pk}/edit/", form)

    assert response.status_code == 302
    job.refresh_from_db()
    assert job.args["args"] == [WORD, 2]
    entries = list(LogEntry.objects.values_list("object_repr", "change_message"))
    assert entries
    assert WORD not in str(entries)
    assert WORD not in str(list(Audit.objects.values()))


# --- schedules in the admin ----------------------------------------------------------


def form_of(response: Any) -> dict[str, Any]:
    """Return what a form of the admin would send if nothing was changed."""
    form = response.context["adminform"].form
    found: dict[str, Any] = {}
    for name in form.fields:
        value = form[name].value()
        if isinstance(value, list) or name in ("once_at", "starts_at", "ends_at"):
            parts = form[name].field.widget.decompress(value)
            found |= {f"{name}_{place}": part or "" for place, part in enumerate(parts)}
        elif value is not False:
            found[name] = "" if value is None else value
    return found


@pytest.mark.parametrize("source", ["database", "code"])
def test_a_schedules_arguments_are_masks_for_who_only_looks(source: str) -> None:
    schedule = Schedule.objects.create(
        name="nightly",
        task="testproject.tasks.echo",
        cron="0 3 * * *",
        source=source,
        args={"args": ["open"], "kwargs": {"password": WORD}},
    )
    address = f"/admin/relay/schedule/{schedule.pk}/change/"

    looks = content_of(browser_of("view_schedule").get(address))
    sees = content_of(
        browser_of("view_schedule", "view_payload", name="bob").get(address)
    )

    assert "open" not in looks
    assert WORD not in looks
    assert "•••" in looks
    assert "&quot;open&quot;" in sees
    assert WORD not in sees


@pytest.mark.parametrize(
    ("permissions", "args"),
    [
        (("view_payload",), {"args": [], "kwargs": {"password": WORD}}),
        ((), {"args": [WORD], "kwargs": {}}),
    ],
)
def test_arguments_that_who_edits_may_not_see_stay_or_are_given_anew(
    permissions: tuple[str, ...], args: Any
) -> None:
    schedule = Schedule.objects.create(
        name="nightly", task="testproject.tasks.echo", cron="0 3 * * *", args=args
    )
    address = f"/admin/relay/schedule/{schedule.pk}/change/"
    mine = ("view_schedule", "manage_schedule", "enqueue_job")
    browser = browser_of(*mine, *permissions)

    page = browser.get(address)
    values = {**form_of(page), "cron": "0 4 * * *"}
    kept = browser.post(address, values)
    schedule.refresh_from_db()

    assert WORD not in content_of(page)
    assert values["args"] == ""
    assert kept.status_code == 302, content_of(kept)
    assert (schedule.cron, schedule.args) == ("0 4 * * *", args)

    new = {"args": ["new"], "kwargs": {}}
    browser.post(address, {**values, "args": json.dumps(new)})
    schedule.refresh_from_db()

    assert schedule.args == new
    told = list(Audit.objects.filter(operation="edit_schedule").values_list("detail"))
    assert WORD not in str(told)
    assert "new" not in str(told)


# --- an enqueue is no look -----------------------------------------------------------


@pytest.mark.parametrize("way", ["id", "key"])
def test_who_only_enqueues_learns_nothing_of_a_job_that_was_there(way: str) -> None:
    call: dict[str, Any] = {"task": "testproject.tasks.echo", "args": [1]}
    if way == "key":
        call["unique"] = {"key": "k"}
    admin = Api(make_token("admin"))
    made = admin.post("/v1/jobs", {**call, "tags": [WORD], "meta": {"of": WORD}})
    job = Job.objects.get()
    Job.objects.update(
        error_class="ValueError", error_message=WORD, result=WORD, progress={"at": WORD}
    )
    if way == "id":
        call["id"] = str(job.pk)

    mine = Api(make_token("submit", "payload")).post("/v1/jobs", call)
    theirs = admin.post("/v1/jobs", call)

    assert (made.status_code, mine.status_code) == (201, 200)
    assert mine.json()["id"] == str(job.pk)
    assert mine.json()["state"] == "queued"
    assert WORD not in content_of(mine)
    assert WORD in content_of(theirs)
    assert Job.objects.count() == 1
    assert Audit.objects.filter(operation="enqueue_job").count() == 1

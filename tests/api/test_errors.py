"""Errors: what is wrong is said with a code, a place and a remedy; no 500."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import psycopg.errors
import pytest
from django.db import InterfaceError, OperationalError
from django.test import Client

import relay
from relay.api import meta
from relay.api.problems import PROBLEMS, problem_of
from relay.exceptions import DecodeError, MissingKey, ReadTimeout
from relay.models import ApiToken, Job, Schedule
from tests.api.factory import Api, api, make_token
from tests.docs.pages import ROOT
from tests.operations.factory import make_job

pytestmark = pytest.mark.django_db
ECHO = "testproject.tasks.echo"
MEMBERS = {
    "type",
    "title",
    "status",
    "detail",
    "instance",
    "code",
    "request_id",
    "errors",
}


def said(response: Any) -> Any:
    return json.loads(response.content)


def test_an_error_is_a_problem_of_rfc_9457() -> None:
    response = api().post(
        "/v1/jobs", {"task": ECHO, "priority": 1000, "x": 1}, X_Request_ID="r-1"
    )

    document = said(response)
    assert response.status_code == 400
    assert response["Content-Type"] == "application/problem+json"
    assert response["X-Request-ID"] == "r-1"
    assert set(document) == MEMBERS
    assert document["type"] == "/v1/docs#invalid_request"
    assert document["status"] == 400
    assert document["instance"] == "/v1/jobs"
    assert document["request_id"] == "r-1"
    assert document["errors"][0]["pointer"] == "/x"


def test_what_is_none_of_a_few_is_refused_with_those_there_are() -> None:
    body = {"action": "retri", "filter": "state:failed"}
    refused = said(api().post("/v1/jobs/bulk", body))

    assert [error["pointer"] for error in refused["errors"]] == ["/action"]
    assert refused["detail"].startswith('/action: "retri" is none of cancel, ')
    needless = said(api().post("/v1/jobs?wait=30s", {"task": ECHO}))
    assert needless["detail"] == "wait: is unknown: this takes no parameters"
    named = said(api().post("/v1/queues/default/resume", {"until": 1}))
    assert named["errors"][0]["detail"] == "unknown: leave it out"


def test_a_request_without_an_id_or_with_an_odd_one_gets_one() -> None:
    client = api("read")

    answers = [
        client.get("/v1/version"),
        client.get("/v1/version", X_Request_ID="a b"),
        client.get("/v1/version", X_Request_ID="x" * 200),
    ]

    for response in answers:
        assert re.fullmatch(r"[0-9a-f]{32}", response["X-Request-ID"])


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/", "/v1/nothing", "/v1/jobs/a/b/c", "/v1/..%2fadmin"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
def test_unknown_addresses_are_problems_too_and_closed(path: str, method: str) -> None:
    known, stranger = api("read").send(method, path), Client().generic(method, path)

    assert known.status_code == 404
    assert said(known)["code"] == "not_found"
    assert stranger.status_code == 401
    assert said(stranger)["code"] == "unauthenticated"


def test_an_unknown_method_is_405_with_those_that_there_are() -> None:
    response = api().send("PUT", "/v1/jobs")

    assert response.status_code == 405
    assert "POST" in response["Allow"]
    assert said(response)["code"] == "method_not_allowed"
    assert api().send("BREW", "/v1/jobs").status_code == 405


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'"text"',
        b"7",
        b"null",
        b"\xff{}",
        b'{"task": "a", "task": "b"}',
        b'{"priority": NaN}',
        b'{"priority": Infinity}',
        b'{"priority": ' + b"9" * 5_000 + b"}",
        b"[" * 100_000,
        b'{"args": ' + b"[" * 3_000 + b"]" * 3_000 + b"}",
        b'{"task": "a\\u0000b"}',
        b'{"args": ["\\ud800"]}',
        b'{"kwargs": {"a\\u0000": 1}}',
    ],
)
def test_a_body_that_is_no_fit_json_object_is_400(body: bytes) -> None:
    response = api().post("/v1/jobs", body)

    assert response.status_code == 400
    assert said(response)["code"] in ("invalid_json", "invalid_request")


def test_failure_087_a_body_that_is_too_large_is_413() -> None:
    large = b'{"task": "' + ECHO.encode() + b'", "args": ["' + b"x" * 300_000 + b'"]}'

    response = api().post("/v1/jobs", large)

    assert response.status_code == 413
    assert said(response)["code"] == "too_large"
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_a_body_of_another_type_is_415(kind: str) -> None:
    client = Client(headers={"Authorization": f"Bearer {make_token()}"})

    response = client.generic("POST", "/v1/jobs", b"task=a", content_type=kind)

    assert response.status_code == 415
    assert said(response)["code"] == "unsupported_media_type"


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"delay": 10**15}, "delay"),
        ({"delay": 1e308}, "delay"),
        ({"priority": 2**31}, "priority"),
        ({"priority": "1"}, "priority"),
        ({"priority": True}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"max_retries": -1}, "max_retries"),
        ({"max_retries": 10**30}, "max_retries"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": 1e308}, "timeout"),
        ({"timeout": "soon"}, "timeout"),
        ({"run_at": "9999-12-31T23:59:59-12:00"}, "run_at"),
        ({"run_at": "9999-12-31T23:59:59Z"}, "run_at"),
        ({"run_at": "0001-01-01T00:00:00+12:00"}, "run_at"),
        ({"run_at": "infinity"}, "run_at"),
        ({"run_at": "20000-01-01T00:00:00Z"}, "run_at"),
        ({"run_at": "2026-11-30T08:00:00"}, "run_at"),
        ({"run_at": 7}, "run_at"),
        ({"deadline": "yesterday"}, "deadline"),
        ({"queue": '"; drop table'}, "queue"),
        ({"queue": ""}, "queue"),
        ({"tags": ["a"] * 21}, "tags"),
        ({"tags": "vip"}, "tags"),
        ({"meta": {"x": "y" * 5_000}}, "meta"),
        ({"meta": []}, "meta"),
        ({"args": {}}, "args"),
        ({"kwargs": []}, "kwargs"),
        ({"unique": {"until": "never"}}, "unique"),
        ({"unique": {"for": 0}}, "unique"),
        ({"unique": {"nothing": 1}}, "unique"),
        ({"id": "7"}, "id"),
        ({"task": 7}, "task"),
        ({"type": "shell"}, "type"),
    ],
)
def test_failure_123_a_value_that_cannot_be_taken_is_refused_by_name(
    values: dict[str, Any], field: str
) -> None:
    response = api().post("/v1/jobs", {"task": ECHO, "args": [1], **values})

    assert response.status_code == 400, response.content
    assert field in said(response)["detail"].lower()
    assert not Job.objects.exists()


def test_failure_123_what_is_at_the_edge_has_one_meaning() -> None:
    past = api().post("/v1/jobs", {"task": ECHO, "args": [1], "delay": -5})
    once = api().post("/v1/jobs", {"task": ECHO, "args": [1], "max_retries": 0})

    assert (past.status_code, said(past)["state"]) == (201, "queued")
    assert (once.status_code, said(once)["max_retries"]) == (201, 0)


def test_failure_102_nan_in_an_argument_is_refused() -> None:
    response = api().post(
        "/v1/jobs", b'{"task": "' + ECHO.encode() + b'","args":[NaN]}'
    )

    assert response.status_code == 400


def test_failure_085_and_009_odd_text_is_sent_as_it_is() -> None:
    text = "NUL \\x00 and \\udce9 ‮ <script>"
    job = make_job("failed", error_class="E", error_message=text)

    response = api().get(f"/v1/jobs/{job.pk}")

    assert response.status_code == 200
    assert said(response)["error"] == text
    assert response["Content-Type"] == "application/json"
    assert response["X-Content-Type-Options"] == "nosniff"
    response.content.decode("ascii")


def test_failure_016_stored_script_is_sent_as_json_only() -> None:
    script = "<img src=x onerror=alert(1)></script>"
    make_job("failed", error_class=script, error_message=script, tags=[script])
    client = api()

    for path in ("/v1/jobs", "/v1/failures", f"/v1/{script}"):
        response = client.get(path, Accept="text/html")
        assert response["Content-Type"].partition(";")[0].endswith("json")
        assert response["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in response["Content-Security-Policy"]


def test_answers_are_kept_by_nobody_on_the_way() -> None:
    client = api()
    for response in (
        client.get("/v1/jobs"),
        client.get("/v1/jobs/7"),
        client.get("/v1/docs"),
        client.get("/metrics"),
        client.get("/readyz"),
        Client().get("/healthz"),
    ):
        assert response["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OperationalError("password=hunter2"), "unavailable"),
        (InterfaceError("x"), "unavailable"),
        (ReadTimeout(2), "too_slow"),
        (MissingKey("k", "is gone"), "key_missing"),
        (DecodeError("x"), "key_missing"),
        (KeyError("x"), "internal_error"),
    ],
)
def test_a_fault_is_told_without_its_inside(error: Exception, code: str) -> None:
    problem = problem_of(error)

    assert problem.code == code
    assert "hunter2" not in problem.detail


def test_a_statement_that_is_ended_is_too_slow() -> None:
    error = OperationalError("canceled")
    error.__cause__ = psycopg.errors.QueryCanceled()

    assert problem_of(error).code == "too_slow"


def test_a_fault_of_the_server_is_a_500_that_says_whom_to_ask(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(actor: object) -> None:
        raise KeyError("secret inside")

    monkeypatch.setattr(meta.tasks, "list_tasks", broken)
    client = Api(make_token(), Client(raise_request_exception=False))

    response = client.get("/v1/tasks", X_Request_ID="r-9")

    assert response.status_code == 500
    assert said(response)["request_id"] == "r-9"
    assert b"secret" not in response.content
    [record] = [each for each in caplog.records if each.msg == "request failed"]
    assert record.exc_info


def test_what_the_scheduler_refuses_of_a_schedule_is_said_by_field() -> None:
    response = api().post(
        "/v1/schedules", {"name": "n", "task": ECHO, "cron": "61 * * * *"}
    )

    assert response.status_code == 400
    assert said(response)["errors"][0]["pointer"] == "/cron"
    assert not Schedule.objects.exists()


def test_every_code_is_documented_and_used() -> None:
    page = (ROOT / "docs/reference/problems.md").read_text()
    folder = Path(relay.__file__).parent / "api"
    code = "".join(file.read_text() for file in folder.glob("*.py"))

    for name, kind in PROBLEMS.items():
        row = f"| `{name}` | {kind.status} | {kind.title} | {kind.remedy} |"
        assert row in page
        assert code.count(f'"{name}"') > 1, f"{name} is raised by nobody"
    assert page.count("\n| `") == len(PROBLEMS)


def test_a_request_is_logged_with_who_sent_it_and_without_what(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="relay.api")
    client = api("submit", name="ci")

    client.post("/v1/jobs", {"task": ECHO, "args": ["hidden"]}, X_Request_ID="r-1")

    [record] = [each for each in caplog.records if each.msg == "request answered"]
    fields = record.__dict__
    assert fields["event"] == "api.request"
    assert (fields["method"], fields["route"]) == ("POST", "jobs")
    assert (fields["status"], fields["request_id"]) == (201, "r-1")
    assert fields["actor"].startswith("token ci rly_")
    assert fields["token"] == str(ApiToken.objects.get().pk)
    assert fields["duration_s"] >= 0
    assert "hidden" not in repr(fields)

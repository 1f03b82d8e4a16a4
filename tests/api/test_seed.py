"""The calls of the seed, in the order of its text, byte by byte in method and path."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from relay.models import Job
from tests.api.factory import Api, api, make_worker
from tests.operations.factory import make_job

pytestmark = pytest.mark.django_db
SLASHES = pytest.mark.parametrize("slash", ["", "/"])

COMMAND = b"""{
  "type": "command",
  "payload": "echo hello",
  "priority": 1,
  "max_retries": 3,
  "timeout": "30s",
  "run_at": "2026-09-09T12:00:00Z"
}"""
# The same of a task: jobs that run a command come later.
OF_A_TASK: dict[str, Any] = {
    "task": "testproject.tasks.echo",
    "args": ["hello"],
    "priority": 1,
    "max_retries": 3,
    "timeout": "30s",
    "run_at": "2026-09-09T12:00:00Z",
}


def said(response: Any) -> Any:
    return json.loads(response.content)


@SLASHES
def test_healthz_needs_nobody_and_no_database(slash: str) -> None:
    with CaptureQueriesContext(connection) as queries:
        response = Client().get(f"/healthz{slash}")

    assert response.status_code == 200
    assert response["Content-Type"] == "application/json"
    assert said(response) == {"status": "ok"}
    assert len(queries) == 0


@SLASHES
def test_post_jobs_creates_a_job(slash: str) -> None:
    response = api("submit").post(f"/v1/jobs{slash}", OF_A_TASK)

    job = Job.objects.get()
    assert response.status_code == 201
    assert response["Content-Type"] == "application/json"
    assert response["Location"] == f"/v1/jobs/{job.pk}"
    document = said(response)
    assert document["id"] == str(job.pk)
    assert UUID(document["id"]).version == 7
    assert document["type"] == "testproject.tasks.echo"
    assert (document["state"], document["status"]) == ("queued", "queued")
    assert (document["priority"], document["max_retries"]) == (1, 3)
    assert document["timeout"] == 30.0
    assert document["run_at"].endswith("Z")
    assert job.timeout_ms == 30_000


@SLASHES
def test_post_jobs_of_a_command_is_refused_until_commands_are_there(
    slash: str,
) -> None:
    response = api().post(f"/v1/jobs{slash}", COMMAND)

    assert response.status_code == 403
    assert response["Content-Type"] == "application/problem+json"
    assert said(response)["code"] == "commands_disabled"
    assert not Job.objects.exists()


@SLASHES
def test_get_jobs_lists_them(slash: str) -> None:
    jobs = [make_job(state) for state in ("queued", "running", "failed")]

    response = api("read").get(f"/v1/jobs{slash}")

    document = said(response)
    assert response.status_code == 200
    assert {each["id"] for each in document["results"]} == {str(j.pk) for j in jobs}
    assert (document["next"], document["previous"]) == (None, None)
    assert {each["status"] for each in document["results"]} == {
        "queued",
        "running",
        "failed",
    }


@SLASHES
def test_get_job_returns_one(slash: str) -> None:
    job = make_job("completed", result="hello")

    response = api("read", "payload").get(f"/v1/jobs/{job.pk}{slash}")

    assert response.status_code == 200
    assert response["ETag"]
    assert said(response)["id"] == str(job.pk)
    assert said(response)["status"] == "completed"
    assert said(response)["result"] == "hello"


@SLASHES
def test_get_history_lists_what_happened(slash: str) -> None:
    client = api()
    client.post("/v1/jobs", {"task": "testproject.tasks.echo", "args": [1]})
    job = Job.objects.get()
    client.post(f"/v1/jobs/{job.pk}/cancel")

    response = client.get(f"/v1/jobs/{job.pk}/history{slash}")

    assert response.status_code == 200
    events = [each["event"] for each in said(response)]
    assert events == ["enqueued", "cancel"]


@SLASHES
def test_post_cancel_cancels_what_waits_and_asks_what_runs(slash: str) -> None:
    waiting, running, ended = (
        make_job(state) for state in ("queued", "running", "completed")
    )
    client = api()

    answers = [
        client.post(f"/v1/jobs/{job.pk}/cancel{slash}")
        for job in (waiting, running, ended)
    ]

    assert [each.status_code for each in answers] == [200, 202, 409]
    assert said(answers[0])["status"] == "cancelled"
    assert said(answers[1])["status"] == "running"
    assert said(answers[1])["cancel_requested_at"] is not None
    assert said(answers[2])["code"] == "conflict"
    assert said(answers[2])["state"] == "completed"


@SLASHES
def test_get_workers_lists_them(slash: str) -> None:
    worker = make_worker()

    response = api("read").get(f"/v1/workers{slash}")

    assert response.status_code == 200
    [found] = said(response)["results"]
    assert found["id"] == str(worker.pk)
    assert found["state"] == "running"


@SLASHES
def test_get_stats_returns_figures_of_queues_and_workers(slash: str) -> None:
    make_job()
    make_worker()

    response = api("read").get(f"/v1/stats{slash}")

    assert response.status_code == 200
    assert said(response)["status"]["queued"] == {"count": 1, "capped": False}
    assert said(response)["workers"]["running"] == 1


@SLASHES
def test_get_metrics_is_for_prometheus_and_closed(slash: str) -> None:
    opened = api("read").get(f"/metrics{slash}")
    closed = Client().get(f"/metrics{slash}")

    assert opened.status_code == 200
    assert opened["Content-Type"].startswith("text/plain")
    assert b"relay_build_info" in opened.content
    assert closed.status_code == 401


@SLASHES
def test_get_dashboard_is_a_page_for_who_is_logged_in(slash: str) -> None:
    browser = Client()
    browser.force_login(User.objects.create_superuser("ada"))

    opened = browser.get(f"/dashboard{slash}", follow=True)
    closed = Client().get("/dashboard/")

    assert opened.status_code == 200
    assert opened["Content-Type"].startswith("text/html")
    assert closed.status_code == 302
    assert "login" in closed["Location"]


def test_the_calls_one_after_the_other() -> None:
    client, worker = api(), make_worker()
    browser = client.client
    browser.force_login(User.objects.create_superuser("ada"))

    assert said(client.get("/healthz")) == {"status": "ok"}
    created = client.post("/v1/jobs", OF_A_TASK)
    place = created["Location"]
    assert [each["id"] for each in said(client.get("/v1/jobs"))["results"]] == [
        said(created)["id"]
    ]
    assert said(client.get(place))["status"] == "queued"
    assert [each["event"] for each in said(client.get(f"{place}/history"))] == [
        "enqueued"
    ]
    assert client.post(f"{place}/cancel").status_code == 200
    assert said(client.get(place))["status"] == "cancelled"
    assert [each["event"] for each in said(client.get(f"{place}/history"))] == [
        "enqueued",
        "cancel",
    ]
    [listed] = said(client.get("/v1/workers"))["results"]
    assert listed["id"] == str(worker.pk)
    figures = said(client.get("/v1/stats"))
    assert figures["status"]["cancelled"] == {"count": 1, "capped": False}
    assert figures["workers"]["running"] == 1
    assert b"relay_build_info{" in client.get("/metrics").content
    assert b"default" in browser.get("/dashboard/", follow=True).content


@pytest.mark.parametrize(
    "path", ["/v1/jobs/{}", "/v1/jobs/{}/history", "/v1/jobs/{}/cancel"]
)
def test_an_unknown_or_malformed_id_is_404(path: str) -> None:
    client: Api = api()
    method = "POST" if path.endswith("cancel") else "GET"
    unknown = "019aa000-0000-7000-8000-000000000000"

    for text in (unknown, "7", "no-id", "%00"):
        response = client.send(method, path.format(text))
        assert response.status_code == 404, text
        assert said(response)["code"] == "not_found"


def test_times_are_in_utc_whatever_the_zone_of_the_host(settings: Any) -> None:
    settings.TIME_ZONE = "America/Chicago"
    job = make_job()

    document = said(api("read").get(f"/v1/jobs/{job.pk}"))

    shown = datetime.fromisoformat(document["created_at"])
    assert document["created_at"].endswith("Z")
    assert shown.utcoffset() == timedelta(0)
    assert shown == job.created_at

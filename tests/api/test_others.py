"""Queues, workers, schedules, figures, and what the API says of itself."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.handlers.base import BaseHandler
from django.db import OperationalError, connection
from django.http import HttpResponse
from django.test import Client
from django.urls import include, path

from relay import health, metrics
from relay.api.jobs import JobView
from relay.ids import uuid7
from relay.models import BulkOperation, Job, Queue, Schedule, Worker
from tests.aliases import alias
from tests.api.factory import api, make_schedule, make_worker
from tests.operations.factory import make_job

pytestmark = pytest.mark.django_db
ECHO = "testproject.tasks.echo"
LATER = "2999-01-01T00:00:00Z"

# The same under another place, for one test.
urlpatterns = [path("ops/jobs/", include("relay.urls"))]


def said(response: Any) -> Any:
    return json.loads(response.content)


# --- queues --------------------------------------------------------------------------


def test_a_queue_is_paused_and_resumed() -> None:
    client = api()

    paused = client.post("/v1/queues/default/pause", {"until": LATER})
    shown = client.get("/v1/queues/default")
    resumed = client.post("/v1/queues/default/resume")

    assert (said(paused)["paused"], said(paused)["paused_until"]) == (True, LATER)
    assert said(shown)["paused"] is True
    assert said(resumed)["paused"] is False
    assert client.post("/v1/queues/none/pause").status_code == 404
    assert client.post("/v1/queues/%00/pause").status_code == 404
    assert client.get("/v1/queues/none").status_code == 404


def test_a_queue_is_ordered() -> None:
    Queue.objects.create(name="mail")
    client = api()

    ordered = client.patch("/v1/queues/mail", {"policy": "fifo"})
    wrong = client.patch("/v1/queues/mail", {"policy": "lifo"})

    assert said(ordered)["policy"] == "fifo"
    assert wrong.status_code == 400
    assert client.patch("/v1/queues/mail", {}).status_code == 400
    assert "mail" in {q["name"] for q in said(client.get("/v1/queues"))["results"]}


def test_a_moment_is_marked_once_for_a_key() -> None:
    client = api()
    body = {"label": "deploy 1.4"}

    made = client.post("/v1/marks", body, Idempotency_Key="deploy-1.4")
    again = client.post("/v1/marks", body, Idempotency_Key="deploy-1.4")

    assert made.status_code == 201
    assert said(made)["label"] == "deploy 1.4"
    assert said(again) == said(made)
    assert said(client.get("/v1/marks?span=24h"))["results"] == [said(made)]
    assert client.get("/v1/marks?span=91d").status_code == 400
    for wrong in ("", " ", "two\nlines", "x" * 101, 4):
        assert client.post("/v1/marks", {"label": wrong}).status_code == 400


def test_a_queue_is_weighed() -> None:
    Queue.objects.create(name="mail")
    client = api()

    weighed = client.patch("/v1/queues/mail", {"weight": 6})
    both = client.patch("/v1/queues/mail", {"weight": 7, "policy": "fifo"})

    assert (said(weighed)["weight"], said(weighed)["policy"]) == (6, "priority")
    assert (said(both)["weight"], said(both)["policy"]) == (7, "fifo")
    for wrong in (0, 1_001, "6", 1.5, None):
        refused = client.patch("/v1/queues/mail", {"weight": wrong})
        assert refused.status_code == 400, wrong
    assert client.patch("/v1/queues/none", {"weight": 2}).status_code == 404


def test_a_queue_is_purged_in_the_background() -> None:
    make_job()

    response = api().post("/v1/queues/default/purge", {"expected": 1})

    assert response.status_code == 202
    assert said(response)["action"] == "delete"
    assert BulkOperation.objects.count() == 1


# --- workers -------------------------------------------------------------------------


def test_a_worker_is_found_by_its_id_or_name() -> None:
    worker = make_worker()
    make_worker(name="other", state="stopped")
    client = api("read")

    by_id = said(client.get(f"/v1/workers/{worker.pk}"))
    by_name = said(client.get("/v1/workers/host-1"))
    stopped = said(client.get("/v1/workers?state=stopped"))["results"]

    assert by_id["id"] == by_name["id"] == str(worker.pk)
    assert [each["name"] for each in stopped] == ["other"]
    assert client.get("/v1/workers?state=bogus").status_code == 400
    assert client.get(f"/v1/workers/{uuid7()}").status_code == 404


def test_a_worker_is_asked_to_be_quiet_to_go_on_and_to_stop() -> None:
    worker, client = make_worker(), api()
    asked = []
    for act in ("quiet", "resume", "shutdown"):
        response = client.post(f"/v1/workers/{worker.pk}/{act}")
        assert response.status_code == 202, response.content
        asked.append(said(response)["asked"])

    again = client.post(f"/v1/workers/{worker.pk}/quiet")

    assert asked == ["quiet", "resume", "stop"]
    assert again.status_code == 409
    assert client.post(f"/v1/workers/{uuid7()}/quiet").status_code == 404


def test_the_row_of_a_worker_that_has_ended_is_deleted() -> None:
    ended, alive = make_worker(name="a", state="lost"), make_worker(name="b")
    client = api()

    deleted = client.delete("/v1/workers/a")
    refused = client.delete(f"/v1/workers/{alive.pk}")

    assert deleted.status_code == 204
    assert client.delete(f"/v1/workers/{ended.pk}").status_code == 404
    assert (refused.status_code, said(refused)["code"]) == (409, "conflict")
    assert list(Worker.objects.values_list("name", flat=True)) == ["b"]


# --- schedules -----------------------------------------------------------------------


def test_a_schedule_is_made_shown_edited_and_deleted() -> None:
    client = api()
    body = {
        "name": "nightly",
        "task": ECHO,
        "args": ["hello"],
        "cron": "0 3 * * *",
        "timezone": "Europe/Rome",
        "catch_up_window": "2h",
        "spread": 30,
    }

    made = client.post("/v1/schedules", body)
    again = client.post("/v1/schedules", body)
    edited = client.patch("/v1/schedules/nightly", {"cron": None, "every": "10m"})
    paused = client.post("/v1/schedules/nightly/pause")
    resumed = client.post("/v1/schedules/nightly/resume")
    listed = client.get("/v1/schedules")
    fires = client.get("/v1/schedules/nightly/next?n=3")

    assert made.status_code == 201, made.content
    assert made["Location"] == "/v1/schedules/nightly"
    assert (said(made)["catch_up_window"], said(made)["spread"]) == (7200.0, 30.0)
    assert again.status_code == 409
    assert (said(edited)["every"], said(edited)["cron"]) == (600.0, None)
    assert (said(paused)["enabled"], said(resumed)["enabled"]) == (False, True)
    assert [each["name"] for each in said(listed)["results"]] == ["nightly"]
    assert len(said(fires)) == 3
    assert client.delete("/v1/schedules/nightly").status_code == 204
    assert not Schedule.objects.exists()
    assert client.get("/v1/schedules/nightly").status_code == 404
    assert client.delete("/v1/schedules/nightly").status_code == 404


def test_a_schedule_of_code_is_only_paused() -> None:
    make_schedule(source="code")
    client = api()

    edited = client.patch("/v1/schedules/nightly", {"cron": "0 4 * * *"})
    deleted = client.delete("/v1/schedules/nightly")
    paused = client.post("/v1/schedules/nightly/pause")

    assert (edited.status_code, deleted.status_code) == (409, 409)
    assert paused.status_code == 200


def test_a_schedule_is_run_now() -> None:
    make_schedule()

    response = api().post("/v1/schedules/nightly/trigger")

    job = Job.objects.get()
    assert response.status_code == 201, response.content
    assert response["Location"] == f"/v1/jobs/{job.pk}"
    assert said(response)["task"] == ECHO


def test_when_a_schedule_would_run_is_told_without_keeping_one() -> None:
    client = api("read")

    good = client.post(
        "/v1/schedules/preview",
        {"cron": "30 0 3 * * *", "timezone": "Europe/Rome", "n": 2},
    )
    bad = client.post("/v1/schedules/preview", {"cron": "0 3 * *"})
    none = client.post("/v1/schedules/preview", {})

    assert good.status_code == 200, good.content
    assert [each["local"][11:19] for each in said(good)] == ["03:00:30"] * 2
    assert (bad.status_code, none.status_code) == (400, 400)
    assert not Schedule.objects.exists()


@pytest.mark.parametrize(
    ("values", "pointer"),
    [
        ({"cron": "* * *"}, "/cron"),
        ({"timezone": "Mars/Base"}, "/timezone"),
        ({"task": ""}, "/task"),
        ({"catch_up": "some"}, "/catch_up"),
        ({"every": "1ms", "cron": None}, "/every"),
        ({"every": 1e12, "cron": None}, "/every"),
        ({"priority": 101}, "/priority"),
        ({"bogus": 1}, "/bogus"),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused_by_field(
    values: dict[str, Any], pointer: str
) -> None:
    body = {"name": "n", "task": ECHO, "args": [1], "cron": "0 3 * * *", **values}

    response = api().post("/v1/schedules", body)

    assert response.status_code == 400, response.content
    assert pointer in {each["pointer"] for each in said(response)["errors"]}
    assert not Schedule.objects.exists()


# --- figures and the rest ------------------------------------------------------------


def test_figures_tasks_the_record_and_the_system_are_shown() -> None:
    client = api()
    client.post("/v1/queues/default/pause")

    series = client.get("/v1/stats/series?span=10m&step=1m")
    totals = client.get("/v1/stats/totals?span=24h&queue=default")
    tasks = said(client.get("/v1/tasks"))["results"]
    one = said(client.get(f"/v1/tasks/{ECHO}"))
    record = said(client.get("/v1/audit?subject=queue"))["results"]
    system = said(client.get("/v1/system"))

    assert (series.status_code, totals.status_code) == (200, 200)
    assert len(said(series)["results"]) >= 10
    assert one in tasks
    assert one["arguments"]
    assert client.get("/v1/tasks/os.system").status_code in (400, 404)
    assert [each["operation"] for each in record] == ["pause_queue"]
    assert system["database"] == "default"
    assert client.get("/v1/stats/series?step=1s").status_code == 400
    assert client.get("/v1/stats/series?span=91d").status_code == 400


def test_who_calls_and_what_runs_is_told() -> None:
    who = said(api("submit", queues=["mail"], name="ci").get("/v1/whoami"))
    version = said(api("submit").get("/v1/version"))

    assert who["name"].startswith("token ci rly_")
    assert who["permissions"] == ["enqueue_job"]
    assert who["queues"] == ["mail"]
    assert re.match(r"\d+\.\d+", version["version"])


def test_readyz_says_whether_the_database_answers() -> None:
    response = api("read").get("/readyz")

    assert response.status_code == 200
    assert said(response)["status"] == "ok"


def test_readyz_is_503_without_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(secret: str) -> None:
        raise OperationalError("away")

    client = api("read")
    monkeypatch.setattr(health, "caller_of_token", away)

    response = client.get("/readyz")

    assert response.status_code == 503
    assert said(response)["status"] == "unavailable"
    assert Client().get("/healthz").status_code == 200


def test_metrics_are_those_of_the_process_and_of_the_database() -> None:
    make_job()
    client = api("read")

    plain = client.get("/metrics")
    other = client.get("/metrics", Accept="application/openmetrics-text")

    assert b"relay_queue_latency_seconds" in plain.content
    assert other["Content-Type"].startswith("application/openmetrics-text")
    assert client.post("/metrics").status_code == 405
    assert api("submit").get("/metrics").status_code == 403


def test_a_token_for_some_queues_is_not_told_the_figures_of_all() -> None:
    client = api("read", queues=["mail"])

    answers = [client.get(path).status_code for path in ("/metrics", "/v1/stats")]

    assert answers == [403, 403]
    assert client.get("/readyz").status_code == 200


def test_metrics_without_their_extra_are_404(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "is_available", lambda: False)

    response = api("read").get("/metrics")

    assert response.status_code == 404
    assert "django-relay[metrics]" in said(response)["detail"]


def test_an_api_that_is_not_installed_says_what_to_install(rf: Any) -> None:
    response = health.api_missing(rf.get("/v1/jobs"))

    assert response.status_code == 404
    assert "django-relay[api]" in said(response)["detail"]


@pytest.mark.urls(__name__)
def test_all_addresses_follow_the_place_that_the_host_gives_them() -> None:
    client = api()
    for _ in range(2):
        make_job()

    made = client.post("/ops/jobs/v1/jobs", {"task": ECHO, "args": [1]})
    page = said(client.get("/ops/jobs/v1/jobs?limit=1"))
    wrong = said(client.get("/ops/jobs/v1/jobs/7"))
    document = said(client.get("/ops/jobs/v1/openapi.json"))
    docs = client.get("/ops/jobs/v1/docs").content.decode()

    assert made["Location"].startswith("/ops/jobs/v1/jobs/")
    assert page["next"].startswith("/ops/jobs/v1/jobs?")
    assert wrong["type"] == "/ops/jobs/v1/docs#not_found"
    assert document["servers"] == [{"url": "/ops/jobs"}]
    assert "/ops/jobs/v1/openapi.json" in docs


def test_the_docs_are_one_page_that_loads_nothing() -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))

    response = client.get("/v1/docs")

    text = response.content.decode()
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/html")
    assert "/v1/jobs/{job_id}/cancel" in text
    assert 'id="duplicate_job"' in text
    assert not re.search(r"<(script|link|img|iframe|style)|style=| on\w+=", text)


def test_times_that_python_cannot_hold_are_sent_all_the_same() -> None:
    job = make_job("scheduled", run_at=datetime(9999, 12, 1, tzinfo=UTC))

    response = api("read").get(f"/v1/jobs/{job.pk}")

    assert said(response)["run_at"] == "9999-12-01T00:00:00Z"


def test_a_schedule_with_a_time_that_python_cannot_hold_is_stopped_and_deleted() -> (
    None
):
    schedule, client = make_schedule(), api()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE relay_schedule SET starts_at = '-infinity'")
    one = f"/v1/schedules/{schedule.name}"

    answers = [
        client.post(f"{one}/pause"),
        client.post(f"{one}/resume"),
        client.patch(one, {"enabled": False}),
        client.patch(one, {"priority": 3}),
        client.patch(one, {"starts_at": None}),
        client.delete(one),
    ]

    assert [each.status_code for each in answers] == [200, 200, 200, 409, 409, 204]


def test_no_database_holds_a_request_in_a_transaction() -> None:
    with alias("jobs", ATOMIC_REQUESTS=True):
        views = (JobView.as_view(), health._plain(lambda request: HttpResponse()))

        made = [BaseHandler().make_view_atomic(view) for view in views]

    assert made == list(views)

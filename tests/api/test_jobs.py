"""Jobs over REST beyond the seed's calls."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection

from relay.api import throttle
from relay.ids import uuid7
from relay.models import Attempt, Audit, BulkOperation, Job, Output
from relay.operations.bulk import run_bulk
from tests.api.factory import api
from tests.operations.factory import make_job
from tests.waiting import until

pytestmark = pytest.mark.django_db
ECHO = "testproject.tasks.echo"
LATER = "2999-01-01T00:00:00Z"


def said(response: Any) -> Any:
    return json.loads(response.content)


def enqueue(body: dict[str, Any], *scopes: str) -> Any:
    return api(*scopes).post("/v1/jobs", {"task": ECHO, "args": [1], **body})


# --- enqueue -------------------------------------------------------------------------


def test_the_wide_body_says_all_that_enqueue_takes() -> None:
    job_id = str(uuid7())

    response = enqueue(
        {
            "id": job_id,
            "queue": "mail",
            "priority": -5,
            "max_retries": 0,
            "timeout": "1h30m",
            "delay": 60,
            "deadline": LATER,
            "unique": {"key": "k", "for": "1h"},
            "tags": ["vip"],
            "meta": {"tenant": 7},
        }
    )

    assert response.status_code == 201, response.content
    document = said(response)
    assert document["id"] == job_id
    assert document["queue"] == "mail"
    assert (document["priority"], document["max_retries"]) == (-5, 0)
    assert (document["state"], document["status"]) == ("scheduled", "queued")
    assert document["timeout"] == 5400.0
    assert document["deadline_at"] == LATER
    assert document["tags"] == ["vip"]
    carried = {"request_id": response.headers["X-Request-ID"]}
    assert document["meta"] == {"tenant": 7, "otel": carried}
    assert Job.objects.get().unique_key is not None


def test_arguments_are_bound_as_the_function_takes_them() -> None:
    good = api().post(
        "/v1/jobs", {"task": "testproject.tasks.add", "kwargs": {"a": 1, "b": 2}}
    )
    bad = api().post("/v1/jobs", {"task": "testproject.tasks.add", "args": [1]})

    assert good.status_code == 201
    assert Job.objects.get().args == {"args": [], "kwargs": {"a": 1, "b": 2}}
    assert bad.status_code == 400
    assert said(bad)["code"] == "invalid_request"


def test_a_duplicate_is_answered_with_the_job_that_is_there_or_refused() -> None:
    first = enqueue({"unique": {"key": "k"}})
    again = enqueue({"unique": {"key": "k"}})
    refused = enqueue({"unique": {"key": "k", "on_conflict": "raise"}})

    assert (first.status_code, again.status_code) == (201, 200)
    assert said(again)["id"] == said(first)["id"]
    assert refused.status_code == 409
    assert said(refused)["code"] == "duplicate_job"
    assert said(refused)["job_id"] == said(first)["id"]


@pytest.mark.parametrize(
    "task",
    ["os.system", "builtins.eval", "relay.bulk", "testproject.tasks.__name__", "x y"],
)
def test_only_registered_tasks_are_enqueued(task: str) -> None:
    response = api().post("/v1/jobs", {"task": task, "args": ["true"]})

    assert response.status_code == 400
    assert not Job.objects.exists()


def test_a_caller_without_the_payload_sees_masks() -> None:
    response = enqueue({"args": ["hidden"]}, "submit", "read")

    assert response.status_code == 201
    assert b"hidden" not in response.content
    assert said(response)["args"] == "•••"


def test_an_enqueue_is_on_record_with_its_request_and_reason() -> None:
    api("submit", name="ci").post(
        "/v1/jobs",
        {"task": ECHO, "args": [1]},
        X_Request_ID="r-7",
        Relay_Reason="why\nnot",
    )

    record = Audit.objects.get(operation="enqueue_job")
    assert record.actor.startswith("token ci rly_")
    assert (record.source, record.request_id) == ("api", "r-7")
    assert "\n" not in str(record.reason)
    assert record.address == "127.0.0.1"


def test_a_batch_is_enqueued_in_order_and_whole_or_not_at_all() -> None:
    client = api("submit")
    calls = [{"task": ECHO, "args": [n], "priority": n} for n in range(5)]

    good = client.post("/v1/jobs/batch", {"jobs": calls})
    bad = client.post("/v1/jobs/batch", {"jobs": [*calls, {"task": "none"}]})

    assert good.status_code == 201
    made = [Job.objects.get(pk=each["id"]).priority for each in said(good)]
    assert made == [0, 1, 2, 3, 4]
    assert bad.status_code == 400
    assert said(bad)["errors"][0]["pointer"] == "/jobs/5/task"
    assert Job.objects.count() == 5
    assert Audit.objects.filter(operation="enqueue_jobs").count() == 5


def test_a_batch_has_a_thousand_jobs_at_most(settings: Any) -> None:
    settings.RELAY = {"API": {"MAX_BODY_BYTES": 1_000_000}}
    client = api("submit")

    most = client.post("/v1/jobs/batch", {"jobs": [{"task": ECHO, "args": [1]}] * 1000})
    more = client.post("/v1/jobs/batch", {"jobs": [{"task": ECHO, "args": [1]}] * 1001})
    none = client.post("/v1/jobs/batch", {"jobs": []})

    assert [each.status_code for each in (most, more, none)] == [201, 400, 400]
    assert Job.objects.count() == 1000


# --- lists ---------------------------------------------------------------------------


def test_a_list_is_paged_by_keys_there_and_back() -> None:
    jobs = [make_job() for _ in range(5)]
    client = api("read")

    first = said(client.get("/v1/jobs?limit=2&q=task:tests.*"))
    second = said(client.get(first["next"]))
    third = said(client.get(second["next"]))
    back = said(client.get(second["previous"]))

    shown = [each["id"] for page in (first, second, third) for each in page["results"]]
    # Ids made within one millisecond are in no order.
    assert shown == sorted((str(job.pk) for job in jobs), reverse=True)
    assert third["next"] is None
    assert first["previous"] is None
    assert back["results"] == first["results"]
    assert first["next"].startswith("/v1/jobs?")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("state=failed", {"failed"}),
        ("state=failed,queued", {"failed", "queued"}),
        ("state=dead", {"failed"}),
        ("queue=mail", {"mail"}),
        ("tag=vip", {"vip"}),
        ("q=" + quote("queue:mail"), {"mail"}),
        ("error=ValueError", {"failed"}),
        ("args.user=7", {"vip"}),
    ],
)
def test_a_list_is_filtered_as_the_filter_language_says(
    query: str, found: set[str]
) -> None:
    jobs = {
        "queued": make_job(),
        "failed": make_job("failed", error_class="ValueError"),
        "mail": make_job("scheduled", queue="mail"),
        "vip": make_job(
            "scheduled", tags=["vip"], args={"args": [], "kwargs": {"user": 7}}
        ),
    }

    document = said(api("read", "payload").get(f"/v1/jobs?{query}"))
    count = said(api("read", "payload").get(f"/v1/jobs/count?{query}"))

    assert {each["id"] for each in document["results"]} == {
        str(jobs[name].pk) for name in found
    }
    assert count == {"count": len(found), "capped": False}


def test_arguments_are_asked_for_with_view_payload_only() -> None:
    response = api("read").get("/v1/jobs?args.user=7")

    assert response.status_code == 403
    assert "view_payload" in said(response)["detail"]


@pytest.mark.parametrize(
    "query",
    [
        "state=bogus",
        "bogus=1",
        "limit=0",
        "limit=501",
        "limit=1000000",
        "limit=x",
        "limit=",
        "cursor=x",
        "cursor=%00",
        "state=queued&state=failed",
        "_connector=OR",
        "state__in=x",
        "args=1",
        "created_after=yesterday",
        "q=%22",
        "id=7",
        "ordering=-args",
    ],
)
def test_failure_136_what_a_list_cannot_be_asked_is_400(query: str) -> None:
    response = api("read").get(f"/v1/jobs?{query}")

    assert response.status_code == 400
    assert said(response)["errors"][0]["pointer"] or said(response)["detail"]


# --- one -----------------------------------------------------------------------------


def test_one_job_is_sent_again_only_if_it_has_changed() -> None:
    job, client = make_job(), api()
    first = client.get(f"/v1/jobs/{job.pk}")

    same = client.get(f"/v1/jobs/{job.pk}", If_None_Match=first["ETag"])
    client.patch(f"/v1/jobs/{job.pk}", {"priority": 9})
    other = client.get(f"/v1/jobs/{job.pk}", If_None_Match=first["ETag"])

    assert (same.status_code, same.content) == (304, b"")
    assert same["ETag"] == first["ETag"]
    assert other.status_code == 200
    assert other["ETag"] != first["ETag"]


def test_one_job_comes_with_what_is_asked_for() -> None:
    job, client = make_job("failed"), api()
    Attempt.objects.create(job=job, attempt=1, outcome="failed", error_class="E")
    Output.objects.create(job=job, attempt=1, text="line")

    whole = said(client.get(f"/v1/jobs/{job.pk}?include=attempts,history,logs"))

    assert whole["attempts"] == said(client.get(f"/v1/jobs/{job.pk}/attempts"))
    assert whole["history"] == said(client.get(f"/v1/jobs/{job.pk}/history"))
    assert whole["logs"] == said(client.get(f"/v1/jobs/{job.pk}/logs"))
    assert whole["logs"][0]["text"] == "line"
    assert said(client.get(f"/v1/jobs/{job.pk}/logs?after=1")) == []
    assert client.get(f"/v1/jobs/{job.pk}?include=args").status_code == 400


def test_head_is_get_without_the_body() -> None:
    job = make_job()

    response = api("read").send("HEAD", f"/v1/jobs/{job.pk}")

    assert (response.status_code, response.content) == (200, b"")
    assert response["ETag"]


def test_options_tells_the_methods() -> None:
    response = api("read").send("OPTIONS", "/v1/jobs")

    assert response.status_code == 204
    assert set(response["Allow"].split(", ")) == {"GET", "POST", "HEAD", "OPTIONS"}


def test_why_a_job_does_not_run_is_told() -> None:
    job = make_job("scheduled", run_at=datetime(2999, 1, 1, tzinfo=UTC))

    document = said(api("read").get(f"/v1/jobs/{job.pk}/why"))

    assert set(document) == {"cause", "summary", "remedy", "detail"}
    assert document["cause"]


def test_states_are_counted() -> None:
    make_job("failed")

    document = said(api("read").get("/v1/jobs/states"))

    assert document["failed"] == {"count": 1, "capped": False}


def test_waiting_for_a_job_that_has_ended_takes_no_time() -> None:
    job = make_job("completed")

    response = api("read").get(f"/v1/jobs/{job.pk}?wait=30s")

    assert response.status_code == 200
    assert said(response)["status"] == "completed"


@pytest.mark.parametrize("wait", ["61s", "x", "-1s", "1e9", ""])
def test_a_wait_is_a_minute_at_most(wait: str) -> None:
    response = api("read").get(f"/v1/jobs/{make_job().pk}?wait={wait}")

    assert response.status_code == 400


@pytest.mark.django_db(transaction=True)
def test_a_wait_ends_with_the_job_or_with_the_time() -> None:
    job, client = make_job(), api()
    early = client.get(f"/v1/jobs/{job.pk}?wait=0.01s".replace("0.01s", "10ms"))
    answers: list[Any] = []

    def wait() -> None:
        try:
            answers.append(client.get(f"/v1/jobs/{job.pk}?wait=60s"))
        finally:
            connection.close()

    thread = threading.Thread(target=wait)
    thread.start()
    api().post(f"/v1/jobs/{job.pk}/cancel")
    until(lambda: answers, what="the answer that was put off")
    thread.join()

    assert said(early)["status"] == "queued"
    assert said(answers[0])["status"] == "cancelled"


# --- acts ----------------------------------------------------------------------------


def test_acts_on_one_job_answer_with_it() -> None:
    failed, later = make_job("failed"), make_job("scheduled")
    client = api("operate")

    retried = client.post(f"/v1/jobs/{failed.pk}/retry")
    run = client.post(f"/v1/jobs/{later.pk}/run-now")
    replayed = client.post(f"/v1/jobs/{make_job('completed').pk}/replay")
    wrong = client.post(f"/v1/jobs/{later.pk}/retry")

    assert [r.status_code for r in (retried, run, replayed, wrong)] == [
        200,
        200,
        201,
        409,
    ]
    assert said(retried)["state"] == "queued"
    assert said(run)["state"] == "queued"
    assert replayed["Location"] == f"/v1/jobs/{said(replayed)['id']}"


def test_a_replay_may_have_other_arguments() -> None:
    job = make_job("failed", task=ECHO, args={"args": [1], "kwargs": {}})

    response = api().post(f"/v1/jobs/{job.pk}/replay", {"args": [2]})

    new = Job.objects.get(pk=said(response)["id"])
    assert new.args["args"] == [2]
    assert new.replay_of == job.pk


def test_a_job_that_waits_is_edited() -> None:
    job = make_job(task=ECHO, args={"args": [1], "kwargs": {}}, timeout_ms=5)

    response = api().patch(
        f"/v1/jobs/{job.pk}",
        {
            "args": [2],
            "queue": "default",
            "priority": 3,
            "max_retries": 1,
            "timeout": None,
            "deadline": "2999-01-02T00:00:00Z",
            "run_at": LATER,
            "tags": ["a"],
        },
    )

    assert response.status_code == 200, response.content
    job.refresh_from_db()
    assert (job.args["args"], job.priority, job.timeout_ms) == ([2], 3, None)
    assert said(response)["state"] == "scheduled"


def test_an_edit_is_refused_if_the_job_has_changed_meanwhile() -> None:
    job, client = make_job(), api()
    tag = client.get(f"/v1/jobs/{job.pk}")["ETag"]
    first = client.patch(f"/v1/jobs/{job.pk}", {"priority": 1}, If_Match=tag)

    second = client.patch(f"/v1/jobs/{job.pk}", {"priority": 2}, If_Match=tag)
    deleted = client.delete(f"/v1/jobs/{job.pk}", If_Match=tag)
    third = client.patch(f"/v1/jobs/{job.pk}", {"priority": 3}, If_Match=second["ETag"])

    assert [r.status_code for r in (first, second, deleted, third)] == [
        200,
        412,
        412,
        200,
    ]
    assert said(second)["code"] == "precondition_failed"
    job.refresh_from_db()
    assert job.priority == 3


def test_what_runs_is_neither_edited_nor_deleted() -> None:
    job, client = make_job("running"), api()

    edited = client.patch(f"/v1/jobs/{job.pk}", {"priority": 1})
    deleted = client.delete(f"/v1/jobs/{job.pk}")

    assert (edited.status_code, deleted.status_code) == (409, 409)


def test_a_job_is_deleted() -> None:
    job = make_job("failed")

    response = api().delete(f"/v1/jobs/{job.pk}")

    assert (response.status_code, response.content) == (204, b"")
    assert not Job.objects.exists()


# --- many ----------------------------------------------------------------------------


def test_an_act_over_a_filter_is_counted_before_and_runs_in_the_background() -> None:
    for _ in range(3):
        make_job("failed")
    client = api()
    body = {"action": "retry", "filter": "state:failed"}

    counted = client.post("/v1/jobs/bulk?dry_run=true", body)
    started = client.post("/v1/jobs/bulk", {**body, "expected": 3})
    refused = client.post("/v1/jobs/bulk", {**body, "expected": 1})

    bulk = BulkOperation.objects.get()
    assert (counted.status_code, said(counted)) == (200, {"count": 3, "capped": False})
    assert started.status_code == 202
    assert started["Location"] == f"/v1/bulk/{bulk.pk}"
    assert said(started)["id"] == str(bulk.pk)
    assert refused.status_code == 409
    assert said(client.get(started["Location"]))["action"] == "retry"
    assert said(client.get("/v1/bulk"))["results"][0]["id"] == str(bulk.pk)
    cancelled = client.post(f"/v1/bulk/{bulk.pk}/cancel")
    assert said(cancelled)["state"] == "cancelled"
    assert client.post(f"/v1/bulk/{bulk.pk}/cancel").status_code == 409


def test_a_count_of_what_is_listed_is_refused_and_no_act() -> None:
    job = make_job()
    body = {"action": "cancel", "ids": [str(job.pk)]}

    response = api().post("/v1/jobs/bulk?dry_run=true", body)

    assert response.status_code == 400
    assert said(response)["errors"][0]["pointer"] == "dry_run"
    job.refresh_from_db()
    assert job.state == "queued"


@pytest.mark.parametrize(
    ("action", "state"),
    [
        ("cancel", "queued"),
        ("retry", "failed"),
        ("replay", "completed"),
        ("run_now", "scheduled"),
        ("delete", "failed"),
    ],
)
def test_an_act_on_some_jobs_says_of_each_what_became_of_it(
    action: str, state: str
) -> None:
    job, running = make_job(state), make_job("running")
    ids = [str(job.pk), str(running.pk)]

    response = api().post("/v1/jobs/bulk", {"action": action, "ids": ids})

    document = said(response)
    assert response.status_code == 200
    assert document["done"] == [str(job.pk)]
    if action == "cancel":
        assert document["asked"] == [str(running.pk)]
    else:
        assert [each["id"] for each in document["skipped"]] == [str(running.pk)]
        assert document["skipped"][0]["reason"]


@pytest.mark.parametrize(
    "body",
    [
        {"action": "retry"},
        {"action": "drop", "filter": "state:failed"},
        {"action": "retry", "filter": ""},
        {"action": "retry", "filter": "state:bogus"},
        {"action": "retry", "filter": "state:failed", "ids": []},
        {"action": "retry", "ids": ["7"]},
        {"action": "retry", "ids": [str(uuid7())] * 101},
        {"action": "retry", "filter": "state:failed", "expected": -1},
        {"action": "retry", "filter": "state:failed", "expected": 2**40},
    ],
)
def test_a_bulk_act_that_cannot_be_meant_is_refused(body: dict[str, Any]) -> None:
    response = api().post("/v1/jobs/bulk", body)

    assert response.status_code == 400, response.content
    assert not BulkOperation.objects.exists()


def test_failures_are_shown_in_groups_and_run_again() -> None:
    for _ in range(2):
        make_job("failed", error_class="ValueError", error_message="no such user")
    client = api()

    [group] = said(client.get("/v1/failures"))["results"]
    answer = client.post(f"/v1/failures/{group['id']}/retry", {"expected": 2})

    assert group["count"] == 2
    assert said(client.get("/v1/dlq"))["results"] == [group]
    assert answer.status_code == 202
    assert BulkOperation.objects.get().action == "retry"
    assert client.post("/v1/failures/none/replay").status_code == 404


def test_an_act_on_a_group_of_failures_is_about_no_other() -> None:
    messages = ('no "a", sorry', 'also no "a", sorry', "sorry", 'no ""a"", sorry')
    jobs = {text: make_job("failed", error_message=text) for text in messages}
    client = api()

    for group in said(client.get("/v1/failures"))["results"]:
        client.post(f"/v1/failures/{group['id']}/retry", {"expected": 1})
        run_bulk(str(BulkOperation.objects.latest("id").pk))
        changed = Job.objects.filter(state="queued", task="tests.noop")
        assert [job.pk for job in changed] == [jobs[group["error"]].pk]
        changed.update(state="cancelled")


def test_a_bucket_of_submits_is_emptied_and_filled_again(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [time.time()]
    monkeypatch.setattr(throttle, "time", SimpleNamespace(time=lambda: now[0]))
    settings.RELAY = {"API": {"SUBMIT_RATE": 1, "SUBMIT_BURST": 3}}
    settings.CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
            "LOCATION": "submits",
        }
    }
    client, other = api("submit"), api("submit", name="other")
    body = {"task": ECHO, "args": [1]}

    answers = [client.post("/v1/jobs", body) for _ in range(4)]

    assert [each.status_code for each in answers] == [201, 201, 201, 429]
    assert int(answers[-1]["Retry-After"]) >= 1
    assert "submit" in answers[-1]["RateLimit"]
    assert said(answers[-1])["code"] == "too_many_requests"
    assert other.post("/v1/jobs", body).status_code == 201
    assert client.post("/v1/jobs/batch", {"jobs": [body] * 4}).status_code == 429
    now[0] += 1.0
    again = [client.post("/v1/jobs", body) for _ in range(2)]
    assert [each.status_code for each in again] == [201, 429]


def test_spans_are_read_as_seconds_words_and_iso_8601() -> None:
    for given, seconds in (
        (90, 90.0),
        (1.5, 1.5),
        ("90s", 90.0),
        ("1h30m", 5400.0),
        ("500ms", 0.5),
        ("PT1M30S", 90.0),
        ("P1D", 86_400.0),
    ):
        assert said(enqueue({"timeout": given}))["timeout"] == seconds
    assert timedelta(milliseconds=Job.objects.first().timeout_ms or 0)

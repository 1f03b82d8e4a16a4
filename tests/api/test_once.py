"""Idempotency-Key: done once, whoever loses the answer."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F

from relay.engine.connection import connect
from relay.engine.prune import prune_requests
from relay.models import ApiToken, BulkOperation, IdempotentRequest, Job
from tests.api.factory import Api, api, make_schedule, make_token
from tests.operations.factory import make_job

pytestmark = pytest.mark.django_db
BODY = {"task": "testproject.tasks.echo", "args": [1]}


def said(response: Any) -> Any:
    return json.loads(response.content)


def test_failure_057_a_request_that_is_sent_again_is_done_once() -> None:
    client = api()
    first = client.post("/v1/jobs", BODY, Idempotency_Key="k")

    again = client.post("/v1/jobs", BODY, Idempotency_Key="k")
    reordered = client.post(
        "/v1/jobs", {"args": [1], "task": BODY["task"]}, Idempotency_Key="k"
    )

    assert first.status_code == 201
    assert "Idempotency-Replayed" not in first
    for response in (again, reordered):
        assert response.status_code == 200
        assert response["Idempotency-Replayed"] == "true"
        assert response["Location"] == first["Location"]
        assert response.content == first.content
    assert Job.objects.count() == 1


def test_failure_057_the_same_key_for_something_else_is_refused() -> None:
    client = api()
    client.post("/v1/jobs", BODY, Idempotency_Key="k")

    other_body = client.post("/v1/jobs", {**BODY, "args": [2]}, Idempotency_Key="k")
    other_path = client.post("/v1/jobs/batch", {"jobs": [BODY]}, Idempotency_Key="k")

    for response in (other_body, other_path):
        assert response.status_code == 422
        assert said(response)["code"] == "idempotency_key_reused"
    assert Job.objects.count() == 1


def test_failure_057_a_key_is_its_callers_own_and_without_one_all_is_done() -> None:
    for client in (api(name="a"), api(name="b")):
        client.post("/v1/jobs", BODY, Idempotency_Key="k")
        client.post("/v1/jobs", BODY)

    assert Job.objects.count() == 4


def test_the_key_may_stand_in_the_body() -> None:
    client = api()
    for _ in range(2):
        client.post("/v1/jobs", {**BODY, "idempotency_key": "k"})

    assert Job.objects.count() == 1


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_key_that_is_none_is_refused(key: str) -> None:
    response = api().post("/v1/jobs", BODY, Idempotency_Key=key)

    assert response.status_code == 400
    assert not Job.objects.exists()


def test_what_failed_leaves_no_key() -> None:
    client = api()
    bad = client.post("/v1/jobs", {**BODY, "priority": 1000}, Idempotency_Key="k")
    clash = client.post("/v1/jobs", {"task": "none"}, Idempotency_Key="k")

    good = client.post("/v1/jobs", BODY, Idempotency_Key="k")

    assert [r.status_code for r in (bad, clash, good)] == [400, 400, 201]


def test_after_a_day_the_key_is_new_again() -> None:
    client = api()
    client.post("/v1/jobs", BODY, Idempotency_Key="k")
    IdempotentRequest.objects.update(created_at=F("created_at") - timedelta(hours=25))

    response = client.post("/v1/jobs", {**BODY, "args": [2]}, Idempotency_Key="k")

    assert response.status_code == 201
    assert Job.objects.count() == 2
    assert IdempotentRequest.objects.count() == 1


@pytest.mark.parametrize("what", ["batch", "replay", "bulk", "trigger", "schedule"])
def test_all_that_creates_heeds_the_key(what: str) -> None:
    job = make_job("failed", task=BODY["task"], args={"args": [1], "kwargs": {}})
    make_schedule()
    client = api()
    calls: dict[str, tuple[str, Any]] = {
        "batch": ("/v1/jobs/batch", {"jobs": [BODY]}),
        "replay": (f"/v1/jobs/{job.pk}/replay", {}),
        "bulk": ("/v1/jobs/bulk", {"action": "retry", "filter": "state:failed"}),
        "trigger": ("/v1/schedules/nightly/trigger", {}),
        "schedule": (
            "/v1/schedules",
            {"name": "n", "task": BODY["task"], "args": [1], "cron": "0 3 * * *"},
        ),
    }

    first = client.post(*calls[what], Idempotency_Key="k")
    made = Job.objects.count(), BulkOperation.objects.count()
    again = client.post(*calls[what], Idempotency_Key="k")

    assert first.status_code in (201, 202), first.content
    assert again.status_code == 200
    assert said(again) == said(first)
    assert (Job.objects.count(), BulkOperation.objects.count()) == made


SECRET = "hunter2"
WITH_SECRET = {**BODY, "args": [SECRET]}


def making(what: str) -> tuple[str, Any]:
    """Return a request whose answer tells an argument."""
    job = make_job("failed", task=BODY["task"], args={"args": [SECRET], "kwargs": {}})
    make_schedule(args={"args": [SECRET], "kwargs": {}})
    calls: dict[str, tuple[str, Any]] = {
        "enqueue": ("/v1/jobs", WITH_SECRET),
        "replay": (f"/v1/jobs/{job.pk}/replay", {}),
        "trigger": ("/v1/schedules/nightly/trigger", {}),
        "schedule": (
            "/v1/schedules",
            {**WITH_SECRET, "name": "n", "cron": "* * * * *"},
        ),
        "bulk": ("/v1/jobs/bulk", {"action": "retry", "filter": f"args.0:{SECRET}"}),
    }
    return calls[what]


@pytest.mark.parametrize("what", ["enqueue", "replay", "trigger", "schedule", "bulk"])
def test_what_is_answered_again_tells_no_more_than_may_be_seen_now(what: str) -> None:
    call, client = making(what), api("admin")
    first = client.post(*call, Idempotency_Key="k")
    kept = IdempotentRequest.objects.get().answer

    ApiToken.objects.update(scopes=["operate", "submit"])
    again = client.post(*call, Idempotency_Key="k")

    assert SECRET in first.content.decode()
    assert SECRET not in kept
    assert again.status_code == 200
    assert SECRET not in again.content.decode()
    assert said(again).keys() == said(first).keys()


def test_who_may_look_at_no_job_is_not_told_its_arguments_again() -> None:
    client = api("submit", "payload")
    first = client.post("/v1/jobs", WITH_SECRET, Idempotency_Key="k")

    again = client.post("/v1/jobs", WITH_SECRET, Idempotency_Key="k")

    assert SECRET in first.content.decode()
    assert SECRET not in again.content.decode()


def test_an_answer_whose_job_is_gone_is_given_again_without_its_arguments() -> None:
    client = api()
    first = client.post("/v1/jobs", WITH_SECRET, Idempotency_Key="k")
    Job.objects.all().delete()

    again = client.post("/v1/jobs", WITH_SECRET, Idempotency_Key="k")

    assert (again.status_code, said(again)["id"]) == (200, said(first)["id"])
    assert SECRET not in again.content.decode()
    assert not Job.objects.exists()


def test_an_answer_that_an_older_release_kept_is_veiled_too() -> None:
    client = api()
    first = client.post("/v1/jobs", WITH_SECRET, Idempotency_Key="k")
    IdempotentRequest.objects.update(answer=first.content.decode())
    ApiToken.objects.update(scopes=["submit"])

    again = client.post("/v1/jobs", WITH_SECRET, Idempotency_Key="k")

    assert again.status_code == 200
    assert SECRET not in again.content.decode()


def test_of_a_duplicate_that_is_not_theirs_no_more_is_told_the_second_time() -> None:
    unique = {**WITH_SECRET, "unique": {"key": "one"}}
    Api(make_token("admin")).post("/v1/jobs", unique)
    Job.objects.update(error_message="secret error", error_class="E")
    client = api("submit", "payload", name="other")
    first = client.post("/v1/jobs", unique, Idempotency_Key="k")

    again = client.post("/v1/jobs", unique, Idempotency_Key="k")

    for response in (first, again):
        assert response.status_code == 200
        assert SECRET not in response.content.decode()
        assert "secret error" not in response.content.decode()


def test_what_was_moved_out_of_a_tokens_queues_is_not_told_it_again() -> None:
    client = api("submit", "read", "payload", queues=["default"])
    first = client.post("/v1/jobs", BODY, Idempotency_Key="k")
    Job.objects.update(queue="other", args={"args": [SECRET], "kwargs": {}})

    again = client.post("/v1/jobs", BODY, Idempotency_Key="k")

    assert (again.status_code, said(again)["id"]) == (200, said(first)["id"])
    assert SECRET not in again.content.decode()


@pytest.mark.django_db(transaction=True)
def test_failure_057_two_at_the_same_time_are_one() -> None:
    secret = make_token()
    ready = threading.Barrier(4)
    answers: list[Any] = []

    def post() -> None:
        client = Api(secret)
        ready.wait(timeout=60)
        try:
            answers.append(client.post("/v1/jobs", BODY, Idempotency_Key="k"))
        finally:
            connection.close()

    threads = [threading.Thread(target=post) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert Job.objects.count() == 1
    statuses = sorted(each.status_code for each in answers)
    assert statuses.count(201) == 1
    assert set(statuses) <= {200, 201, 409}


@pytest.mark.django_db(transaction=True)
def test_a_key_that_is_being_worked_on_is_409() -> None:
    secret = make_token()
    caller = f"token {ApiToken.objects.get().pk}"
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s || ' ' || %s, 7250))",
            [caller, "k"],
        )
        answers: list[Any] = []

        def post() -> None:
            try:
                client = Api(secret)
                answers.append(client.post("/v1/jobs", BODY, Idempotency_Key="k"))
            finally:
                connection.close()

        thread = threading.Thread(target=post)
        thread.start()
        thread.join()
        cursor.execute("ROLLBACK")

    assert answers[0].status_code == 409
    assert said(answers[0])["code"] == "request_in_progress"


@pytest.mark.django_db(transaction=True)
def test_keys_are_pruned_after_a_day() -> None:
    client = api()
    client.post("/v1/jobs", BODY, Idempotency_Key="young")
    client.post("/v1/jobs", BODY, Idempotency_Key="old")
    IdempotentRequest.objects.filter(key="old").update(
        created_at=F("created_at") - timedelta(hours=25)
    )
    with connect("default", role="duty", name="tests") as duty:
        pruned = prune_requests(duty, limit=1), prune_requests(duty)

    assert pruned == (1, 0)
    assert IdempotentRequest.objects.get().key == "young"

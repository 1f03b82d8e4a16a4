"""Failures that users of other queues met, over REST."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from relay.api.endpoints import endpoint_of
from relay.api.urls import ADDRESSES
from relay.models import Attempt, History, Job
from tests.api.factory import api, make_schedule, make_worker
from tests.operations.factory import make_job
from tests.scale import scaled

pytestmark = pytest.mark.django_db

SECRETS = ("p-one", "t-one", "s-one", "k-one")


def said(response: Any) -> Any:
    return json.loads(response.content)


def asked(captured: CaptureQueriesContext) -> int:
    """Return how many questions there were, without those of the test's savepoints."""
    words = ("SAVEPOINT", "RELEASE", "ROLLBACK")
    return sum(not each["sql"].startswith(words) for each in captured)


def many(count: int) -> set[str]:
    made = Job.objects.bulk_create(Job(task="tests.noop") for _ in range(count))
    return {str(job.pk) for job in made}


def test_failure_136_pages_have_no_gaps_and_no_repeats_while_jobs_come_and_change() -> (
    None
):
    wanted, client = many(scaled(10_000)), api("read")
    come = scaled(5_000)
    seen: list[str] = []
    queries: set[int] = set()
    path: str | None = "/v1/jobs?limit=100"
    while path:
        with CaptureQueriesContext(connection) as captured:
            page = said(client.get(path))
        queries.add(asked(captured))
        seen += [each["id"] for each in page["results"]]
        many(come // 10)
        Job.objects.filter(pk__in=seen[-3:]).update(priority=7, queue="mail")
        path = page["next"]

    assert len(seen) == len(set(seen))
    assert set(seen) >= wanted
    assert len(queries) <= 3  # the first has no cursor, and notes the token's use
    assert max(queries) <= 6


def test_failure_136_a_list_costs_the_same_few_questions_however_long_it_is() -> None:
    make_schedule()
    make_worker()
    client = api()

    def costs() -> dict[str, int]:
        found: dict[str, int] = {}
        for path, view, _ in ADDRESSES:
            has_get = endpoint_of(view, "get") is not None
            if "{" in path or not has_get or path == "/v1/stream":
                continue
            with CaptureQueriesContext(connection) as captured:
                response = client.get(path)
            assert response.status_code == 200, path
            found[path] = asked(captured)
        return found

    client.get("/v1/version")  # its first use is written down
    few = costs()
    many(200)
    for number in range(5):
        make_schedule(name=f"schedule {number}")
        make_worker(name=f"worker {number}")
        make_job("failed", error_class=f"Error{number}")

    assert costs() == few
    # The checks of the system ask for themselves.
    assert {path for path, cost in few.items() if cost > 6} <= {"/v1/system"}


@pytest.mark.parametrize("scopes", [("read",), ("read", "payload"), ("admin",)])
def test_failure_056_what_is_stored_under_a_secret_name_is_sent_to_nobody(
    scopes: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    kwargs = {"password": "p-one", "api_token": "t-one", "nested": {"secret": "s-one"}}
    made = api().post(
        "/v1/jobs",
        {
            "task": "testproject.tasks.echo",
            "args": [kwargs],
            "meta": {"card_number": "k-one"},
        },
    )
    job = Job.objects.get()
    Job.objects.update(state="failed", result=kwargs, progress=kwargs)
    Attempt.objects.create(job=job, attempt=1, outcome="failed", error_class="E")
    History.objects.create(job=job, event="edit", detail={"token": "t-one"})
    make_schedule(args={"args": [kwargs], "kwargs": {}})
    client = api(*scopes)

    shown = [made.content.decode()]
    for path in (
        "/v1/jobs",
        f"/v1/jobs/{job.pk}?include=attempts,history,logs,steps",
        f"/v1/jobs/{job.pk}/why",
        "/v1/failures",
        "/v1/schedules",
        "/v1/schedules/nightly",
        "/v1/audit",
        "/v1/tasks",
        "/metrics",
    ):
        shown.append(client.get(path).content.decode())
    shown.append(client.post(f"/v1/jobs/{job.pk}/retry").content.decode())

    text = "\n".join([*shown, caplog.text])
    assert [secret for secret in SECRETS if secret in text] == []


def test_failure_125_of_two_replays_one_makes_a_job_if_they_share_a_key() -> None:
    job, client = make_job("failed"), api()

    first = client.post(f"/v1/jobs/{job.pk}/replay", Idempotency_Key="press")
    second = client.post(f"/v1/jobs/{job.pk}/replay", Idempotency_Key="press")

    assert (first.status_code, second.status_code) == (201, 200)
    assert said(first)["id"] == said(second)["id"]
    assert Job.objects.filter(replay_of=job.pk).count() == 1


def test_failure_087_a_list_sends_no_large_arguments() -> None:
    large = "x" * 200_000
    for _ in range(3):
        make_job("failed", args={"args": [large], "kwargs": {}}, result=large)

    response = api().get("/v1/jobs")

    assert len(said(response)["results"]) == 3
    assert len(response.content) < 20_000


def test_failure_137_an_instant_that_python_cannot_hold_breaks_no_list() -> None:
    job = make_job("failed")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE relay_job SET finished_at = 'infinity', started_at = '-infinity' "
            "WHERE id = %s",
            [job.pk],
        )
    client = api()

    listed, one = client.get("/v1/jobs?state=failed"), client.get(f"/v1/jobs/{job.pk}")

    assert (listed.status_code, one.status_code) == (200, 200)
    assert said(one)["finished_at"].startswith("9999-")

"""Waiting for jobs, their logs, and bulk operations, beside a worker."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from django.db.models.functions import Now
from pytest_django.live_server_helper import LiveServer

from relay.cli.verbs import waiting
from relay.models import Job, Output
from relay.operations import Actor, create_token
from relay.testing import live_worker
from tests.cli.conftest import Run
from tests.operations.factory import make_job

pytestmark = pytest.mark.django_db(transaction=True)

ADD = "testproject.tasks.add"
FAIL = "testproject.tasks.fail"


def test_a_job_is_waited_for_to_its_end(relay: Run) -> None:
    with live_worker():
        done = relay("enqueue", ADD, "--args", "[1, 2]", "--wait", "--json")
        failed = relay(
            *("enqueue", FAIL, "--args", '["no"]', "--max-retries", 0, "--wait", "-q")
        )

    assert (done.code, done.json["result"]) == (0, 3)
    assert failed.code == 8
    assert "ValueError" in failed.err
    assert relay("wait", done.json["id"]).code == 0
    assert relay("wait", done.json["id"], failed.out.strip()).code == 8


def test_a_wait_ends_when_its_time_is_over(relay: Run) -> None:
    job = make_job("queued")

    result = relay("wait", job.pk, "--timeout", "0.01s")

    assert (result.code, result.out) == (124, "")
    assert "has not ended" in result.err


def test_a_log_is_followed_to_the_end_of_its_job(
    relay: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job("running", attempt=1)
    log = Output.objects.create(job=job, attempt=1, text="one\n")

    def end(_: float) -> None:
        Output.objects.filter(pk=log.pk).update(text="one\ntwo\x1b[31m\n")
        Job.objects.filter(pk=job.pk).update(state="completed", finished_at=Now())

    # In place of the pause between two looks.
    monkeypatch.setattr(waiting, "time", SimpleNamespace(sleep=end))
    result = relay("logs", job.pk, "--follow")

    assert result.lines == ["one", "two\\x1b[31m"]


def test_a_bulk_operation_is_followed_to_its_end(relay: Run) -> None:
    for _ in range(3):
        make_job("failed", task=ADD, args={"args": [1, 2], "kwargs": {}})

    with live_worker():
        result = relay(
            *("retry", "--filter", "state:failed", "--yes", "--wait", "--json")
        )

    assert result.code == 0, result.err
    assert (result.json["state"], result.json["done"]) == ("completed", 3)


def test_a_bulk_operation_that_nobody_runs_goes_on_without_the_wait(relay: Run) -> None:
    make_job("failed")

    result = relay(
        *("retry", "--filter", "state:failed", "--yes", "--wait"),
        *("--timeout", "0.01s"),
    )

    assert result.code == 124


def test_who_may_only_enqueue_is_told_the_job_that_is_not_waited_for(
    script: Run, live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor = Actor(name="root", source="system")
    submit = create_token(actor, "few", scopes=["submit"]).secret
    script("profile", "add", "here", live_server.url, stdin="\n")
    script("profile", "use", "here")
    monkeypatch.setenv("RELAY_TOKEN", submit)  # as the profile has none

    refused = script("enqueue", ADD, "--args", "[1, 2]", "--wait", "-q")

    assert (refused.code, refused.out) == (5, "")
    assert f"enqueued {Job.objects.get().pk}" in refused.err


def test_a_job_without_a_log_is_told_what_keeps_one(relay: Run) -> None:
    result = relay("logs", make_job("completed").pk)

    assert (result.code, result.out) == (0, "")
    assert "capture_logs=True" in result.err

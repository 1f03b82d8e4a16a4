"""What operators do is logged once it is committed, with who and why."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import transaction

from relay import operations
from relay.failure import Failure
from relay.ids import uuid7
from relay.models import Queue
from relay.operations import Actor, bulk
from tests.log_page import read_log_page
from tests.operations.factory import make_job
from tests.operations.test_others import make_schedule

PAGE = read_log_page()


@pytest.mark.django_db(transaction=True)
def test_acts_on_queues_and_bulk_operations_are_logged_after_their_commit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "relay.operations")
    actor = Actor(name="ada", source="system", reason="a deploy", request_id="r-1")
    Queue.objects.create(name="mail")

    with transaction.atomic():
        operations.pause_queue(actor, "mail")
        before: list[Any] = list(caplog.records)
    operations.resume_queue(actor, "mail")
    operations.start_bulk(actor, "retry", "state:failed")

    found = [vars(record) for record in caplog.records if "event" in vars(record)]
    assert not before
    assert [each["event"] for each in found] == [
        "queue.paused",
        "queue.resumed",
        "bulk.started",
    ]
    who = ("actor", "source", "reason", "request_id")
    told = {tuple(each[name] for name in who) for each in found}
    assert told == {("ada", "system", "a deploy", "r-1")}


@pytest.mark.django_db(transaction=True)
def test_other_acts_are_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "relay.operations")
    actor = Actor(name="ada", source="system")
    job = make_job("running")
    schedule = make_schedule()

    operations.cancel_job(actor, job.pk)
    operations.pause_schedules(actor, [schedule.pk])
    schedule.enabled = True
    operations.edit_schedule(actor, schedule, ["enabled"])

    found = [vars(record) for record in caplog.records if "event" in vars(record)]
    assert [(each["event"], each["actor"]) for each in found] == [
        ("job.cancel_requested", "ada"),
        ("schedule.disabled", "ada"),
        ("schedule.enabled", "ada"),
    ]
    assert found[0]["job_id"] == str(job.pk)
    assert {each["schedule"] for each in found[1:]} == {"nightly"}


@pytest.mark.django_db
def test_how_far_a_bulk_operation_is_and_how_it_ended_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "relay.operations")
    monkeypatch.setattr(bulk, "CHUNK", 2)
    monkeypatch.setattr(bulk, "PROGRESS_SECONDS", 0)
    for _ in range(3):
        make_job("failed")
    made = operations.start_bulk(
        Actor(name="ada", source="cli", reason="why"), "retry", "state:failed"
    )

    bulk.run_bulk(str(made.pk))

    found = [vars(record) for record in caplog.records if "event" in vars(record)]
    told = [each for each in found if each["event"] != "bulk.started"]
    assert [each["done"] for each in told[:2]] == [2, 3]
    assert {each["event"] for each in told[:-1]} == {"bulk.progress"}
    last = told[-1]
    assert (last["event"], last["state"], last["levelname"]) == (
        "bulk.finished",
        "completed",
        "INFO",
    )
    assert (last["matched"], last["done"], last["actor"]) == (3, 3, "ada")
    for each in told:
        assert PAGE[each["event"]][1] <= set(each)


@pytest.mark.django_db
def test_a_bulk_operation_that_nobody_goes_on_with_is_logged_as_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = operations.start_bulk(
        Actor(name="ada", source="cli"), "retry", "state:failed"
    )
    failure = Failure(
        job_id=made.job_id or uuid7(),
        task="relay.bulk",
        queue="default",
        attempt=1,
        error_class="WorkerDied",
        error_message="of the test",
    )

    bulk.note_failed.function(failure)
    bulk.note_failed.function(failure)

    [record] = [one for one in caplog.records if one.name == "relay.operations"]
    told = vars(record)
    assert (told["event"], told["state"]) == ("bulk.finished", "failed")
    assert (record.levelname, told["error"]) == ("WARNING", "WorkerDied: of the test")

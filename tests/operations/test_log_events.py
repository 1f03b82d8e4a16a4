"""What operators do is logged once it is committed, with who and why."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import transaction

from relay import operations
from relay.models import Queue
from relay.operations import Actor


@pytest.mark.django_db(transaction=True)
def test_acts_on_queues_and_bulk_operations_are_logged_after_their_commit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "relay.operations")
    actor = Actor(name="ada", source="system", reason="a deploy")
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
    assert {(each["actor"], each["reason"]) for each in found} == {("ada", "a deploy")}

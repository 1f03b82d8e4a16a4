"""A bulk operation in real workers, one of which dies in the middle of it."""

from __future__ import annotations

import os
import signal

import pytest
from django.db import transaction
from django.db.models.functions import Now

from relay import operations
from relay.models import BulkOperation, Queue
from relay.operations import Actor
from tests.worker.harness import Database, Workers, until

pytestmark = pytest.mark.slow


def test_an_operation_outlives_the_process_that_runs_it(
    database: Database, workers: Workers
) -> None:
    count = 5_000
    database.enqueue("quick", count=count, state="failed", queue="away", wake=False)
    root = Actor(name="root", source="cli")
    # No queue that it serves is open, and none of those that it does not.
    for queue in ("mail", "away", "default"):
        Queue.objects.create(name=queue, policy="fifo", paused_at=Now())
    worker = workers.start("-c", "1", "-q", "mail")

    made = operations.start_bulk(root, "retry", "queue:away", expected=count)
    until(lambda: BulkOperation.objects.get(pk=made.pk).done > 0)
    for pid in worker.child_pids():
        os.kill(pid, signal.SIGKILL)
    until(lambda: BulkOperation.objects.get(pk=made.pk).state == "completed")

    made.refresh_from_db()
    assert (made.matched, made.done, made.failed) == (count, count, 0)
    assert database.states().get("queued") == count
    assert database.ask("SELECT count(*) FROM relay_history WHERE event='retry'") == (
        count
    )
    assert worker.stop() == 0


def test_operations_leave_slots_to_other_jobs(
    database: Database, workers: Workers
) -> None:
    database.enqueue("quick", count=1, state="failed", queue="away", wake=False)
    root = Actor(name="root", source="cli")
    made = [operations.start_bulk(root, "retry", "queue:away") for _ in range(3)]
    with transaction.atomic():
        list(BulkOperation.objects.select_for_update())  # none of them gets on
        worker = workers.start("-c", "2")
        until(lambda: under_way(database) == 1)

        database.enqueue("quick", count=20)
        until(lambda: database.states().get("completed") == 20)

        assert under_way(database) == 1
    ids = [each.pk for each in made]
    ended = BulkOperation.objects.filter(pk__in=ids, state="completed")
    until(lambda: ended.count() == 3)
    assert worker.stop() == 0


def under_way(database: Database) -> int:
    return database.ask(
        "SELECT count(*) FROM relay_job WHERE task = 'relay.bulk' AND state = 'running'"
    )

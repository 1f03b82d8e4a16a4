"""Jobs of every kind through a real worker, from the enqueue to the row's end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from relay import JobHandle, TaskFailed, enqueue
from relay.models import JobState
from testproject import tasks
from tests.engine import rows
from tests.worker.harness import Database, Workers, until
from tests.worker.tasks import orders

pytestmark = pytest.mark.slow


def test_every_way_a_job_can_end_is_in_its_row(
    database: Database, workers: Workers
) -> None:
    workers.start("-c", "4", BACKOFF=(0.05, 0.1))
    added = tasks.add.enqueue(1, 2)
    awaited = tasks.aadd.enqueue(3, 4)
    failed = tasks.fail.using(max_retries=0).enqueue("no good")
    afailed = tasks.afail.using(max_retries=2).enqueue("no good")
    unknown = enqueue("no.such.task", 1)
    # As from a process with other code: nobody could check the arguments.
    (mistaken,) = rows.add_jobs(
        database.session, task="testproject.tasks.add", max_retries=0
    )

    assert added.result(timeout=60) == 3
    assert awaited.result(timeout=60) == 7
    with pytest.raises(TaskFailed, match="ValueError: no good"):
        failed.result(timeout=60)
    assert afailed.wait(timeout=60) == JobState.FAILED
    database.wait_for(mistaken, "failed")
    until(lambda: unknown.state == JobState.RETRYING)

    row = database.job(afailed.id)
    assert (row["attempt"], row["failures"], row["crashes"]) == (3, 3, 0)
    row = database.job(unknown.id)
    assert (row["failures"], row["error_class"]) == (0, "UnknownTask")
    assert "no.such.task" in row["error_message"]
    assert database.job(mistaken)["error_class"] == "TypeError"


def test_failures_009_085_what_postgresql_refuses_is_stored_with_visible_escapes(
    database: Database, workers: Workers
) -> None:
    workers.start("-c", "2")
    handles: list[JobHandle[object]] = [
        orders.using(max_retries=0).enqueue(what)
        for what in ("return NUL", "return surrogate", "raise NUL", "raise surrogate")
    ]

    states = [handle.wait(timeout=60) for handle in handles]

    assert states == ["completed", "completed", "failed", "failed"]
    for handle in handles[2:]:
        assert "bad" in database.job(handle.id)["error_message"]
        traceback = database.ask(
            "SELECT traceback FROM relay_attempt WHERE job_id = %s", handle.id
        )
        assert "orders" in traceback


def test_a_handler_steers_with_retry_and_skip_retry(
    database: Database, workers: Workers
) -> None:
    workers.start("-c", "2")
    later = orders.enqueue("retry after 0.5 s")
    never = orders.using(max_retries=5).enqueue("skip retry")

    assert never.wait(timeout=60) == JobState.FAILED
    assert later.wait(timeout=60) == JobState.COMPLETED

    assert database.job(never.id)["attempt"] == 1
    first, second = database.effects_of(later.id, "start")
    assert second.at - first.at >= 0.5
    assert database.job(later.id)["failures"] == 1


def test_a_scheduled_job_starts_when_it_is_due_and_not_before(
    database: Database, workers: Workers
) -> None:
    workers.start("-c", "2")
    handle = tasks.add.using(run_in=timedelta(seconds=1)).enqueue(1, 2)

    assert handle.result(timeout=60) == 3

    row = database.job(handle.id)
    assert row["started_at"] >= row["run_at"]
    assert row["attempt"] == 1


def test_failure_124_ten_snoozes_charge_nothing_and_endless_ones_end(
    database: Database, workers: Workers
) -> None:
    workers.start("-c", "2", SNOOZE_LIMIT=12)
    patient = database.enqueue_one("snooze", 10, max_retries=3)
    endless = database.enqueue_one("snooze", 1_000, max_retries=3)

    database.wait_for(patient)
    database.wait_for(endless, "failed")

    row = database.job(patient)
    assert (row["attempt"], row["failures"], row["crashes"]) == (11, 0, 0)
    row = database.job(endless)
    assert (row["attempt"], row["failures"], row["error_class"]) == (13, 0, "Snooze")
    assert "SNOOZE_LIMIT" in row["error_message"]

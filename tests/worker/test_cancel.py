"""Running jobs are stopped, by real workers."""

from __future__ import annotations

import signal
from pathlib import Path
from uuid import UUID

import pytest

from relay.engine import control
from relay.exceptions import StateConflict
from tests.worker.harness import SHORT_LEASE, Database, Workers, until

pytestmark = pytest.mark.slow

# docs/explanation/cancelling.md promises 2 s for a handler that can be stopped; this is
# for a machine at its slowest. The handlers here would go on for longer.
WITHIN_SECONDS = 40.0


def cancel(job_id: UUID) -> bool:
    return control.cancel(job_id, actor="ada", using="default")


def assert_cancelled(database: Database, job_id: UUID) -> None:
    row = database.job(job_id)
    assert (row["state"], row["failures"], row["crashes"]) == ("cancelled", 0, 0)
    assert row["attempt"] == 1
    assert row["expires_at"] is not None
    assert database.effects_of(job_id, "end") == []
    outcomes = database.session.execute(
        "SELECT outcome, error_class FROM relay_attempt WHERE job_id = %s", (job_id,)
    ).fetchall()
    assert outcomes == [("cancel", "Cancelled")]


@pytest.mark.parametrize("notify", [True, False], ids=["notify", "poll"])
def test_a_loop_a_coroutine_and_queries_are_cancelled_within_two_seconds(
    database: Database, workers: Workers, tmp_path: Path, notify: bool
) -> None:
    workers.start("-c", "4", NOTIFY=notify, LEASE=30)
    jobs = [
        database.enqueue_one("gate", str(tmp_path / "never")),
        database.enqueue_one("anap", 600),
        database.enqueue_one("use_orm_for", 600),
    ]
    other = database.enqueue_one("gate", str(tmp_path / "open"))
    for job in (*jobs, other):
        database.wait_for_start(job)

    assert [cancel(job) for job in jobs] == [False] * 3
    for job in jobs:
        database.wait_for(job, "cancelled", seconds=WITHIN_SECONDS)
    (tmp_path / "open").touch()
    database.wait_for(other)

    for job in jobs:
        assert_cancelled(database, job)
    # The slots are as good as new, their connections too.
    following = database.enqueue("use_orm", count=8)
    for job in following:
        database.wait_for(job)
    database.assert_nothing_charged()


def test_failure_144_a_job_is_cancelled_while_its_worker_drains(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    worker = workers.start("-c", "2", "--grace", "600", LEASE=30)
    jobs = [
        database.enqueue_one("gate", str(tmp_path / "never")),
        database.enqueue_one("anap", 600),
    ]
    for job in jobs:
        database.wait_for_start(job)
    worker.send(signal.SIGTERM)
    until(lambda: "draining" in worker.text())

    for job in jobs:
        cancel(job)
    for job in jobs:
        database.wait_for(job, "cancelled", seconds=WITHIN_SECONDS)

    assert worker.wait() == 0
    for job in jobs:
        assert_cancelled(database, job)


def test_failure_035_a_job_that_waits_behind_a_slow_one_is_cancelled_and_never_starts(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    database.enqueue("silent", count=200, wake=False)
    running = database.enqueue_one("gate", str(tmp_path / "open"))
    waiting = database.enqueue("quick", count=20)
    workers.start("-c", "1", LEASE=30)
    database.wait_for_start(running)

    for job in waiting:
        cancel(job)
    for job in waiting:
        database.wait_for(job, "cancelled", seconds=WITHIN_SECONDS)
    (tmp_path / "open").touch()
    database.wait_for(running)

    assert [database.effects_of(job) for job in waiting] == [[]] * 20


def test_j17_a_job_whose_worker_dies_before_it_stopped_is_cancelled(
    database: Database, workers: Workers
) -> None:
    worker = workers.start("-c", "1", LEASE=SHORT_LEASE)
    job = database.enqueue_one("nap", 60)  # waits in C: no exception reaches it
    database.wait_for_start(job)
    cancel(job)

    worker.end()
    workers.start("-c", "1", LEASE=SHORT_LEASE)
    database.wait_for(job, "cancelled")

    assert len(database.effects_of(job, "start")) == 1


def test_failure_034_200_jobs_cancelled_as_they_run_each_end_in_exactly_one_state(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    workers.start("-c", "4", LEASE=30)
    answers: dict[UUID, str] = {}

    for number in range(200):
        job = (
            database.enqueue_one("nap", number % 20 / 1_000)
            if number
            else database.enqueue_one("gate", str(tmp_path / "never"))
        )
        until(lambda job=job: database.job(job)["state"] != "queued")
        try:
            answers[job] = "cancelled" if cancel(job) else "asked"
        except StateConflict as conflict:
            answers[job] = str(conflict.state)
    until(lambda: set(database.states()) <= {"completed", "cancelled"})

    for job, answer in answers.items():
        row, phases = database.job(job), [e.phase for e in database.effects_of(job)]
        assert answer in ("asked", row["state"])
        assert phases in ([], ["start"], ["start", "end"])
        if row["state"] == "completed":
            assert phases == ["start", "end"]
    assert set(answers.values()) >= {"asked"}
    database.assert_nothing_charged()

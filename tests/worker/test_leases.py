"""Long jobs, stopped processes, lost answers: who holds a job, and for how long."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from uuid import UUID

import pytest

from relay.ids import uuid7
from tests.engine import rows
from tests.worker.harness import SHORT_LEASE, Database, Workers, until

pytestmark = pytest.mark.slow


def test_b15_failure_001_a_job_longer_than_three_leases_runs_once(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    for _ in range(2):
        workers.start("-c", "2", LEASE=SHORT_LEASE)
    expiry = "SELECT lease_expires_at FROM relay_worker WHERE pid = %s"
    seen: set[object] = set()

    def run() -> UUID:
        seen.clear()
        made = database.enqueue_one("nap", 3.5 * SHORT_LEASE)
        start = database.wait_for_start(made)

        def has_ended() -> bool:
            seen.add(database.ask(expiry, start.pid))
            return bool(database.job(made)["state"] == "completed")

        until(has_ended)
        return made

    job = workers.undisturbed(run)

    assert len(seen) > 3
    assert len(database.effects_of(job, "start")) == 1
    assert database.job(job)["attempt"] == 1


def test_a_job_that_holds_the_interpreter_for_two_leases_runs_once(
    database: Database, workers: Workers
) -> None:
    for _ in range(2):
        workers.start("-c", "2", LEASE=SHORT_LEASE)

    def run() -> UUID:
        made = database.enqueue_one("hold_interpreter", 2.2 * SHORT_LEASE)
        database.wait_for(made)
        return made

    job = workers.undisturbed(run)

    (end,) = database.effects_of(job, "end")
    assert isinstance(end.said, float)
    assert end.said > 2 * SHORT_LEASE
    assert len(database.effects_of(job, "start")) == 1
    assert database.job(job)["attempt"] == 1


def test_a_worker_stopped_past_its_lease_loses_its_job_and_its_late_finish(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    stopped = workers.start("-c", "1", LEASE=SHORT_LEASE)
    job = database.enqueue_one("gate", str(tmp_path / "open"))
    start = database.wait_for_start(job)
    workers.start("-c", "1", LEASE=SHORT_LEASE)
    keeper = stopped.keeper_pid()

    for pid in (stopped.pid, keeper, start.pid):
        os.kill(pid, signal.SIGSTOP)
    database.wait_for_start(job, count=2)
    (tmp_path / "open").touch()
    database.wait_for(job)
    row = database.job(job)
    # The child before the others, so that its finish reaches the database.
    os.kill(start.pid, signal.SIGCONT)
    until(lambda: "lease lost: the result was dropped" in stopped.text())
    for pid in (keeper, stopped.pid):
        os.kill(pid, signal.SIGCONT)
    until(lambda: start.pid not in stopped.child_pids())
    stopped.wait_until_ready()

    assert (row["attempt"], row["losses"], row["failures"]) == (2, 1, 0)
    assert database.job(job) == row
    assert len(database.effects_of(job, "start")) == 2


def test_b04_a_worker_whose_row_is_deleted_replaces_its_child(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    worker = workers.start("-c", "1", LEASE=SHORT_LEASE)
    job = database.enqueue_one("gate", str(tmp_path / "open"))
    start = database.wait_for_start(job)
    first = database.job(job)["worker_id"]

    database.session.execute("DELETE FROM relay_worker")
    again = database.wait_for_start(job, count=2)
    second = database.job(job)["worker_id"]
    (tmp_path / "open").touch()
    database.wait_for(job)

    assert again.pid != start.pid
    assert second != first
    assert database.ask("SELECT count(*) FROM relay_worker WHERE id = %s", first) == 0
    assert start.pid not in {each.pid for each in worker.tree()}
    assert database.ask("SELECT count(*) FROM relay_worker WHERE pid = %s", again.pid)


def test_failure_007_a_finish_that_failed_is_repeated_on_a_new_connection(
    database: Database, workers: Workers
) -> None:
    worker = workers.start("-c", "2", LEASE=30)
    jobs = database.enqueue("cut_off_worker", count=3)

    for job in jobs:
        database.wait_for(job)

    assert [len(database.effects_of(job, "start")) for job in jobs] == [1, 1, 1]
    database.assert_nothing_charged()
    assert worker.stop() == 0


def test_b06_failure_023_jobs_of_a_worker_without_a_row_come_back(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    dead = workers.start("-c", "1", LEASE=SHORT_LEASE)
    job = database.enqueue_one("gate", str(tmp_path / "open"))
    database.wait_for_start(job)
    dead.process.kill()
    dead.wait()

    database.session.execute("DELETE FROM relay_worker")
    workers.start("-c", "1", LEASE=SHORT_LEASE)
    database.wait_for_start(job, count=2)
    (tmp_path / "open").touch()
    database.wait_for(job)

    assert database.job(job)["losses"] == 1


def test_a_claim_whose_answer_was_lost_is_released_uncharged(
    database: Database, workers: Workers
) -> None:
    worker = workers.start("-c", "1", LEASE=SHORT_LEASE)
    worker_id = database.ask("SELECT id FROM relay_worker WHERE state = 'running'")

    (job,) = rows.hold(
        database.session,
        worker_id,
        task="tests.worker.tasks.quick",
        args='{"args": [], "kwargs": {}}',
        max_retries=0,
    )
    database.wait_for(job)

    assert worker.child_pids()
    row = database.job(job)
    assert (row["attempt"], row["failures"], row["crashes"], row["losses"]) == (
        2,
        0,
        0,
        0,
    )


def test_b17_failure_115_a_stopped_reaper_does_not_stop_the_others(
    database: Database, workers: Workers
) -> None:
    gone = uuid7()
    jobs = rows.hold(
        database.session, gone, 10, task="tests.worker.tasks.quick", max_retries=0
    )
    with rows.other_session(autocommit=False) as sweeping:
        sweeping.execute(
            "SELECT id FROM relay_job WHERE id = %s FOR UPDATE", (jobs[0],)
        )
        workers.start("-c", "2", LEASE=SHORT_LEASE)
        for job in jobs[1:]:
            database.wait_for(job)
        assert database.job(jobs[0])["state"] == "running"
    database.wait_for(jobs[0])


def test_failure_074_workers_with_different_leases_keep_their_jobs(
    database: Database, workers: Workers
) -> None:
    for lease in (SHORT_LEASE, 60, SHORT_LEASE):
        workers.start("-c", "4", LEASE=lease)

    def run() -> list[UUID]:
        made = database.enqueue("nap", 1.8 * SHORT_LEASE, count=8)
        for job in made:
            database.wait_for(job)
        return made

    jobs = workers.undisturbed(run)

    assert [len(database.effects_of(job, "start")) for job in jobs] == [1] * len(jobs)


@pytest.mark.faketime
@pytest.mark.slow
@pytest.mark.parametrize("skew_seconds", [600, -600])
def test_failure_076_a_worker_whose_clock_is_wrong_starts_and_steals_nothing(
    database: Database, workers: Workers, skew_seconds: int
) -> None:
    (library,) = Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
    workers.start(
        "-c",
        "4",
        LEASE=SHORT_LEASE,
        environment={
            "LD_PRELOAD": str(library),
            "FAKETIME": f"{skew_seconds:+d}s",
            "DONT_FAKE_MONOTONIC": "1",
        },
    )
    clock = database.enqueue_one("clock")
    database.wait_for(clock)
    workers.start("-c", "4", LEASE=SHORT_LEASE)
    due_at = database.ask("SELECT now() + interval '5 minutes'")
    later = database.enqueue_one("quick", state="scheduled", run_at=due_at)

    def run() -> list[UUID]:
        # A coroutine: under the library time.sleep() fails.
        made = database.enqueue("anap", 2 * SHORT_LEASE, count=8)
        for job in made:
            database.wait_for(job)
        return made

    long = workers.undisturbed(run)

    assert abs(database.job(clock)["result"] - time.time() - skew_seconds) < 60
    assert database.job(later)["state"] == "scheduled"
    assert [len(database.effects_of(job, "start")) for job in long] == [1] * len(long)
    assert database.ask("SELECT max(losses + crashes) FROM relay_job") == 0
    assert database.ask("SELECT count(*) FROM relay_worker WHERE state = 'lost'") == 0

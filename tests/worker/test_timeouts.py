"""Attempts that run out of time, in real workers; and deadlines."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from relay.engine import control
from tests.worker.harness import SHORT_LEASE, Database, Workers, until

pytestmark = pytest.mark.slow

# Of a timeout that is meant to pass, and one that is not.
SHORT = 300
LONG = 600_000


def attempts(database: Database, job_id: UUID) -> list[tuple[Any, ...]]:
    return database.session.execute(
        "SELECT attempt, outcome, error_class FROM relay_attempt "
        "WHERE job_id = %s ORDER BY id",
        (job_id,),
    ).fetchall()


def assert_timed_out(database: Database, job_id: UUID) -> None:
    row = database.job(job_id)
    assert (row["state"], row["error_class"]) == ("failed", "JobTimeout")
    assert (row["failures"], row["crashes"], row["losses"]) == (1, 0, 0)
    assert row["expires_at"] is not None
    assert database.effects_of(job_id, "end") == []
    assert attempts(database, job_id) == [(1, "fail", "JobTimeout")]


def events(database: Database, job_id: UUID) -> list[str]:
    found = database.session.execute(
        "SELECT event FROM relay_history WHERE job_id = %s ORDER BY id", (job_id,)
    ).fetchall()
    return [event for (event,) in found]


def test_a_loop_and_a_coroutine_are_ended_by_their_timeouts(
    database: Database, workers: Workers
) -> None:
    worker = workers.start("-c", "4", LEASE=30, TIMEOUT_GRACE=60)
    child = worker.child_pids()
    options = {"timeout_ms": SHORT, "max_retries": 0}
    jobs = [
        database.enqueue_one("spin", 60, **options),
        database.enqueue_one("anap", 60, **options),
        database.enqueue_one("swallow_timeouts", 60, **options),
    ]
    untouched = database.enqueue_one("quick", timeout_ms=LONG)

    for job in jobs:
        database.wait_for(job, "failed")

    for job in jobs:
        assert_timed_out(database, job)
    database.wait_for(untouched)
    assert worker.child_pids() == child
    # The slots are as good as new.
    for job in database.enqueue("use_orm", count=8, timeout_ms=LONG):
        database.wait_for(job)


def test_a_timeout_is_retried_by_the_ordinary_rules(
    database: Database, workers: Workers
) -> None:
    workers.start("-c", "1", LEASE=30, TIMEOUT_GRACE=60)
    job = database.enqueue_one("spin", 60, timeout_ms=SHORT, max_retries=2)

    database.wait_for(job, "failed")

    row = database.job(job)
    assert (row["failures"], row["crashes"], row["attempt"]) == (3, 0, 3)
    assert attempts(database, job) == [
        (1, "retry", "JobTimeout"),
        (2, "retry", "JobTimeout"),
        (3, "fail", "JobTimeout"),
    ]


@pytest.mark.parametrize("task", ["clean_up_when_warned", "aclean_up_when_warned"])
def test_a_handler_is_warned_by_its_soft_timeout_and_may_end_well(
    database: Database, workers: Workers, task: str
) -> None:
    workers.start("-c", "3", LEASE=30, TIMEOUT_GRACE=60)
    returns = database.enqueue_one(task, "return", max_retries=0)
    raises = database.enqueue_one(task, "raise", max_retries=0)
    database.wait_for(returns)
    database.wait_for(raises, "failed")
    goes_on = database.enqueue_one(task, "go on", max_retries=0, timeout_ms=6_000)
    database.wait_for(goes_on, "failed")

    assert database.job(returns)["result"] == "cleaned up"
    assert attempts(database, raises) == [(1, "fail", "SoftTimeout")]
    assert database.job(raises)["failures"] == 1
    assert_timed_out(database, goes_on)
    for job in (returns, raises, goes_on):
        assert len(database.effects_of(job, "warned")) == 1


def test_failure_019_jobs_that_wait_in_c_are_timed_out_and_the_slots_come_back(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    worker = workers.start("-c", "4", LEASE=30, TIMEOUT_GRACE=0.3)
    first = worker.child_pids()
    options = {"timeout_ms": 1_000, "max_retries": 0}
    jobs = [
        *database.enqueue("nap", 60, count=4, **options),
        *database.enqueue("wait_on_socket", count=3, **options),
        database.enqueue_one("hold_interpreter", 600, **options),
    ]

    for job in jobs:
        database.wait_for(job, "failed")

    for job in jobs:
        assert_timed_out(database, job)
    worker.wait_until_ready()
    assert worker.child_pids() != first
    gates = database.enqueue("gate", str(tmp_path / "open"), count=20)
    until(
        lambda: sum(len(database.effects_of(job, "start")) for job in gates) == 4,
        what="a job in each slot",
    )
    (tmp_path / "open").touch()
    for job in gates:
        database.wait_for(job)
    beginnings = sorted(
        (effect.at, step)
        for job in gates
        for phase, step in (("start", 1), ("end", -1))
        for effect in database.effects_of(job, phase)
    )
    running = most = 0
    for _, step in beginnings:
        running += step
        most = max(most, running)
    assert most == 4


def test_a_child_lost_to_a_stuck_job_lets_the_others_end_first(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    worker = workers.start("-c", "3", LEASE=30, TIMEOUT_GRACE=0.1, GRACE=60)
    [child] = worker.child_pids()
    other = database.enqueue_one("gate", str(tmp_path / "open"))
    database.wait_for_start(other)
    stuck = database.enqueue_one("nap", 120, timeout_ms=SHORT, max_retries=0)
    until(lambda: "does not stop" in worker.text())
    late = database.enqueue_one("quick")

    assert database.job(stuck)["state"] == "running"
    (tmp_path / "open").touch()
    database.wait_for(other)
    database.wait_for(stuck, "failed")
    database.wait_for(late)

    assert_timed_out(database, stuck)
    assert database.job(other)["attempt"] == 1
    assert database.effects_of(late, "start")[0].pid != child


def test_the_others_of_a_lost_child_are_released_uncharged_after_their_grace(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    worker = workers.start("-c", "3", LEASE=30, TIMEOUT_GRACE=0.1, GRACE=0.5)
    other = database.enqueue_one("gate", str(tmp_path / "open"))
    database.wait_for_start(other)
    stuck = database.enqueue_one("nap", 120, timeout_ms=SHORT, max_retries=0)

    database.wait_for(stuck, "failed")
    database.wait_for_start(other, count=2)
    (tmp_path / "open").touch()
    database.wait_for(other)

    assert_timed_out(database, stuck)
    row = database.job(other)
    assert (row["failures"], row["crashes"], row["attempt"]) == (0, 0, 2)
    assert events(database, other) == ["release"]
    assert worker.stop() == 0


def test_b05_a_job_that_holds_the_interpreter_is_killed_for_its_timeout_and_retried(
    database: Database, workers: Workers
) -> None:
    workers.start("-c", "2", LEASE=30, TIMEOUT_GRACE=0.2)
    job = database.enqueue_one("hold_interpreter", 600, timeout_ms=SHORT, max_retries=1)

    database.wait_for(job, "failed")

    row = database.job(job)
    assert (row["failures"], row["crashes"], row["attempt"]) == (2, 0, 2)
    assert attempts(database, job) == [
        (1, "retry", "JobTimeout"),
        (2, "fail", "JobTimeout"),
    ]
    assert "process was killed" in row["error_message"]


@pytest.mark.parametrize("task", ["nap", "hold_interpreter", "sleep_in_the_loop"])
def test_j17_a_cancelled_job_that_does_not_stop_costs_its_child(
    database: Database, workers: Workers, task: str
) -> None:
    worker = workers.start("-c", "2", LEASE=30, CANCEL_GRACE=0.5)
    [child] = worker.child_pids()
    job = database.enqueue_one(task, 120)
    database.wait_for_start(job)

    assert control.cancel(job, actor="ada", using="default") is False
    database.wait_for(job, "cancelled")

    row = database.job(job)
    assert (row["failures"], row["crashes"], row["attempt"]) == (0, 0, 1)
    assert row["expires_at"] is not None
    assert len(database.effects_of(job, "start")) == 1
    following = database.enqueue_one("quick")
    database.wait_for(following)
    assert database.effects_of(following, "start")[0].pid != child


def test_failure_037_a_timeout_longer_than_the_lease_runs_nothing_twice(
    database: Database, workers: Workers
) -> None:
    for _ in range(2):
        workers.start("-c", "2", LEASE=SHORT_LEASE)

    def run() -> UUID:
        made = database.enqueue_one("nap", 2 * SHORT_LEASE, timeout_ms=LONG)
        database.wait_for(made)
        return made

    job = workers.undisturbed(run)

    assert len(database.effects_of(job, "start")) == 1
    assert database.job(job)["attempt"] == 1


def test_what_waits_past_its_deadline_fails_and_what_is_claimed_does_not_start(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    workers.start("-c", "1", LEASE=30)
    running = database.enqueue_one("gate", str(tmp_path / "open"))
    database.wait_for_start(running)
    waiting = database.enqueue("quick", count=5)
    scheduled = database.enqueue_one("quick", state="scheduled")
    database.session.execute(
        "UPDATE relay_job SET run_at = now() + interval '1 hour' WHERE id = %s",
        (scheduled,),
    )
    database.session.execute(
        "UPDATE relay_job SET deadline_at = now() + interval '0.5 s' "
        "WHERE task LIKE '%quick'"
    )

    for job in (*waiting, scheduled):
        database.wait_for(job, "failed")
    (tmp_path / "open").touch()
    database.wait_for(running)

    for job in (*waiting, scheduled):
        row = database.job(job)
        assert (row["error_class"], row["failures"]) == ("DeadlineExceeded", 0)
        assert database.effects_of(job) == []

"""Handlers that harm what runs them: the others' jobs go on, each once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.harness import Database, Workers, until

pytestmark = pytest.mark.slow


def test_what_a_handler_forks_runs_no_other_job(
    database: Database, workers: Workers
) -> None:
    workers.start("-c", "1")
    before = database.enqueue("quick", count=200)
    database.enqueue("fork_and_go_on")
    after = database.enqueue("quick", count=200)

    for job in (*before, *after):
        database.wait_for(job)

    started = [effect.job for effect in database.effects() if effect.phase == "start"]
    assert sorted(set(started)) == sorted(started)


@pytest.mark.parametrize("task", ["let_exit_escape", "stop_the_loop"])
def test_the_event_loop_outlives_a_job_that_ends_it(
    task: str, database: Database, workers: Workers
) -> None:
    workers.start("-c", "2")

    breaking = database.enqueue_one(task)
    database.wait_for(breaking)
    after = database.enqueue("anap", 0, count=5)
    for job in after:
        database.wait_for(job)

    assert len(database.effects_of(breaking, "start")) == 1
    database.assert_nothing_started_twice()


def test_a_job_whose_task_another_cancels_is_not_lost(
    database: Database, workers: Workers
) -> None:
    worker = workers.start("-c", "4")

    database.enqueue("cancel_the_others", count=5)
    jobs = database.enqueue("anap", 0, count=20)
    for job in jobs:
        database.wait_for(job)

    assert worker.stop() == 0


def test_a_blocked_event_loop_does_not_stop_the_threads(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    workers.start("-c", "10")

    blocking = database.enqueue_one("block_the_loop", str(tmp_path / "open"))
    database.wait_for_start(blocking)
    database.enqueue("anap", 0, count=3)
    plain = database.enqueue("quick", count=40)
    for job in plain:
        database.wait_for(job)

    assert database.job(blocking)["state"] == "running"
    (tmp_path / "open").touch()
    database.wait_for(blocking)


def test_a_transaction_left_open_in_another_thread_ends_with_its_call(
    database: Database, workers: Workers
) -> None:
    workers.start("-c", "2")

    job = database.enqueue_one("leave_a_transaction_open_in_a_thread")
    database.wait_for(job)

    until(
        lambda: (
            not database.ask(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE datname = current_database() "
                "AND state LIKE 'idle in transaction%' AND pid <> pg_backend_pid()"
            )
        ),
        what="no transaction left open",
    )


@pytest.mark.parametrize("redirection", [">&-", ">&- 2>&-", ">/dev/full"])
def test_a_worker_runs_without_a_place_to_write_to(
    redirection: str, database: Database, workers: Workers
) -> None:
    worker = workers.start(
        "-c", "2", prefix=("sh", "-c", f'exec "$@" {redirection}', "sh")
    )

    job = database.enqueue_one("quick")
    database.wait_for(job)

    assert worker.stop() == 0

"""What happens when a process of a worker dies, each in turn."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.chaos import proc
from tests.worker.harness import SHORT_LEASE, Database, Workers, until

pytestmark = pytest.mark.slow


def test_b19_failure_062_killed_child_is_replaced_and_its_job_recovered_at_once(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    worker = workers.start("-c", "1", processes=4, LEASE=300)
    jobs = database.enqueue("gate", str(tmp_path / "open"), count=4)
    starts = [database.wait_for_start(job) for job in jobs]
    others = {start.pid for start in starts[1:]}

    os.kill(starts[0].pid, signal.SIGKILL)
    again = database.wait_for_start(jobs[0], count=2)  # no lease is waited for
    (tmp_path / "open").touch()
    database.wait_for_all(4)

    assert again.pid not in {start.pid for start in starts}
    assert others <= set(worker.child_pids())
    assert [len(database.effects_of(job, "start")) for job in jobs] == [2, 1, 1, 1]
    assert database.job(jobs[0])["crashes"] == 1
    assert database.job(jobs[0])["failures"] == 0


def test_failure_090_a_lost_worker_costs_no_retry_even_where_there_is_none(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    worker = workers.start("-c", "1", LEASE=SHORT_LEASE)
    job = database.enqueue_one("gate", str(tmp_path / "open"), max_retries=0)
    start = database.wait_for_start(job)

    os.kill(start.pid, signal.SIGKILL)
    database.wait_for_start(job, count=2)
    worker.process.kill()
    worker.wait()
    workers.start("-c", "1", LEASE=SHORT_LEASE)
    database.wait_for_start(job, count=3)
    (tmp_path / "open").touch()
    database.wait_for(job)

    row = database.job(job)
    assert (row["failures"], row["crashes"], row["losses"]) == (0, 1, 1)


def test_b19_failure_003_poison_job_starts_three_times_and_stops_nobody_else(
    database: Database, workers: Workers
) -> None:
    workers.start("-c", "4", BACKOFF=(0.5, 2))
    poison = database.enqueue_one("die", max_retries=2)
    good = database.enqueue("quick", count=20)

    database.wait_for(poison, "failed")
    database.wait_for_all(len(good))

    starts = database.effects_of(poison, "start")
    assert len(starts) == 3
    assert starts[2].at - starts[1].at >= 0.5  # the second crash waits
    row = database.job(poison)
    assert row["error_class"] == "PoisonJob"
    assert "the worker process died of SIGKILL" in row["error_message"]
    assert (row["failures"], row["crashes"]) == (0, 3)


def test_a_job_whose_processes_died_has_its_follower_run(
    database: Database, workers: Workers
) -> None:
    workers.start("-c", "1", CRASH_LIMIT=2)
    poison = database.enqueue_one("die_mourned")

    database.wait_for(poison, "failed")
    database.wait_for_all(1)

    said = [effect.said for effect in database.effects() if effect.said is not None]
    assert said == [[str(poison), "PoisonJob"]]


def test_a_job_with_a_crash_on_record_runs_alone(
    database: Database, workers: Workers
) -> None:
    workers.start("-c", "4")
    crashed = database.enqueue_one("nap", 0.5, crashes=1)
    others = database.enqueue("nap", 0.1, count=8)

    database.wait_for(crashed)
    database.wait_for_all(9)

    (start,) = database.effects_of(crashed, "start")
    (end,) = database.effects_of(crashed, "end")
    for job in others:
        began = database.effects_of(job, "start")[0].at
        ended = database.effects_of(job, "end")[0].at
        assert ended < start.at or began > end.at


def test_a_killed_keeper_is_replaced_and_costs_nothing(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    worker = workers.start("-c", "2", LEASE=12)
    job = database.enqueue_one("gate", str(tmp_path / "open"))
    start = database.wait_for_start(job)
    keeper = worker.keeper_pid()

    os.kill(keeper, signal.SIGKILL)
    until(lambda: keeper not in {each.pid for each in worker.tree()})
    until(lambda: worker.keeper_pid() != keeper)
    expires = "SELECT max(lease_expires_at) FROM relay_worker"
    before = database.ask(expires)
    until(lambda: database.ask(expires) > before)
    until(lambda: database.ask(expires) > before)
    (tmp_path / "open").touch()
    database.wait_for(job)

    assert worker.child_pids() == [start.pid]
    assert len(database.effects_of(job, "start")) == 1
    assert worker.stop() == 0


def test_a_keeper_that_stands_still_costs_its_children_before_the_lease_ends(
    database: Database, workers: Workers
) -> None:
    worker = workers.start("-c", "1", LEASE=2 * SHORT_LEASE)
    job = database.enqueue_one("beat", 100_000, 0.02)
    start = database.wait_for_start(job)
    keeper = worker.keeper_pid()

    os.kill(keeper, signal.SIGSTOP)
    left_seconds = database.ask(
        "SELECT extract(epoch FROM lease_expires_at - clock_timestamp())::float "
        "FROM relay_worker WHERE pid = %s",
        start.pid,
    )
    lease_ends_at = time.monotonic() + left_seconds
    again = database.wait_for_start(job, count=2)

    beats = [each for each in database.effects_of(job) if each.pid == start.pid]
    assert beats[-1].at < lease_ends_at
    assert worker.keeper_pid() != keeper
    assert again.pid != start.pid
    row = database.job(job)
    assert (row["failures"], row["crashes"], row["losses"]) == (0, 0, 0)


def test_a_killed_parent_takes_all_its_processes_along(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    worker = workers.start("-c", "1", processes=2, LEASE=SHORT_LEASE)
    job = database.enqueue_one("beat", 1000, 0.05)
    database.wait_for_start(job)
    tree = worker.tree()

    worker.process.kill()
    worker.wait()
    until(lambda: not any(proc.is_same(each) for each in tree))
    lines = len(database.effects())
    workers.start("-c", "1", LEASE=SHORT_LEASE)
    database.wait_for_start(job, count=2)

    assert len(tree) == 3
    phases = [effect.attempt for effect in database.effects_of(job)]
    assert phases[:lines] == [1] * lines
    assert phases == sorted(phases)
    assert database.job(job)["losses"] == 1


def test_b19_a_handler_that_ends_its_process_is_charged_a_crash(
    database: Database, workers: Workers
) -> None:
    workers.start("-c", "1", CRASH_LIMIT=1)
    job = database.enqueue_one("leave", 3)

    database.wait_for(job, "failed")

    assert "ended with code 3" in database.job(job)["error_message"]

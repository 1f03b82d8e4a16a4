"""How idle workers come to a job: all at once, or without being told of it."""

from __future__ import annotations

import pytest

from tests.worker.harness import Database, Workers

pytestmark = pytest.mark.slow


def test_f17_jobs_that_wake_many_idle_children_start_once_each(
    database: Database, workers: Workers
) -> None:
    workers.start("-c", "1", processes=6, POLL_INTERVAL=30)

    for _ in range(20):
        database.wait_for(database.enqueue_one("quick"))

    starts = [each.job for each in database.effects()]
    assert len(starts) == len(set(starts)) == 20
    assert database.ask("SELECT max(attempt) FROM relay_job") == 1


def test_f18_j14_jobs_start_in_order_though_no_wake_up_is_ever_heard(
    database: Database, workers: Workers
) -> None:
    workers.start("-c", "1", POLL_INTERVAL=0.5)
    database.wait_for(database.enqueue_one("quick", wake=False))

    with database.session.transaction():
        low = database.enqueue("quick", count=20, wake=False)
        high = database.enqueue("quick", count=5, wake=False, priority=10)
    database.wait_for_all(26)

    starts = [each.job for each in database.effects()][1:]
    assert starts == [str(job) for job in (*high, *low)]

"""Real workers, transactional tasks: one row for each job, whoever is killed."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from uuid import UUID

import pytest

from relay.engine import control
from relay.exceptions import StateConflict
from tests.scale import scaled
from tests.worker.harness import SHORT_LEASE, Database, Worker, Workers, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def effects(database: Database) -> Iterator[None]:
    """Make the table that tests.worker.tasks.transact writes to."""
    database.session.execute(
        "CREATE TABLE tests_effect (job uuid NOT NULL, attempt int NOT NULL)"
    )
    yield
    database.session.execute("DROP TABLE tests_effect")


@pytest.fixture
def workers(effects: None, workers: Workers) -> Workers:
    """End the workers before the table goes."""
    return workers


def rows_by_job(database: Database) -> Counter[UUID]:
    return Counter(
        job for (job,) in database.session.execute("SELECT job FROM tests_effect")
    )


def test_jobs_that_finish_by_themselves_are_let_go_of_without_a_second_finish(
    database: Database, workers: Workers
) -> None:
    worker = workers.start("-c", "4", processes=2, LEASE=30)

    transacted = database.enqueue("transact", 0.002, count=200)
    database.enqueue("quick", count=200)
    database.wait_for_all(400)

    assert rows_by_job(database) == Counter(transacted)
    assert worker.stop() == 0
    assert "lease lost" not in worker.text()
    assert "Traceback" not in worker.text()
    database.assert_nothing_charged()
    database.assert_nothing_started_twice()


def test_failure_034_a_job_cancelled_at_its_commit_has_a_row_only_if_it_completed(
    database: Database, workers: Workers
) -> None:
    workers.start("-c", "4", LEASE=30)
    jobs: list[UUID] = []

    for number in range(200):
        [job] = database.enqueue("transact", number % 20 / 1_000)
        jobs.append(job)
        until(lambda job=job: database.job(job)["state"] != "queued")
        with suppress(StateConflict):
            control.cancel(job, actor="ada", using="default")
    until(lambda: set(database.states()) <= {"completed", "cancelled"})

    rows = rows_by_job(database)
    completed = [job for job in jobs if database.job(job)["state"] == "completed"]
    assert rows == Counter(completed)
    database.assert_nothing_charged()


def strike(worker: Worker, dice: random.Random) -> None:
    """Kill a child, the keeper, or the parent and with it all of them."""
    kind = dice.choices(["child", "keeper", "parent"], [8, 2, 1])[0]
    children = worker.child_pids()
    if kind == "child" and children:
        kill(dice.choice(children))
    elif kind == "keeper":
        kill(worker.keeper_pid())
    else:
        worker.end()


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # it may have just ended by itself
        os.kill(pid, signal.SIGKILL)


def test_random_kills_leave_one_row_for_each_job(
    database: Database, workers: Workers
) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    print("seed", seed)  # noqa: T201 - shown if the test fails
    dice = random.Random(seed)
    settings = {"LEASE": SHORT_LEASE, "CRASH_LIMIT": 10_000, "LOSS_LIMIT": 10_000}
    alive = [workers.start("-c", "4", processes=2, **settings) for _ in range(2)]
    jobs: list[UUID] = []

    for _ in range(scaled(300, least=30)):
        for _ in range(10):
            jobs += database.enqueue("transact", dice.uniform(0, 0.05))
        until(lambda: "queued" not in database.states() or dice.random() < 0.1)
        place = dice.randrange(len(alive))
        strike(alive[place], dice)
        if alive[place].process.poll() is None:
            alive[place].wait_until_ready(2)
        else:
            alive[place] = workers.start("-c", "4", processes=2, **settings)
    database.wait_for_all(len(jobs))

    assert rows_by_job(database) == Counter(jobs)
    repeated = database.ask("SELECT count(*) FROM relay_job WHERE attempt > 1")
    assert repeated > 0

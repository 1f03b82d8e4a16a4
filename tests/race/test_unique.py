"""Unique keys under many hands: one row for a key, whoever comes, stops or dies."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from django.db import connection, transaction

from relay import (
    DuplicateJob,
    JobHandle,
    StateConflict,
    Unique,
    enqueue,
    enqueue_many,
    task,
)
from relay.engine import lease
from relay.engine.connection import EngineConnection, connect
from relay.engine.finish import Completed, read_finished, send_completed
from relay.ids import uuid7
from relay.models import Job
from tests.engine.rows import add_worker, claim, wait_until
from tests.worker.harness import ROOT, SHORT_LEASE, Database, Workers

pytestmark = [
    pytest.mark.django_db(transaction=True, available_apps=["relay"]),
    pytest.mark.slow,
]

T = TypeVar("T")
THREADS = 50
HOUR = timedelta(hours=1)


@task(name="tests:race-unique")
def sync(user_id: int, field: object = None) -> int:
    return user_id


def at_once(calls: list[Callable[[], T]]) -> list[T]:
    """Make all calls at the same time, each on its thread's own connection."""
    barrier = threading.Barrier(len(calls), timeout=60)

    def run(call: Callable[[], T]) -> T:
        try:
            connection.ensure_connection()
            barrier.wait()
            return call()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(run, c) for c in calls]]


MODES: dict[str, dict[str, Any]] = {
    "started": {"unique": Unique(until="started")},
    "finished": {"unique": Unique()},
    "window": {"unique": Unique(for_=HOUR)},
    "forever": {"unique": Unique(until="forever")},
    "chosen": {"unique": Unique(on=("user_id",))},
    "key": {"unique": Unique(key="invoice 7", until="forever")},
    "id": {"id": uuid7()},
    "replace": {"unique": Unique(on=("user_id",), on_conflict="replace")},
    "push": {"unique": Unique(due="push"), "run_in": HOUR},
}


@pytest.mark.parametrize("mode", MODES)
def test_failure_042_fifty_threads_enqueue_one_key_and_one_row_is_made(
    mode: str,
) -> None:
    bound = sync.using(**MODES[mode])
    inside = {"chosen": lambda number: (1, number), "replace": lambda n: (1, n)}
    arguments = inside.get(mode, lambda number: (1,))

    def enqueue(number: int) -> JobHandle[int]:
        if number % 2:
            return bound.enqueue(*arguments(number))
        with transaction.atomic():
            made = bound.enqueue(*arguments(number))
            Job.objects.count()  # the transaction is sound
            return made

    made = at_once([partial(enqueue, number) for number in range(THREADS)])

    assert Job.objects.count() == 1
    assert {handle.id for handle in made} == {Job.objects.get().pk}
    duplicates = sum(handle.is_duplicate for handle in made)
    assert duplicates == (0 if mode == "id" else THREADS - 1)


def test_failure_042_fifty_threads_and_forty_nine_are_refused() -> None:
    bound = sync.using(unique=Unique(on_conflict="raise"))

    def enqueue() -> tuple[str, Any]:
        try:
            return "made", bound.enqueue(1).id
        except DuplicateJob as refused:
            return "refused", refused.job_id

    made = at_once([enqueue] * THREADS)

    assert Counter(how for how, _ in made) == {"made": 1, "refused": THREADS - 1}
    assert {job_id for _, job_id in made} == {Job.objects.get().pk}


def test_a_window_that_has_ended_is_given_to_one() -> None:
    bound = sync.using(unique=Unique(for_=HOUR))
    old = bound.enqueue(1)
    old.cancel()
    Job.objects.update(unique_until=datetime(2020, 1, 1, tzinfo=UTC))

    made = at_once([lambda: bound.enqueue(1)] * THREADS)

    assert Job.objects.count() == 2
    assert old.id not in {handle.id for handle in made}
    assert len({handle.id for handle in made}) == 1
    assert sum(not handle.is_duplicate for handle in made) == 1


def test_bulks_in_opposite_orders_never_deadlock() -> None:
    users = list(range(300))
    bulks = []
    for number in range(8):
        order = users[:: 1 if number % 2 else -1]
        if number > 3:
            random.Random(number).shuffle(order)
        bulks.append(order)
    rules = [Unique(), Unique(on_conflict="replace", until="finished")]

    def run(number: int) -> list[JobHandle[int]]:
        bound = sync.using(unique=rules[number % 2])
        made = []
        for turn in range(5):
            jobs = [bound.job(turn * len(users) + user) for user in bulks[number]]
            made += enqueue_many(jobs)
        return made

    made = at_once([partial(run, number) for number in range(len(bulks))])

    assert Job.objects.count() == 5 * len(users)
    told = Counter(handle.id for handles in made for handle in handles)
    assert set(told.values()) == {len(bulks)}
    is_new = [not handle.is_duplicate for handles in made for handle in handles]
    assert sum(is_new) == 5 * len(users)


def run_jobs(session: EngineConnection, stop: threading.Event) -> None:
    """Claim and complete, as a worker does, until told to stop."""
    worker_id = add_worker(session)
    while not stop.is_set():
        done = [
            Completed(job.id, job.attempt, "1", None)
            for job in claim(session, worker_id, limit=100)
        ]
        if done:
            read_finished(send_completed(session, done, worker_id=worker_id))


@pytest.mark.parametrize(
    "rule",
    [
        Unique(until="started"),
        Unique(),
        Unique(on=("user_id",), on_conflict="replace"),
        Unique(on=("user_id",), on_conflict="replace", due="push"),
    ],
    ids=["started", "finished", "replace", "push"],
)
def test_j15_keys_change_hands_while_jobs_run_and_none_is_shared_or_lost(
    hot: EngineConnection, duty: EngineConnection, rule: Unique
) -> None:
    stop = threading.Event()
    bound = sync.using(unique=rule)

    def enqueue(number: int) -> list[JobHandle[int]]:
        return [bound.enqueue(turn % 3, number) for turn in range(100)]

    with ThreadPoolExecutor() as pool:
        worker = pool.submit(run_jobs, hot, stop)
        try:
            made = at_once([partial(enqueue, number) for number in range(8)])
            wait_until(
                duty,
                "NOT EXISTS (SELECT FROM relay_job WHERE state <> 'completed')",
            )
        finally:
            stop.set()
        worker.result(timeout=60)

    handles = [handle for one in made for handle in one]
    new = [handle.id for handle in handles if not handle.is_duplicate]
    assert len(new) == len(set(new)) == Job.objects.count()
    assert {handle.id for handle in handles} == set(new)
    assert Job.objects.filter(unique_key__isnull=False).count() == 0


def test_retry_and_enqueue_race_for_the_key_and_one_has_it() -> None:
    bound = sync.using(unique=Unique())

    def retry(job: JobHandle[int]) -> bool:
        try:
            job.retry()
        except StateConflict:
            return False
        return True

    def make(user: int) -> bool:
        return not bound.enqueue(user).is_duplicate

    for turn in range(30):
        old = bound.enqueue(turn)
        old.cancel()

        is_retried, is_made = at_once([partial(retry, old), partial(make, turn)])

        assert is_retried != is_made
        assert Job.objects.filter(state="queued").count() == turn + 1


ENQUEUE_AND_WAIT = """
import django, sys
django.setup()
from django.db import transaction
from relay import Unique, enqueue
with transaction.atomic():
    enqueue("tests:race-unique", kwargs={"user_id": 1}, unique=Unique(key="k"))
    print("enqueued", flush=True)
    sys.stdin.read()
"""


def test_a_key_goes_with_the_killed_process_that_was_enqueueing_it(
    duty: EngineConnection,
) -> None:
    parameters = connection.get_connection_params()
    url = f"postgresql://{parameters['user']}@/{parameters['dbname']}"
    environment = {
        **Workers.base_environment(),
        "DATABASE_URL": f"{url}?host={parameters['host']}",
        "WORKER_TESTS_RELAY": "{}",
        "WORKER_TESTS_EFFECTS": os.devnull,
    }
    with subprocess.Popen(
        [sys.executable, "-c", ENQUEUE_AND_WAIT],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "enqueued\n"
        process.send_signal(signal.SIGKILL)

    made = sync.using(unique=Unique(key="k")).enqueue(1)

    assert not made.is_duplicate
    assert Job.objects.count() == 1


def test_a_worker_killed_at_its_unique_job_neither_loses_nor_leaks_the_key(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    gate = str(tmp_path / "open")

    def add() -> JobHandle[Any]:
        return enqueue("tests.worker.tasks.gate", gate, unique=Unique())

    worker = workers.start("-c", "1", LEASE=SHORT_LEASE)
    first = add()
    start = database.wait_for_start(first.id)
    os.kill(start.pid, signal.SIGKILL)
    after_child = add()
    database.wait_for_start(first.id, count=2)
    worker.end()
    after_worker = add()
    workers.start("-c", "1", LEASE=SHORT_LEASE)
    database.wait_for_start(first.id, count=3)
    again = add()
    (tmp_path / "open").touch()
    database.wait_for(first.id)

    assert {after_child.id, after_worker.id, again.id} == {first.id}
    assert not add().is_duplicate


def test_a_key_is_neither_lost_nor_leaked_by_a_worker_s_death(
    duty: EngineConnection,
) -> None:
    bound = sync.using(unique=Unique())
    first = bound.enqueue(1)
    with connect("default", role="hot", name="victim") as victim:
        worker_id = add_worker(victim, lease_for=timedelta(seconds=-1))
        claim(victim, worker_id)

    while_held = bound.enqueue(1)
    assert lease.give_up(duty) == [worker_id]
    lease.take(duty, worker_id, loss_limit=10)
    while_taken = bound.enqueue(1)
    with connect("default", role="hot", name="heir") as heir:
        heir_id = add_worker(heir)
        [job] = claim(heir, heir_id)
        done = [Completed(job.id, job.attempt, "1", None)]
        assert read_finished(send_completed(heir, done, worker_id=heir_id))

    assert {while_held.id, while_taken.id} == {first.id}
    assert not bound.enqueue(1).is_duplicate

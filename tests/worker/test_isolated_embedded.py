"""Isolated tasks under a worker inside a web process, whose nursery is spawned."""

from __future__ import annotations

import base64
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import proc
from tests.worker.harness import Database, Workers, until
from tests.worker.sites import Site, Sites

pytestmark = pytest.mark.slow

TASKS = "tests.worker.apart.tasks"


@pytest.fixture
def sites(database: Database, workers: Workers, tmp_path: Path) -> Iterator[Sites]:
    made = Sites(database, workers, tmp_path)
    yield made
    made.end()


def start(sites: Sites, **options: Any) -> Site:
    return sites.start(
        options=options,
        environment={"WORKER_TESTS_APP": "tests.worker.apart"},
        ENCRYPTION_KEYS={"one": base64.b64encode(bytes(32)).decode()},
    )


def test_isolated_jobs_run_beside_the_web_process_and_crash_alone(
    database: Database, sites: Sites, tmp_path: Path
) -> None:
    site = start(sites)
    neighbour = database.enqueue_one("gate", str(tmp_path / "open"))
    database.wait_for_start(neighbour)

    job = database.enqueue_one(f"{TASKS}.die", "segfault", 1)
    database.wait_for(job)
    (tmp_path / "open").touch()
    database.wait_for(neighbour)

    assert site.pid not in {effect.pid for effect in database.effects_of(job)}
    row = database.job(job)
    assert (row["attempt"], row["crashes"], row["failures"]) == (2, 1, 0)
    assert database.job(neighbour)["attempt"] == 1
    assert site.stop() == 0
    site.wait_until_all_is_gone()


def test_its_nursery_is_started_again(database: Database, sites: Sites) -> None:
    start(sites)

    job = database.enqueue_one(f"{TASKS}.kill_the_nursery")
    database.wait_for(job)

    row = database.job(job)
    assert (row["attempt"], row["crashes"]) == (2, 1)


def test_what_outlives_the_grace_is_interrupted_and_released_uncharged(
    database: Database, sites: Sites
) -> None:
    site = start(sites, grace=0.1, concurrency=3)
    jobs = [
        database.enqueue_one(f"{TASKS}.hold_interpreter"),
        database.enqueue_one(f"{TASKS}.anap", 600),
        database.enqueue_one(f"{TASKS}.nap", 600),
    ]
    started = [database.wait_for_start(job) for job in jobs]

    assert site.stop() == 0

    for job in jobs:
        row = database.job(job)
        assert (row["state"], row["worker_id"]) == ("queued", None)
    database.assert_nothing_charged()
    for effect in started:
        until(lambda effect=effect: effect.pid not in proc.scan())


def test_isolated_processes_end_with_a_web_process_that_is_killed(
    database: Database, sites: Sites
) -> None:
    site = start(sites)
    job = database.enqueue_one(f"{TASKS}.run_program")
    started = database.wait_for_start(job)

    os.kill(site.pid, signal.SIGKILL)

    for pid in (started.pid, started.said):
        until(lambda pid=pid: pid not in proc.scan(), what=f"{pid} gone")

"""A paused queue starts nothing, whatever would bring its jobs to a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relay.engine import pause
from tests.worker.harness import SHORT_LEASE, Database, Workers, until

pytestmark = pytest.mark.slow


def test_failure_045_a_paused_queue_starts_nothing_until_it_is_resumed(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    queues = ("-q", "default,mail")
    relay: dict[str, Any] = {"QUEUES": ["mail"], "LEASE": SHORT_LEASE}
    first = workers.start("-c", "2", *queues, **relay)
    going_on = database.enqueue_one("gate", str(tmp_path / "open"), queue="mail")
    database.wait_for_start(going_on)
    pause.pause("mail", actor="ada", using="default", known=["mail"])

    jobs = [
        *database.enqueue("quick", count=3, queue="mail"),
        *database.enqueue("quick", count=2, queue="mail", state="scheduled"),
        *database.enqueue("quick", count=2, queue="mail", state="retrying"),
    ]
    # Its worker goes: what ran comes back by the lease; the others start anew.
    first.end()
    second = workers.start("-c", "2", *queues, **relay)
    until(lambda: [database.job(one)["state"] for one in jobs] == ["queued"] * 7)
    until(lambda: database.job(going_on)["state"] == "queued")
    # Each pass of the loop and its poll goes by the queue: others are served.
    for _ in range(5):
        database.wait_for(database.enqueue_one("quick", wake=False))
    workers.start("-c", "2", *queues, **relay)
    assert second.stop() == 0
    for _ in range(5):
        database.wait_for(database.enqueue_one("quick", wake=False))

    assert [database.effects_of(one) for one in jobs] == [[]] * 7
    assert len(database.effects_of(going_on, "start")) == 1
    (tmp_path / "open").touch()
    assert pause.resume("mail", actor="ada", using="default")
    for one in (*jobs, going_on):
        database.wait_for(one)


def test_failure_105_a_worker_of_its_own_starts_urgent_jobs_beside_slow_ones(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    workers.start("-c", "2", "-q", "critical,default", QUEUES=["critical"])
    slow = database.enqueue("gate", str(tmp_path / "open"), count=6)
    until(lambda: len([e for e in database.effects() if e.phase == "start"]) == 2)
    held_up = database.enqueue_one("quick", queue="critical")
    workers.start("-c", "1", "-q", "critical", QUEUES=["critical"])

    database.wait_for(held_up)

    assert [database.effects_of(one, "end") for one in slow] == [[]] * 6
    (tmp_path / "open").touch()
    for one in slow:
        database.wait_for(one)

"""What operators ask of real workers: be quiet, go on, stop."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from relay import operations
from relay.operations import Actor
from tests.worker.harness import Database, Workers, until

pytestmark = pytest.mark.slow

ROOT = Actor(name="root", source="cli")


def states(database: Database) -> list[tuple[Any, ...]]:
    return database.session.execute(
        "SELECT state, asked IS NULL FROM relay_worker "
        "WHERE state NOT IN ('stopped', 'lost') ORDER BY name"
    ).fetchall()


def any_row(database: Database) -> UUID:
    found: UUID = database.ask(
        "SELECT id FROM relay_worker WHERE state NOT IN ('stopped', 'lost') LIMIT 1"
    )
    return found


def test_a_quiet_worker_finishes_claims_nothing_and_goes_on_when_told(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    worker = workers.start("-c", "1", processes=2)
    gates = database.enqueue("gate", str(tmp_path / "open"), count=2)
    for gate in gates:
        database.wait_for_start(gate)

    operations.quiet_worker(ROOT, any_row(database))
    until(lambda: states(database) == [("quiet", True)] * 2)
    waiting = database.enqueue("quick", count=3)
    (tmp_path / "open").touch()
    for gate in gates:
        database.wait_for(gate)
    # A child that takes the place of another is as quiet.
    first, second = worker.child_pids()
    os.kill(first, signal.SIGKILL)
    until(lambda: len(pids := worker.child_pids()) == 2 and first not in pids)
    assert second in worker.child_pids()
    assert states(database) == [("quiet", True)] * 2
    assert [database.job(one)["state"] for one in waiting] == ["queued"] * 3

    operations.resume_worker(ROOT, any_row(database))

    for one in waiting:
        database.wait_for(one)
    until(lambda: states(database) == [("running", True)] * 2)
    assert worker.stop() == 0


def test_a_worker_that_is_stopped_drains_and_ends_well(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    worker = workers.start("-c", "1", processes=2)
    gate = database.enqueue_one("gate", str(tmp_path / "open"))
    database.wait_for_start(gate)

    operations.stop_worker(ROOT, any_row(database))
    until(lambda: ("draining",) in [row[:1] for row in states(database)])
    assert worker.process.poll() is None
    (tmp_path / "open").touch()

    until(lambda: worker.process.poll() is not None)
    assert worker.process.returncode == 0
    database.wait_for(gate)
    assert states(database) == []
    database.assert_nothing_charged()


def test_a_keeper_that_dies_leaves_the_worker_quiet(
    database: Database, workers: Workers
) -> None:
    worker = workers.start("-c", "1")
    operations.quiet_worker(ROOT, any_row(database))
    until(lambda: states(database) == [("quiet", True)])
    children, keeper = worker.child_pids(), worker.keeper_pid()

    os.kill(keeper, signal.SIGKILL)
    until(lambda: worker.keeper_pid() != keeper)
    waiting = database.enqueue_one("quick")
    # Another keeper does what only a keeper can.
    operations.resume_worker(ROOT, any_row(database))

    database.wait_for(waiting)
    assert worker.child_pids() == children

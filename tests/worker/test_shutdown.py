"""Signals, the drain, and what is left of a worker's jobs after it."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.chaos import proc
from tests.scale import scaled
from tests.worker.harness import Database, Workers, until

pytestmark = pytest.mark.slow


def test_a_drain_finishes_what_runs_and_releases_what_has_not_started(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    worker = workers.start("-c", "2")
    running = database.enqueue("gate", str(tmp_path / "open"), count=2)
    for job in running:
        database.wait_for_start(job)
    waiting = database.enqueue("quick", count=5)

    worker.send(signal.SIGTERM)
    until(lambda: "draining" in worker.text())
    (tmp_path / "open").touch()

    assert worker.wait() == 0
    assert [database.job(job)["state"] for job in running] == ["completed"] * 2
    assert [database.job(job)["state"] for job in waiting] == ["queued"] * 5
    assert (
        database.ask("SELECT count(*) FROM relay_worker WHERE state <> 'stopped'") == 0
    )
    database.assert_nothing_charged()


def test_b18_what_outlives_the_grace_is_killed_and_released_uncharged(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    worker = workers.start("-c", "2", "--grace", "0.5")
    jobs = database.enqueue("gate", str(tmp_path / "never"), count=2)
    for job in jobs:
        database.wait_for_start(job)

    assert worker.stop() == 0  # though the handlers would never end

    for job in jobs:
        row = database.job(job)
        assert row["state"] == "queued"
        assert (row["failures"], row["crashes"], row["losses"]) == (0, 0, 0)
        assert row["attempt"] == 1


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_hands_back_at_once(
    database: Database, workers: Workers, tmp_path: Path, second: signal.Signals
) -> None:
    worker = workers.start("-c", "1", "--grace", "600")
    job = database.enqueue_one("gate", str(tmp_path / "never"))
    database.wait_for_start(job)

    worker.send(signal.SIGTERM)
    until(lambda: "draining" in worker.text())
    worker.send(second)

    assert worker.wait() == 0
    row = database.job(job)
    assert row["state"] == "queued"
    assert (row["failures"], row["crashes"], row["losses"]) == (0, 0, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_drains_too(
    database: Database, workers: Workers, tmp_path: Path, number: signal.Signals
) -> None:
    """As systemd's default sends it, and Ctrl-C in a terminal."""
    worker = workers.start("-c", "1", processes=2)
    job = database.enqueue_one("gate", str(tmp_path / "open"))
    database.wait_for_start(job)

    os.killpg(worker.pid, number)
    until(lambda: "draining" in worker.text())
    (tmp_path / "open").touch()

    assert worker.wait() == 0
    assert database.job(job)["state"] == "completed"
    assert len(database.effects_of(job, "start")) == 1


def test_the_end_of_a_terminal_drains_however_often_it_is_told(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    # Whatever these tests run in: the worker is to inherit that.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        worker = workers.start("-c", "1")
    finally:
        signal.signal(signal.SIGHUP, before)
    job = database.enqueue_one("gate", str(tmp_path / "open"))
    database.wait_for_start(job)

    os.killpg(worker.pid, signal.SIGHUP)
    until(lambda: "draining" in worker.text())
    os.killpg(worker.pid, signal.SIGHUP)
    (tmp_path / "open").touch()

    assert worker.wait() == 0
    assert database.job(job)["state"] == "completed"
    assert len(database.effects_of(job, "start")) == 1


# The first terminal that a session's leader opens is the session's.
ON_A_TERMINAL = """
import os, sys
terminal = os.open(sys.argv[1], os.O_RDWR)
for descriptor in range(3):
    os.dup2(terminal, descriptor)
os.close(terminal)
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_jobs_that_print_once_their_terminal_is_gone_complete(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    ours, theirs = os.openpty()
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        worker = workers.start(
            *("-c", "2"),
            prefix=(sys.executable, "-c", ON_A_TERMINAL, os.ttyname(theirs)),
            environment={"WORKER_TESTS_APP": "tests.worker.shown"},
        )
    finally:
        signal.signal(signal.SIGHUP, before)
        os.close(theirs)
    jobs = [
        database.enqueue_one(
            f"tests.worker.shown.tasks.{name}", str(tmp_path / "open"), max_retries=0
        )
        for name in ("print_late", "print_late_apart")
    ]
    for job in jobs:
        database.wait_for_start(job)

    shown = b""
    while b"serving default" not in shown:
        shown += os.read(ours, 1 << 16)
    os.close(ours)
    until(lambda: database.ask("SELECT bool_or(state = 'draining') FROM relay_worker"))
    (tmp_path / "open").touch()

    assert worker.wait() == 0
    assert [database.job(job)["state"] for job in jobs] == ["completed"] * 2
    database.assert_nothing_charged()


def test_a_child_asked_to_end_finishes_its_job_and_is_replaced(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    worker = workers.start("-c", "1")
    job = database.enqueue_one("gate", str(tmp_path / "open"))
    start = database.wait_for_start(job)

    os.kill(start.pid, signal.SIGTERM)
    (tmp_path / "open").touch()
    database.wait_for(job)
    until(lambda: start.pid not in {each.pid for each in worker.tree()})
    after = database.enqueue_one("quick")
    database.wait_for(after)

    database.assert_nothing_charged()
    assert database.job(job)["attempt"] == 1


def test_failure_030_a_run_is_dead_before_its_job_is_released(
    database: Database, workers: Workers
) -> None:
    worker = workers.start("-c", "1", "--grace", "0.5")
    job = database.enqueue_one("beat", 1000, 0.02)
    database.wait_for_start(job)
    workers.start("-c", "1")

    assert worker.stop() == 0
    database.wait_for_start(job, count=2)
    lines = len(database.effects())
    until(lambda: len(database.effects()) > lines + 20)

    attempts = [effect.attempt for effect in database.effects_of(job)]
    assert attempts == sorted(attempts)  # the lines of two runs never interleave
    assert set(attempts) == {1, 2}


@pytest.mark.timeout(600)  # at full size
def test_failure_031_a_job_that_ends_as_the_worker_stops_runs_once(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    rounds = scaled(100, least=5)
    for number in range(rounds):
        worker = workers.start("-c", "2", "--grace", "60")
        door = tmp_path / f"open{number}"
        job = database.enqueue_one("gate", str(door), max_retries=0)
        database.wait_for_start(job)

        door.touch()
        until(lambda job=job: database.effects_of(job, "end"))  # type: ignore[misc]  # a default binds the loop's variable
        assert worker.stop() == 0

        assert database.job(job)["state"] == "completed"
        assert len(database.effects_of(job, "start")) == 1
    assert database.states() == {"completed": rounds}
    assert database.ask("SELECT max(attempt) FROM relay_job") == 1


@pytest.mark.timeout(600)  # at full size
def test_failure_061_a_signal_at_any_moment_of_a_claim_leaves_no_job_behind(
    database: Database, workers: Workers
) -> None:
    rng = random.Random(61)
    for _ in range(scaled(200, least=5)):
        worker = workers.start("-c", "2", is_awaited=False)
        until(lambda worker=worker: "started" in worker.text())  # type: ignore[misc]  # a default binds the loop's variable
        job = database.enqueue_one("quick")
        moment = time.monotonic() + rng.random() * 0.4
        until(lambda moment=moment: time.monotonic() >= moment)  # type: ignore[misc]  # a default binds the loop's variable

        assert worker.stop() == 0

        assert "Traceback" not in worker.text()
        assert database.job(job)["state"] in ("queued", "completed")
    database.assert_nothing_charged()


def test_b18_failure_091_deploys_charge_nothing(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    job = database.enqueue_one("gate", str(tmp_path / "open"), max_retries=1)
    for number in range(5):
        worker = workers.start("-c", "1", "--grace", "0")
        database.wait_for_start(job, count=number + 1)
        assert worker.stop() == 0
    (tmp_path / "open").touch()
    workers.start("-c", "1")
    database.wait_for(job)

    row = database.job(job)
    assert (row["failures"], row["crashes"], row["losses"]) == (0, 0, 0)
    assert row["attempt"] == 6
    releases = database.ask(
        "SELECT count(*) FROM relay_history WHERE job_id = %s AND event = 'release'",
        job,
    )
    assert releases == 5


def test_failure_121_process_1_drains_and_reaps_what_it_adopts(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    worker = workers.start("-c", "1", prefix=process_1(), is_awaited=False)
    orphans = database.enqueue_one("leave_orphans", 10)
    database.wait_for(orphans)
    job = database.enqueue_one("gate", str(tmp_path / "open"))
    database.wait_for_start(job)
    (first,) = proc.children_of(worker.pid, proc.scan())

    until(lambda: not zombies_of(first.pid), what="no zombies")
    os.kill(first.pid, signal.SIGTERM)
    until(lambda: "draining" in worker.text())
    (tmp_path / "open").touch()

    assert worker.wait() == 0
    assert database.job(job)["state"] == "completed"


def process_1() -> tuple[str, ...]:
    """Return what makes a command process 1 of a namespace of its own."""
    prefix = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid():
        prefix += ["--user", "--map-root-user"]
    if shutil.which("unshare") is None or subprocess.call([*prefix, "true"]):
        pytest.skip("this machine gives out no process namespaces")
    return tuple(prefix)


def zombies_of(pid: int) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            text = path.read_text(errors="replace")
            state, parent = text[text.rindex(")") + 2 :].split()[:2]
            if state == "Z" and int(parent) == pid:
                found.append(text)
    return found

"""What befalls an embedded worker that relay_worker would answer by a kill."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.harness import Database, Workers, until
from tests.worker.proxy import Proxy
from tests.worker.sites import Sites

pytestmark = pytest.mark.slow


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    made = Proxy(database.dsn)
    yield made
    made.close()


def test_failure_059_handlers_are_interrupted_before_their_lease_may_have_run_out(
    database: Database, sites: Sites, workers: Workers, proxy: Proxy
) -> None:
    site = sites.start(environment={"DATABASE_URL": proxy.dsn}, LEASE=8)
    job = database.enqueue_one("beat", 150, 0.1)
    database.wait_for_start(job)
    (before,) = site.workers()
    workers.start("-c", "2", LEASE=8)

    proxy.loses_answers.set()
    again = database.wait_for_start(job, count=2)
    proxy.cut()
    database.wait_for(job)
    until(lambda: [row["id"] for row in site.workers()] != [before["id"]])
    site.wait_until_ready()

    first = [each for each in database.effects_of(job) if each.attempt == 1]
    assert max(each.at for each in first) < again.at
    assert "end" not in {each.phase for each in first}
    row = database.job(job)
    assert (row["failures"], row["crashes"], row["losses"]) == (0, 0, 1)


def test_a_helper_that_stands_still_is_replaced(
    database: Database, sites: Sites, tmp_path: Path
) -> None:
    site = sites.start(LEASE=6)
    helper = site.helper_pid()

    os.kill(helper, signal.SIGSTOP)
    until(lambda: site.helper_pid() != helper, what="another helper")
    assert "stands still" in site.text()
    database.wait_for(database.enqueue_one("quick"))

    assert site.helper_pid() != helper


def test_a_loop_that_fails_is_replaced_and_its_jobs_are_charged_a_crash(
    database: Database, sites: Sites
) -> None:
    site = sites.start()
    (before,) = site.workers()

    job = database.enqueue_one("break_the_loop")
    database.wait_for(job)

    (after,) = site.workers()
    assert after["id"] != before["id"]
    row = database.job(job)
    assert (row["attempt"], row["crashes"], row["failures"]) == (2, 1, 0)


def test_jobs_that_wait_in_a_loop_that_fails_start_in_the_next_one_only(
    database: Database, sites: Sites
) -> None:
    # The first ones have the worker claim those behind ahead.
    before = database.enqueue("quick", count=60)
    database.enqueue_one("break_the_loop")
    behind = database.enqueue("quick", count=20)
    sites.start(options={"concurrency": 1})

    for job in (*before, *behind):
        database.wait_for(job, seconds=60)

    starts = [each.phase for job in behind for each in database.effects_of(job)]
    assert starts.count("start") == len(behind)
    assert {database.job(job)["crashes"] for job in behind} == {0}


def test_a_web_process_that_holds_no_job_leaves_a_stopped_row_when_killed(
    database: Database, sites: Sites
) -> None:
    site = sites.start()
    (row,) = site.workers()

    os.kill(site.pid, signal.SIGKILL)
    site.wait()
    site.wait_until_all_is_gone()

    state = "SELECT state FROM relay_worker WHERE id = %s"
    assert database.ask(state, row["id"]) == "stopped"


def test_a_drain_that_a_kill_cuts_short_charges_nothing(
    database: Database, sites: Sites
) -> None:
    site = sites.start(options={"grace": 60})
    job = database.enqueue_one("nap", 600.0)
    database.wait_for_start(job)

    os.kill(site.pid, signal.SIGTERM)
    until(lambda: "draining" in site.text())
    os.kill(site.pid, signal.SIGKILL)
    site.wait()
    database.wait_for(job, "queued")

    database.assert_nothing_charged()

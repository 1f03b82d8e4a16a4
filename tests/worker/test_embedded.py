"""A worker inside a web process: its jobs, its ends, and the ends of its helper."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from relay import operations
from relay.models import BulkOperation
from relay.operations import Actor
from tests.worker.harness import SHORT_LEASE, Database, Workers, until
from tests.worker.sites import Site, Sites

pytestmark = pytest.mark.slow


def test_jobs_run_in_the_web_process(database: Database, sites: Sites) -> None:
    site = sites.start()

    plain = database.enqueue_one("use_orm")
    coroutine = database.enqueue_one("use_orm_from_coroutine")
    database.wait_for(plain)
    database.wait_for(coroutine)

    (row,) = site.workers()
    assert row["pid"] == site.pid
    assert {effect.pid for effect in database.effects()} == {site.pid}

    root = Actor(name="root", source="cli")
    operations.pause_queue(root, "default")
    made = operations.start_bulk(root, "delete", "state:completed")
    until(lambda: BulkOperation.objects.get(pk=made.pk).done == 2)


def test_a_second_start_gives_the_same_worker(database: Database, sites: Sites) -> None:
    site = sites.start()

    assert site.ask("/start") is True
    assert len(site.workers()) == 1
    assert site.ask("/report")["threads"].count("relay-embedded") == 1


def test_a_running_job_finishes_while_the_process_exits(
    database: Database, sites: Sites
) -> None:
    site = sites.start(options={"grace": 30})
    plain = database.enqueue_one("nap", 1.0)
    coroutine = database.enqueue_one("anap", 1.0)
    database.wait_for_start(plain)
    database.wait_for_start(coroutine)

    assert site.stop() == 0

    for job in (plain, coroutine):
        assert database.job(job)["state"] == "completed"
        assert database.job(job)["attempt"] == 1
    assert [row["state"] for row in site.workers("running", "stopped")] == ["stopped"]
    site.wait_until_all_is_gone()


def test_a_coroutine_goes_on_using_threads_while_the_process_exits(
    database: Database, sites: Sites
) -> None:
    site = sites.start(options={"grace": 30})
    job = database.enqueue_one("ask_in_threads_for", 2.0)
    database.wait_for_start(job)

    assert site.stop() == 0

    assert database.job(job)["state"] == "completed"


def test_jobs_past_the_grace_are_interrupted_and_handed_back_uncharged(
    database: Database, sites: Sites
) -> None:
    site = sites.start(options={"grace": 0.1})
    plain = database.enqueue_one("beat", 6_000, 0.1)
    coroutine = database.enqueue_one("anap", 600.0)
    database.wait_for_start(plain)
    database.wait_for_start(coroutine)

    assert site.stop() == 0

    for job in (plain, coroutine):
        row = database.job(job)
        assert (row["state"], row["worker_id"]) == ("queued", None)
    database.assert_nothing_charged()
    assert [row["state"] for row in site.workers("running", "stopped")] == ["stopped"]


def test_failure_030_a_job_that_cannot_be_stopped_goes_back_once_the_process_ended(
    database: Database, sites: Sites
) -> None:
    site = sites.start(options={"grace": 0.1})
    job = database.enqueue_one("nap", 600.0)
    database.wait_for_start(job)

    os.kill(site.pid, signal.SIGTERM)
    until(lambda: "jobs go on past the grace" in site.text())
    site.wait()
    database.wait_for(job, "queued")

    assert database.job(job)["worker_id"] is None
    database.assert_nothing_charged()
    site.wait_until_all_is_gone()


def test_the_jobs_of_a_killed_web_process_are_taken_by_another_worker(
    database: Database, sites: Sites, workers: Workers, tmp_path: Path
) -> None:
    site = sites.start(LEASE=300)
    job = database.enqueue_one("gate", str(tmp_path / "open"))
    database.wait_for_start(job)
    other = workers.start("-c", "1", LEASE=300)

    os.kill(site.pid, signal.SIGKILL)
    again = database.wait_for_start(job, count=2)  # no lease is waited for
    (tmp_path / "open").touch()
    database.wait_for(job)

    assert again.pid in other.child_pids()
    assert (database.job(job)["crashes"], database.job(job)["losses"]) == (1, 0)
    site.wait()
    site.wait_until_all_is_gone()


def test_jobs_come_back_after_the_lease_where_the_helper_dies_too(
    database: Database, sites: Sites, workers: Workers, tmp_path: Path
) -> None:
    site = sites.start(LEASE=SHORT_LEASE)
    job = database.enqueue_one("gate", str(tmp_path / "open"))
    database.wait_for_start(job)
    helper = site.helper_pid()
    workers.start("-c", "1", LEASE=SHORT_LEASE)

    os.kill(helper, signal.SIGSTOP)
    os.kill(site.pid, signal.SIGKILL)
    os.kill(helper, signal.SIGKILL)
    database.wait_for_start(job, count=2)
    (tmp_path / "open").touch()
    database.wait_for(job)

    assert (database.job(job)["crashes"], database.job(job)["losses"]) == (0, 1)


def test_a_dead_helper_is_replaced_and_no_job_is_doubled(
    database: Database, sites: Sites, workers: Workers, tmp_path: Path
) -> None:
    site = sites.start(LEASE=60)
    job = database.enqueue_one("gate", str(tmp_path / "open"))
    database.wait_for_start(job)
    other = workers.start("-c", "1", LEASE=60)
    (before,) = site.workers()
    helper = site.helper_pid()
    expiry = "SELECT lease_expires_at FROM relay_worker WHERE id = %s"
    seen = database.ask(expiry, before["id"])

    os.kill(helper, signal.SIGKILL)
    until(lambda: database.ask(expiry, before["id"]) > seen)
    another = site.helper_pid()
    (tmp_path / "open").touch()
    database.wait_for(job)

    assert another != helper
    assert [row["id"] for row in site.workers()] == [before["id"]]
    assert len(database.effects_of(job, "start")) == 1
    other.stop()
    later = database.enqueue_one("quick")
    database.wait_for(later)
    assert site.stop() == 0
    assert [row["state"] for row in site.workers("running", "stopped")] == ["stopped"]


def test_a_call_into_c_that_holds_the_interpreter_past_the_lease_runs_once(
    database: Database, sites: Sites, workers: Workers
) -> None:
    site = sites.start(LEASE=SHORT_LEASE)
    job = database.enqueue_one("hold_interpreter", 2.2 * SHORT_LEASE)
    database.wait_for_start(job)
    workers.start("-c", "2", LEASE=SHORT_LEASE)

    database.wait_for(job)

    assert database.effects_of(job, "end")[0].pid == site.pid
    assert len(database.effects_of(job, "start")) == 1
    assert database.job(job)["attempt"] == 1


def test_a_lost_lease_interrupts_the_jobs_and_a_new_worker_begins(
    database: Database, sites: Sites, tmp_path: Path
) -> None:
    site = sites.start(LEASE=2 * SHORT_LEASE)
    job = database.enqueue_one("gate", str(tmp_path / "open"))
    database.wait_for_start(job)
    (before,) = site.workers()

    database.session.execute(
        "UPDATE relay_worker SET state = 'lost' WHERE id = %s", (before["id"],)
    )
    database.wait_for_start(job, count=2)
    (tmp_path / "open").touch()
    database.wait_for(job)

    assert [effect.attempt for effect in database.effects_of(job, "end")] == [2]
    assert len(database.effects_of(job, "start")) == 2
    (after,) = site.workers()
    assert after["id"] != before["id"]
    assert database.job(job)["failures"] == 0


def test_failure_028_a_forked_process_has_no_worker_and_shares_no_connection(
    database: Database, sites: Sites
) -> None:
    site = sites.start()
    database.wait_for(database.enqueue_one("use_orm"))
    relays = set(site.ask("/relay"))

    forked = site.ask("/fork")

    assert len(relays) > 6
    assert set(site.ask("/report")["files"]) > relays
    assert not relays & set(forked["before"]["files"])
    assert forked["before"]["threads"] == []
    assert forked["started"] is True
    assert "relay-embedded" in forked["after"]["threads"]
    job = database.enqueue_one("quick")
    database.wait_for(job)
    assert database.effects_of(job)[0].pid == site.pid


def test_a_cancelled_job_stops_and_costs_its_worker_nothing(
    database: Database, sites: Sites
) -> None:
    site = sites.start()
    job = database.enqueue_one("beat", 6_000, 0.1)
    database.wait_for_start(job)
    (before,) = site.workers()

    database.session.execute(
        "UPDATE relay_job SET cancel_requested_at = now() WHERE id = %s", (job,)
    )
    database.wait_for(job, "cancelled")

    database.wait_for(database.enqueue_one("quick"))
    assert [row["id"] for row in site.workers()] == [before["id"]]


def test_a_job_that_runs_out_of_time_is_ended(database: Database, sites: Sites) -> None:
    sites.start()
    job = database.enqueue_one("beat", 600, 0.1, timeout_ms=500, max_retries=0)

    database.wait_for(job, "failed")

    assert database.job(job)["error_class"] == "JobTimeout"


def test_a_stopped_worker_takes_nothing_from_a_fork_and_another_may_start(
    database: Database, sites: Sites
) -> None:
    site = sites.start()
    assert site.ask("/stop") is True
    assert site.workers() == []

    before = set(site.ask("/report")["files"])

    forked = site.ask("/fork")

    lasting = before & set(site.ask("/report")["files"])
    assert any(name.startswith("socket:") for name in lasting)  # it listens
    assert lasting <= set(forked["before"]["files"])
    assert site.ask("/start") is True
    database.wait_for(database.enqueue_one("quick"))


# --- Django's own server ------------------------------------------------------------

WSGI = """
from tests.worker.web.application import application
"""


def run_server(sites: Sites, folder: Path, *more: str) -> Site:
    """Start runserver on a project whose wsgi.py may be edited."""
    folder.mkdir()
    (folder / "edited_wsgi.py").write_text(WSGI)
    return sites.start(
        *("-m", "testproject", "runserver", "127.0.0.1:0", *more),
        cwd=folder,
        environment={"WORKER_TESTS_WSGI": "edited_wsgi.application"},
    )


def edit(site: Site, file: Path) -> None:
    """Change a file until the reloader sees it: its first look is what it compares."""
    for number in range(20):
        file.write_text(f"{WSGI}\nchanged = {number}\n")
        with suppress(AssertionError):
            until(lambda: f"{file.name} changed, reloading" in site.text(), seconds=3)
            return
    raise AssertionError(f"the reloader sees no change\n{site.text()}")


def test_runserver_restarts_its_worker_when_the_code_changes(
    database: Database, sites: Sites, tmp_path: Path
) -> None:
    site = run_server(sites, tmp_path / "project")
    (before,) = site.workers()
    running = database.enqueue_one("nap", 2.0)
    database.wait_for_start(running)

    edit(site, tmp_path / "project" / "edited_wsgi.py")
    until(lambda: {row["id"] for row in site.workers()} - {before["id"]})

    (after,) = site.workers()
    assert before["pid"] != after["pid"] != site.pid
    assert database.job(running)["state"] == "completed"
    later = database.enqueue_one("quick")
    database.wait_for(later)
    assert [effect.pid for effect in database.effects_of(later)] == [after["pid"]]
    count = "SELECT count(*) FROM relay_worker WHERE state IN ('running', 'draining')"
    until(lambda: database.ask(count) == 1)


def test_runserver_without_its_reloader_has_one_worker(
    database: Database, sites: Sites, tmp_path: Path
) -> None:
    site = run_server(sites, tmp_path / "project", "--noreload")

    assert [row["pid"] for row in site.workers()] == [site.pid]


@pytest.mark.parametrize("command", ["check", "shell"])
def test_other_commands_start_no_worker(
    database: Database, sites: Sites, command: str
) -> None:
    code = "import tests.worker.web.application"
    run = f"{code}; from relay.worker.embedded import process"
    arguments = {
        "check": ("-c", f"import sys, django; sys.argv[1:] = ['check']; {run}"),
        "shell": ("-m", "testproject", "shell", "-v", "0", "-c", run),
    }[command]

    site = sites.start(*arguments, is_awaited=False)

    assert site.wait() == 0
    assert "no web server" in site.text()
    assert database.ask("SELECT count(*) FROM relay_worker") == 0


# --- ASGI ---------------------------------------------------------------------------


def test_an_asgi_lifespan_starts_the_worker_and_drains_it(
    database: Database, sites: Sites, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    site = sites.start("-m", "tests.worker.web.lifespan", str(stop))
    job = database.enqueue_one("nap", 1.0)
    database.wait_for_start(job)

    stop.touch()
    assert site.wait() == 0

    assert database.job(job)["state"] == "completed"
    assert [row["state"] for row in site.workers("running", "stopped")] == ["stopped"]
    assert "answers: lifespan.startup.complete lifespan.shutdown.complete" in (
        site.text()
    )


def test_an_asgi_server_without_lifespan_starts_the_worker_at_a_request(
    database: Database, sites: Sites, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    site = sites.start("-m", "tests.worker.web.lifespan", str(stop), "without")
    database.wait_for(database.enqueue_one("quick"))

    stop.touch()
    assert site.wait() == 0

    assert [row["state"] for row in site.workers("running", "stopped")] == ["stopped"]

"""What an operator asks of relay_worker on its command line."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.chaos import proc
from tests.engine import rows
from tests.scale import scaled
from tests.worker.harness import ROOT, Database, Workers, until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("queues", "said"),
    [
        ("nowhere", "unknown queue 'nowhere'"),
        ("default,nowhere:3", "unknown queue 'nowhere'"),
        ("", "cannot name a queue"),
        ("default,", "cannot name a queue"),
        ("default,default", "named twice"),
        ("default:0", "weight 0"),
        ("default:many", "weight 'many' of queue 'default'"),
    ],
)
def test_queues_that_cannot_be_served_are_refused_at_the_start(
    database: Database, workers: Workers, queues: str, said: str
) -> None:
    worker = workers.start("-q", queues, is_awaited=False)

    assert worker.wait() != 0
    assert said in worker.text()
    assert database.ask("SELECT count(*) FROM relay_worker") == 0


def test_a_worker_serves_the_queues_it_was_given_and_no_other(
    database: Database, workers: Workers
) -> None:
    database.session.execute("INSERT INTO relay_queue (name) VALUES ('mail')")
    database.session.execute(
        "INSERT INTO relay_schedule (id, name, task, cron, args, next_due_at) "
        "VALUES (gen_random_uuid(), 'odd', 'no.task', '0 0 1 1 *', '{}', '2999-01-01')"
    )
    worker = workers.start("-q", "mail:3")
    other = database.enqueue_one("quick")
    mail = database.enqueue_one("quick", queue="mail")

    database.wait_for(mail)

    assert database.job(other)["state"] == "queued"
    assert database.ask("SELECT queues FROM relay_worker") == ["mail", "_relay"]
    # The system checks of a start, from the keeper.
    until(lambda: "'odd' names the task 'no.task', which is not" in worker.text())


def test_a_child_is_replaced_after_so_many_jobs(
    database: Database, workers: Workers
) -> None:
    worker = workers.start("-c", "2", "--max-jobs", "10")
    jobs = database.enqueue("quick", count=60)

    database.wait_for_all(len(jobs))

    assert len({effect.pid for effect in database.effects()}) >= 3
    assert len(database.effects()) == len(jobs)
    assert database.ask("SELECT max(attempt) FROM relay_job WHERE crashes > 0") is None
    assert worker.stop() == 0


def test_a_child_is_replaced_when_it_has_grown_too_large(
    database: Database, workers: Workers
) -> None:
    worker = workers.start("-c", "1", "--max-memory", "250")
    jobs = [database.enqueue_one("grow", 300) for _ in range(3)]

    for job in jobs:
        database.wait_for(job)

    assert len({effect.pid for effect in database.effects()}) == 3
    assert worker.stop() == 0
    database.assert_nothing_charged()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A module with a task in it that may be edited."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "edited").mkdir()
    (folder / "edited" / "__init__.py").touch()
    write(folder, 1)
    return folder


def write(folder: Path, value: int) -> None:
    (folder / "edited" / "tasks.py").write_text(
        "from relay import task\n\n"
        "@task(name='edited')\n"
        "def edited() -> int:\n"
        f"    return {value}\n"
    )


def test_reload_runs_the_code_as_it_is_now(
    database: Database, workers: Workers, project: Path
) -> None:
    worker = workers.start(
        "--reload",
        is_awaited=False,
        environment={
            "PYTHONPATH": f"{project}{os.pathsep}{ROOT}",
            "WORKER_TESTS_APP": "edited",
        },
    )
    assert result_of_edited(database) == 1

    # Of another length: what Python compiled within the same second still counts.
    write(project, 22)
    until(lambda: "code changed" in worker.text())
    assert result_of_edited(database) == 22

    (killed,) = proc.children_of(worker.pid, proc.scan())
    os.kill(killed.pid, signal.SIGKILL)
    until(lambda: "the worker has ended" in worker.text())
    write(project, 333)
    assert result_of_edited(database) == 333

    tree = worker.tree()
    assert worker.stop() == 0
    assert not any(proc.is_same(each) for each in tree)


def result_of_edited(database: Database) -> int:
    (job,) = rows.add_jobs(database.session, task="edited")
    database.wait_for(job)
    result: int = database.job(job)["result"]
    return result


@pytest.mark.timeout(600)  # at full size
@pytest.mark.parametrize("pool", [True, False], ids=["pool", "kept"])
def test_failure_028_every_child_has_sessions_of_its_own(
    database: Database, workers: Workers, pool: bool
) -> None:
    if pool:
        pytest.importorskip("psycopg_pool", reason="Django's pool needs it")
    worker = workers.start(
        "-c",
        "2",
        processes=4,
        environment={"WORKER_TESTS_POOL": "1" if pool else ""},
    )
    sessions: dict[int, set[object]] = {}

    for number in range(1, 11):  # again where one child was faster than all others
        jobs = database.enqueue("use_orm", count=scaled(1_000, least=100))
        database.wait_for_all(number * len(jobs))
        for effect in database.effects():
            if effect.phase == "start":
                sessions.setdefault(effect.pid, set()).add(effect.said)
        if len(sessions) > 1:
            break

    assert len(sessions) >= 2
    assert sum(map(len, sessions.values())) == len(set().union(*sessions.values()))
    assert "Traceback" not in worker.text()
    database.assert_nothing_charged()


def test_failure_002_sessions_dropped_while_idle_cost_no_job(
    database: Database, workers: Workers
) -> None:
    worker = workers.start("-c", "2", LEASE=30)
    for job in database.enqueue("use_orm", count=4):
        database.wait_for(job)
    before = worker.child_pids()

    database.session.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
        "datname = current_database() AND pid <> pg_backend_pid() "
        "AND application_name <> ''"
        " OR pid = ANY(%s)",
        ([effect.said for effect in database.effects() if effect.phase == "start"],),
    )
    jobs = database.enqueue("use_orm", count=3)
    for job in jobs:
        database.wait_for(job)

    assert worker.child_pids() == before
    database.assert_nothing_started_twice()
    database.assert_nothing_charged()


@pytest.mark.timeout(600)  # at full size
def test_failure_051_failing_jobs_leave_nothing_behind_in_memory(
    database: Database, workers: Workers
) -> None:
    worker = workers.start("-c", "4", LEASE=30)
    count = scaled(20_000)

    def fail_all() -> None:
        database.enqueue("fail_with_a_large_local", count=count, max_retries=0)
        until(
            lambda: database.ask(
                "SELECT count(*) = 0 FROM relay_job WHERE state <> 'failed'"
            ),
        )

    fail_all()
    (child,) = worker.child_pids()
    before = resident_mebibytes(child)
    fail_all()

    assert worker.child_pids() == [child]
    assert resident_mebibytes(child) - before < 20


def resident_mebibytes(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) / 1024

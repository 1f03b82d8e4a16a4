"""manage.py relay_load as a process: beside a worker, interrupted, on a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.waiting import WAIT_SECONDS, until
from tests.worker.harness import ROOT, Database, Workers

pytestmark = pytest.mark.slow

Process = subprocess.Popen[str]
Start = Callable[..., Process]

BREAK = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND query LIKE '%INSERT INTO relay_job (id%'
"""
IS_WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND query LIKE '%finished_at - created_at%'
"""


@pytest.fixture
def start(workers: Workers) -> Iterator[Start]:
    """Start a load; all of them are ended after the test."""
    started: list[Process] = []

    def start(
        *arguments: str,
        of: Workers = workers,
        stderr: int = subprocess.PIPE,
        **relay: Any,
    ) -> Process:
        command = ["-m", "testproject", "relay_load", "--yes", *arguments]
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env=of.environment(relay, {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ended(process: Process) -> tuple[int, str, str]:
    stdout, stderr = process.communicate(timeout=WAIT_SECONDS)
    return process.returncode, stdout, stderr


def count(database: Database) -> int:
    found: int = database.ask("SELECT count(*) FROM relay_job")
    return found


def test_a_load_is_waited_for_beside_a_worker(
    database: Database, workers: Workers, start: Start
) -> None:
    workers.start()

    code, stdout, stderr = ended(
        start("--requests", "30", "--batch", "50", "--wait", "--json")
    )

    assert code == 0, stderr
    wait = json.loads(stdout)["wait"]
    assert wait["states"] == {"completed": 1_500}
    assert (wait["gone"], wait["unended"], wait["interrupted"]) == (0, 0, False)
    assert wait["per_second"] > 0
    for name in ("enqueue_to_start_ms", "enqueue_to_end_ms"):
        assert 0 < wait[name]["p50"] <= wait[name]["max"]
    assert database.states() == {"completed": 1_500}
    assert "no worker serves" not in stderr


def test_jobs_that_fail_make_the_exit_code_1(
    database: Database, workers: Workers, start: Start
) -> None:
    workers.start()
    fail = ("--task", "testproject.tasks.fail", "--args", '["no"]')

    code, stdout, stderr = ended(
        start("--requests", "5", *fail, "--wait", "--json", MAX_RETRIES=0)
    )

    assert code == 1, stderr
    assert json.loads(stdout)["wait"]["states"] == {"failed": 5}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_with_the_report_of_what_was_done(
    database: Database, start: Start, number: signal.Signals
) -> None:
    process = start("--duration", "3600", "--wait", "--json")
    until(lambda: count(database) >= 10)

    process.send_signal(number)
    code, stdout, stderr = ended(process)

    assert code == 0, stderr
    found = json.loads(stdout)
    assert found["interrupted"]
    assert found["jobs"]["made"] == found["requests"]["succeeded"] == count(database)
    assert found["wait"] is None
    assert "Traceback" not in stderr


def test_ctrl_c_ends_the_wait_with_what_has_ended(
    database: Database, start: Start
) -> None:
    process = start("--requests", "3", "--wait")
    until(lambda: database.ask(IS_WAITING) > 0)
    database.session.execute(
        "UPDATE relay_job SET state = 'completed', started_at = now(), "
        "finished_at = now() WHERE id = (SELECT min(id::text)::uuid FROM relay_job)"
    )

    process.send_signal(signal.SIGINT)
    code, stdout, stderr = ended(process)

    assert code == 0, stderr
    assert "1 completed, 2 not ended yet" in stdout


def test_a_second_ctrl_c_leaves_requests_that_hang(
    database: Database, start: Start
) -> None:
    process = start("--duration", "3600", "--json")
    until(lambda: count(database) >= 10)
    with database.session.transaction():
        database.session.execute("LOCK relay_job IN ACCESS EXCLUSIVE MODE")
        process.send_signal(signal.SIGINT)
        until(lambda: has_ended_after_another(process))
        code, stdout, stderr = ended(process)

    assert code == 130, stderr
    assert stdout == ""
    assert "interrupted a second time: no report" in stderr


def has_ended_after_another(process: Process) -> bool:
    """Send one more Ctrl-C: two in one moment may count as one."""
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)
    return process.poll() is not None


def test_a_connection_that_breaks_costs_its_request_and_is_made_anew(
    database: Database, start: Start
) -> None:
    process = start("--duration", "3600", "--json")
    until(lambda: count(database) >= 10)
    until(lambda: database.ask(BREAK) > 0)
    before = count(database)
    until(lambda: count(database) >= before + 50)

    process.send_signal(signal.SIGINT)
    code, stdout, stderr = ended(process)

    assert code == 1, stderr
    found = json.loads(stdout)
    assert 1 <= found["requests"]["failed"] <= 4
    assert set(found["errors"]) <= {
        "django.db.utils.OperationalError",
        "django.db.utils.InterfaceError",
    }
    assert found["jobs"]["made"] <= count(database)


def test_clients_that_the_server_has_no_room_for_are_named(
    private: Database, private_workers: Workers, start: Start
) -> None:
    process = start("--requests", "1", "--clients", "70", of=private_workers)

    code, _, stderr = ended(process)

    assert code == 1
    assert "--clients 70: not all of them can connect; ask for fewer" in stderr
    assert "Traceback" not in stderr
    assert count(private) == 0


@pytest.mark.parametrize("is_quiet", [False, True], ids=["shown", "json"])
def test_a_terminal_shows_how_far_it_is(
    database: Database, start: Start, is_quiet: bool
) -> None:
    ours, theirs = pty.openpty()
    process = start(
        "--duration", "0.5", *(["--json"] if is_quiet else []), stderr=theirs
    )
    os.close(theirs)

    shown = read_all(ours)

    assert process.wait(WAIT_SECONDS) == 0
    assert "4 clients make requests for 0.5 s" in shown
    assert ("%" in shown and " requests, 0 failed" in shown) is not is_quiet


def read_all(terminal: int) -> str:
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(terminal, 4_096)
        except OSError:  # Linux: the other side is closed
            part = b""
        if not part:
            os.close(terminal)
            return b"".join(parts).decode()
        parts.append(part)

"""What a worker tells of itself: over its port, in its file, and in statistics."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relay import probes
from relay.engine.connection import EngineConnection
from relay.ids import uuid7
from relay.worker.health import View, WorkerHealth
from relay.worker.messages import datagrams
from relay.worker.rollup import RollUp
from relay.worker.shared import SharedState
from relay.worker.tally import Tally
from tests.meters import Sums
from tests.waiting import WAIT_SECONDS, until
from tests.worker.harness import Workers
from tests.worker.test_tally import completed, end, job

LEASE = 30.0


class Office:
    """A worker of one child, as its keeper sees it."""

    def __init__(self) -> None:
        self.shared = SharedState(1, 4)
        self.worker_id = uuid7()
        self.is_connected = True
        self.is_draining = False
        self.is_registered = True
        now = time.monotonic()
        self.shared.keeper_ticked_at = self.shared.parent_ticked_at = now
        self.shared.tables[0].reset(self.worker_id)
        self.shared.tables[0].tick(now)
        self.health = WorkerHealth(self.shared, self.view)

    def view(self) -> View:
        return View(
            name="w",
            queues=["default"],
            concurrency=3,
            children={0: (self.worker_id, 7, self.is_registered)},
            is_connected=self.is_connected,
            is_draining=self.is_draining,
            claimed_at=0.0,
        )


def test_a_worker_that_goes_round_is_live_and_ready() -> None:
    office = Office()
    office.shared.tables[0].begin(uuid7().bytes, 1)

    assert office.health.ills() == []
    assert office.health.wants() == []
    status = office.health.status()
    assert (status["slots"], len(status["children"][0]["jobs"])) == (3, 1)


@pytest.mark.parametrize("who", ["keeper", "parent"])
def test_a_loop_that_stands_still_for_three_renewals_is_no_life(who: str) -> None:
    office = Office()

    setattr(office.shared, f"{who}_ticked_at", time.monotonic() - LEASE - 1)

    [reason] = office.health.ills()
    assert reason.startswith(f"the {who}'s loop has not gone round")


def test_what_is_amiss_keeps_a_worker_from_being_ready_and_not_from_living() -> None:
    office = Office()

    office.is_connected, office.is_draining, office.is_registered = False, True, False

    assert office.health.wants() == [
        "draining",
        "no connection to the database",
        "child 1 is not registered",
    ]
    assert office.health.ills() == []


def test_a_child_that_stands_still_makes_its_worker_unready() -> None:
    office = Office()

    office.shared.tables[0].tick(time.monotonic() - LEASE - 1)

    [reason] = office.health.wants()
    assert reason.startswith("child 1 has not gone round")


def ask(
    port: int, path: str, headers: Mapping[str, str] | None = None
) -> tuple[int, str]:
    url = f"http://127.0.0.1:{port}{path}"
    asked = urllib.request.Request(url, headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(asked) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_port_answers_and_logs_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    office = Office()
    listening = probes.bind(0)
    port = listening.getsockname()[1]
    probes.serve(office.health, listening)

    live = ask(port, "/livez")
    office.is_draining = True
    draining = ask(port, "/readyz?verbose")
    status = ask(port, "/statusz/")
    nothing = ask(port, "/jobs")

    assert live == (200, "ok\n")
    assert draining == (503, "draining\n")
    assert json.loads(status[1])["ready"] is False
    assert nothing[0] == 404
    assert capfd.readouterr() == ("", "")


def test_who_asks_and_says_nothing_makes_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probes._Handler, "timeout", 600)
    listening = probes.bind(0, "127.0.0.1")
    port = listening.getsockname()[1]
    server = probes._Server(listening, Office().health)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    silent = [
        socket.create_connection(("127.0.0.1", port), WAIT_SECONDS)
        for _ in range(probes.MOST_AT_ONCE)
    ]
    try:
        assert ask(port, "/readyz") == (200, "ok\n")
        assert silent[0].recv(1) == b""
    finally:
        for each in silent:
            each.close()
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_file_is_kept_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    office, file = Office(), tmp_path / "relay.json"
    found = []

    class End(Exception):
        """Stops what goes on for ever."""

    def pause(seconds: float) -> None:
        found.append(json.loads(file.read_text()))
        office.is_draining = True
        if len(found) == 2:
            raise End

    monkeypatch.setattr(probes, "time", SimpleNamespace(time=time.time, sleep=pause))
    with pytest.raises(End):
        probes._keep_writing(office.health, file)

    first, second = found
    assert (first["live"], first["ready"]) == (True, True)
    assert second["reasons"] == ["draining"]


def test_what_children_tell_is_added_up_and_written(
    request: pytest.FixtureRequest, duty: EngineConnection, sums: Sums
) -> None:
    pairs = [datagrams(), datagrams()]
    for each in chain.from_iterable(pairs):
        request.addfinalizer(each.close)
    roll_up = RollUp([near for near, _ in pairs], is_metered=True)
    for _, far in pairs:
        tally, one = Tally(), job(wait_s=0.5)
        tally.note_ends([end(one, completed(one), 0.1)], {one.id: "completed"})
        tally.tell(far, [job()])

    roll_up.tick(duty)
    roll_up.tick(duty)

    row = duty.execute(
        "SELECT sum(count)::int, sum(wait_seconds) FROM relay_stat WHERE seconds = 60"
    ).fetchone()
    assert row == (2, pytest.approx(1.0))
    assert sums.gauges["relay_jobs_running", "q"] == 2
    assert sums.of("relay_jobs_finished_total") == {("q", "t", "completed"): 2}
    roll_up.forget(0)
    assert sums.gauges["relay_jobs_running", "q"] == 1


def test_the_statistics_of_a_helper_are_not_metered_twice(
    duty: EngineConnection, sums: Sums
) -> None:
    near, far = datagrams()
    with near, far:
        roll_up = RollUp([near], is_metered=False)
        tally, one = Tally(), job()
        tally.note_ends([end(one, completed(one), 0.1)], {one.id: "completed"})
        tally.tell(far, [job()])

        roll_up.tick(duty)

    assert duty.execute("SELECT count(*) FROM relay_stat").fetchone() == (2,)
    assert sums.of("relay_jobs_finished_total") == {}
    assert sums.gauges == {}


def free_port() -> int:
    """Return one below those that a system gives out: nobody gets it meanwhile."""
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("a hundred ports are taken")


@pytest.mark.slow
def test_a_worker_answers_whatever_its_children_do(
    workers: Workers, tmp_path: Path
) -> None:
    port, file = free_port(), tmp_path / "probe.json"
    worker = workers.start(
        "--probe-port", f"127.0.0.1:{port}", "--probe-file", str(file), processes=2
    )
    database = workers.database

    until(lambda: ask(port, "/readyz") == (200, "ok\n"))
    database.enqueue("quick", count=20)
    database.wait_for_all(20)
    status: dict[str, Any] = json.loads(ask(port, "/statusz")[1])
    text = until(lambda: _metrics_of(port, 20))
    keeper = worker.keeper_pid()
    os.kill(keeper, signal.SIGKILL)
    until(lambda: worker.keeper_pid() != keeper)
    until(lambda: ask(port, "/readyz")[0] == 200)
    database.enqueue("quick", count=5)
    database.wait_for_all(25)
    worker.stop()

    assert len(status["children"]) == 2
    assert json.loads(file.read_text())["at"] > 0
    assert "relay_leases_renewed_total" in text
    assert "GET /" not in worker.text()
    # What the killed keeper had not written is gone.
    jobs = database.ask("SELECT sum(count) FROM relay_stat WHERE seconds = 60")
    assert 5 <= jobs <= 25


def _metrics_of(port: int, jobs: int) -> str | None:
    pytest.importorskip("prometheus_client")
    status, text = ask(port, "/metrics")
    assert status == 200, text
    total = sum(
        float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith("relay_jobs_finished_total{")
    )
    return text if total == jobs else None

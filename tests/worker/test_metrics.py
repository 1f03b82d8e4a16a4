"""The counters of a worker's processes, scraped while they die."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from relay.metrics import exposition
from tests.api.factory import make_token
from tests.waiting import until
from tests.worker.harness import ROOT, Database, Workers
from tests.worker.test_probes import ask, free_port

pytestmark = pytest.mark.slow

COUNTED = re.compile(r"^(relay_\w+(?:_total|_count|_bucket)(?:{.*})?) (\S+)$", re.M)
FINISHED = "relay_jobs_finished_total{"


GAUGES = re.compile(r"^(relay_(?:jobs|workers|queue_paused){.*}) (\S+)$", re.M)
ROUNDS = 20


class Scrapes:
    """What one process has shown, scrape by scrape."""

    def __init__(self, port: int, secret: str = "") -> None:
        self._port = port
        self._headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        self.all: list[dict[str, float]] = []

    def take(self) -> str:
        status, text = ask(self._port, "/metrics", self._headers)
        assert status == 200, text
        self.all.append({name: float(value) for name, value in COUNTED.findall(text)})
        return text

    def is_there(self) -> bool:
        try:
            self.take()
        except OSError:
            return False
        return True

    def finished(self) -> float:
        self.take()
        return finished(self.all[-1])


def finished(counted: dict[str, float]) -> float:
    return sum(value for name, value in counted.items() if name.startswith(FINISHED))


def test_failure_109_counters_never_fall_nor_double_whatever_dies(
    database: Database,
    workers: Workers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, port = tmp_path / "prometheus", free_port()
    folder.mkdir()
    # Of a process of an earlier run: no pid is so high.
    (folder / "counter_99999999.db").touch()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(folder))
    worker = workers.start("--probe-port", f"127.0.0.1:{port}", processes=2)
    scrapes = Scrapes(port)

    database.enqueue("quick", count=40)
    until(lambda: scrapes.finished() == 40, what="40 jobs counted")
    held = database.enqueue_one("gate", str(tmp_path / "open"))
    os.kill(database.wait_for_start(held).pid, signal.SIGKILL)
    database.wait_for_start(held, count=2)
    (tmp_path / "open").touch()
    until(lambda: scrapes.finished() == 41, what="the job of a killed child counted")
    keeper = worker.keeper_pid()
    os.kill(keeper, signal.SIGKILL)
    until(lambda: worker.keeper_pid() != keeper)
    until(lambda: ask(port, "/readyz")[0] == 200)
    failed = database.enqueue_one("fail", max_retries=0)
    database.enqueue("quick", count=5)
    database.wait_for(failed, "failed")
    until(lambda: scrapes.finished() == 47, what="the jobs of a new keeper counted")
    text = scrapes.take()
    # Any other process that shares the folder, such as a web server's, shows the same.
    elsewhere = dict(COUNTED.findall(exposition.render()[0].decode()))
    worker.stop()

    for earlier, later in pairwise(scrapes.all):
        assert {name for name in earlier if later.get(name, 0) < earlier[name]} == set()
    assert database.states() == {"completed": 46, "failed": 1}
    # The one that died with its child, and the one that raised.
    for reason in ("killed", "exception"):
        assert re.search(rf'relay_job_errors_total{{.*reason="{reason}".*}} 1\.0', text)
    running = re.findall(r"^relay_jobs_running{.*} (\S+)$", text, re.M)
    assert {float(value) for value in running} <= {0.0}
    assert len(re.findall("^relay_build_info{", text, re.M)) == 1
    mine = {name: float(value) for name, value in elsewhere.items()}
    assert finished(mine) == 47


@pytest.fixture
def webs(workers: Workers, tmp_path: Path) -> Iterator[Callable[[], int]]:
    """Return what starts a web process and returns its port."""
    all_of_them = []

    def start() -> int:
        port = free_port()
        with (tmp_path / f"web{port}.log").open("wb") as output:
            all_of_them.append(
                subprocess.Popen(
                    [
                        *(sys.executable, "-m", "testproject", "runserver"),
                        *("--noreload", f"127.0.0.1:{port}"),
                    ],
                    cwd=ROOT,
                    env=workers.environment({}, {}),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )
        return port

    yield start
    for each in all_of_them:
        each.kill()
        each.wait()


def test_failure_109_every_process_shows_the_same(
    database: Database,
    workers: Workers,
    webs: Callable[[], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "prometheus").mkdir()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "prometheus"))
    sites = [Scrapes(webs(), make_token("read")) for _ in range(4)]
    scraped = list(sites)
    for _ in range(2):
        port = free_port()
        workers.start("--probe-port", f"127.0.0.1:{port}", processes=2)
        scraped.append(Scrapes(port))
    until(lambda: all(each.is_there() for each in scraped), what="all six answer")

    database.enqueue("quick", count=7, queue="other")
    for _ in range(ROUNDS):
        database.enqueue("quick", count=48)
        database.enqueue("fail", count=2, max_retries=0)
        for each in scraped:
            each.take()
    until(
        lambda: [each.finished() for each in scraped] == [1_000] * 6,
        what="a thousand jobs counted by every process",
    )

    def gauges() -> dict[str, str]:
        found = {tuple(GAUGES.findall(each.take())) for each in sites}
        return dict(found.pop()) if len(found) == 1 else {}

    waiting = 'relay_jobs{queue="other",state="queued"}'
    # What was read of the database is kept for five seconds.
    shown = until(lambda: (same := gauges()) and waiting in same and same)
    assert float(shown[waiting]) == 7
    assert float(shown['relay_workers{state="running"}']) == 4
    for each in scraped:
        for earlier, later in pairwise(each.all):
            fallen = {name for name in earlier if later.get(name, 0) < earlier[name]}
            assert fallen == set()
    assert database.states() == {"queued": 7, "completed": 960, "failed": 40}

"""The counters of a worker's processes, scraped while they die."""

from __future__ import annotations

import os
import re
import signal
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from relay.metrics import exposition
from tests.waiting import until
from tests.worker.harness import Database, Workers
from tests.worker.test_probes import ask, free_port

pytestmark = pytest.mark.slow

COUNTED = re.compile(r"^(relay_\w+(?:_total|_count|_bucket)(?:{.*})?) (\S+)$", re.M)
FINISHED = "relay_jobs_finished_total{"


class Scrapes:
    """What a worker's port has shown, scrape by scrape."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.all: list[dict[str, float]] = []

    def take(self) -> str:
        _, text = ask(self._port, "/metrics")
        self.all.append({name: float(value) for name, value in COUNTED.findall(text)})
        return text

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

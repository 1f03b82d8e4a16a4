"""Sums as prometheus_client shows them: names, numbers of series, and processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from bisect import bisect_left
from pathlib import Path
from textwrap import dedent

import pytest
from django.test import override_settings
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.values import MultiProcessValue

from relay.buckets import FINE
from relay.metrics import exposition
from relay.metrics.collector import Collector
from relay.metrics.meters import PrometheusMeter
from relay.metrics.names import COUNTERS, DATABASE, HISTOGRAMS, RUNNING
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "reference" / "metrics.md"


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def fine(*seconds: float) -> list[int]:
    found = [0] * (len(FINE) + 1)
    for each in seconds:
        found[bisect_left(FINE, each)] += 1
    return found


def series(registry: CollectorRegistry) -> list[str]:
    return [
        line
        for line in generate_latest(registry).decode().splitlines()
        if not line.startswith("#")
    ]


def count_as_a_project_does(meter: PrometheusMeter, tasks: int) -> None:
    for number in range(tasks):
        queue, task = f"q{number % 4}", f"shop.tasks.t{number}"
        meter.add("relay_jobs_enqueued_total", (queue, task), 1)
        for outcome in ("completed", "failed", "cancelled"):
            meter.add("relay_jobs_finished_total", (queue, task, outcome), 1)
        meter.add("relay_jobs_retried_total", (queue, task), 1)
        meter.add("relay_job_errors_total", (queue, task, "exception"), 1)
        durations = fine(0.2)
        meter.add_times("relay_job_duration_seconds", (queue, task), durations, 0.2)
        meter.add_times("relay_job_queue_wait_seconds", (queue,), durations, 0.2)
        meter.put(RUNNING, (queue,), 1)


def test_forty_tasks_are_fewer_than_a_thousand_series(
    registry: CollectorRegistry,
) -> None:
    meter = PrometheusMeter(registry)

    count_as_a_project_does(meter, 40)

    assert len(series(registry)) <= 1_000


def test_a_gauge_that_the_host_shows_itself_is_not_there_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = CollectorRegistry()
    own.register(Collector())
    monkeypatch.setattr(exposition, "REGISTRY", own)
    monkeypatch.setattr(exposition, "_folder", lambda: None)
    monkeypatch.setattr(Collector, "collect", lambda self: self.describe())

    text = exposition.render(collector=Collector())[0].decode()
    alone = exposition.render()[0].decode()

    assert text.count("# TYPE relay_workers gauge") == 1
    assert alone.count("# TYPE relay_workers gauge") == 1


def test_a_process_that_makes_its_files_now_hides_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    ours = MultiProcessValue(lambda: 7)
    ours("counter", "relay_a", "relay_a_total", (), (), "Of another.").inc(3)
    for kind in ("counter", "histogram", "gauge_livesum"):
        (tmp_path / f"{kind}_99999999.db").touch()

    assert "relay_a_total 3.0" in exposition.render()[0].decode()


def test_tasks_past_the_limit_are_one(registry: CollectorRegistry) -> None:
    with override_settings(RELAY={"METRICS_MAX_TASKS": 2}):
        meter = PrometheusMeter(registry)
        for number in range(5):
            labels = ("q", f"t{number}")
            meter.add("relay_jobs_enqueued_total", labels, 1)

    found = [line for line in series(registry) if "enqueued" in line]
    assert sorted(found) == [
        'relay_jobs_enqueued_total{queue="q",task="other"} 3.0',
        'relay_jobs_enqueued_total{queue="q",task="t0"} 1.0',
        'relay_jobs_enqueued_total{queue="q",task="t1"} 1.0',
    ]


def test_a_histogram_takes_many_at_once(registry: CollectorRegistry) -> None:
    meter = PrometheusMeter(registry)

    counts = fine(0.02, 0.02, 45, 99_999)
    meter.add_times("relay_job_queue_wait_seconds", ("q",), counts, 100_044.04)

    def value(suffix: str, **labels: str) -> float | None:
        name = f"relay_job_queue_wait_seconds_{suffix}"
        return registry.get_sample_value(name, {"queue": "q", **labels})

    assert value("bucket", le="0.01") == 0
    assert value("bucket", le="0.05") == 2
    assert value("bucket", le="60.0") == 3
    assert value("bucket", le="3600.0") == 3
    assert value("count") == 4
    assert value("sum") == pytest.approx(100_044.04)


def test_no_series_says_when_it_began(registry: CollectorRegistry) -> None:
    count_as_a_project_does(PrometheusMeter(registry), 1)

    assert "_created" not in generate_latest(registry).decode()


def test_the_page_names_every_metric_and_no_other() -> None:
    named = set(re.findall(r"`(relay_[a-z_]+)`", PAGE.read_text()))

    known = {*COUNTERS, *HISTOGRAMS, *DATABASE, RUNNING, "relay_build_info"}
    assert named - {"relay_stat"} == known


WORK = dedent("""
    import os
    import django
    django.setup()
    from relay import counts
    counts.add("relay_jobs_enqueued_total", "q", "t", amount=2)
    counts.put("relay_jobs_running", "q", value=3)
    if os.fork() == 0:
        counts.add("relay_jobs_enqueued_total", "q", "t", amount=5)
        counts.put("relay_jobs_running", "q", value=4)
        os._exit(0)
    pid, _ = os.wait()
    from relay.metrics.exposition import render
    def show():
        for line in sorted(render()[0].decode().splitlines()):
            if line.startswith(("relay_jobs_enqueued_total", "relay_jobs_running")):
                print(line)
    show()
    counts.forget_process(pid)
    show()
""")


def run(folder: Path | None, program: str) -> list[str]:
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.backends.settings"}
    environment["DATABASE_URL"] = "postgresql://nowhere/none"
    if folder is not None:
        environment["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_processes_that_share_a_folder_are_added_up(tmp_path: Path) -> None:
    enqueued = 'relay_jobs_enqueued_total{queue="q",task="t"}'
    running = 'relay_jobs_running{queue="q"}'

    assert run(tmp_path, WORK) == [
        f"{enqueued} 7.0",
        f"{running} 7.0",
        # Gone, it runs nothing; what it has done stays done.
        f"{enqueued} 7.0",
        f"{running} 3.0",
    ]


def test_without_a_folder_a_process_shows_its_own(tmp_path: Path) -> None:
    first = run(None, WORK)[:2]

    assert first == [
        'relay_jobs_enqueued_total{queue="q",task="t"} 2.0',
        'relay_jobs_running{queue="q"} 3.0',
    ]


CLEAR = dedent("""
    import os
    from relay.metrics.exposition import clear_stale_files
    clear_stale_files()
    print(*sorted(os.listdir(os.environ["PROMETHEUS_MULTIPROC_DIR"])))
""")
GONE = "99999999"  # more than a pid can be


def test_files_of_processes_that_are_gone_are_removed(tmp_path: Path) -> None:
    for name in (f"counter_{GONE}.db", f"gauge_livesum_{GONE}.db", "notes.txt"):
        (tmp_path / name).touch()

    assert run(tmp_path, CLEAR) == ["notes.txt"]


def test_a_process_that_starts_meanwhile_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"counter_{GONE}.db").touch()
    mine = tmp_path / "counter_88888888.db"
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setattr(exposition, "_lives", lambda pid: mine.touch())

    exposition.clear_stale_files()

    assert list(tmp_path.iterdir()) == [mine]


def test_beside_a_process_that_lives_the_counters_of_others_stay(
    tmp_path: Path,
) -> None:
    mine = f"counter_{os.getpid()}.db"
    for name in (f"counter_{GONE}.db", f"gauge_livesum_{GONE}.db", mine):
        (tmp_path / name).touch()

    assert run(tmp_path, CLEAR) == [" ".join(sorted((f"counter_{GONE}.db", mine)))]

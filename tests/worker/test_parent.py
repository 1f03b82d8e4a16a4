"""The parent's watch over its processes, here over some that only sleep."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import override_settings

from relay.ids import uuid7
from relay.worker import parent as parent_module
from relay.worker import places
from relay.worker.fork import warn_of_threads
from relay.worker.options import LoopOptions
from relay.worker.parent import Parent
from relay.worker.places import Place, Process


class Watch:
    """A parent that runs no loop; its children are `sleep`."""

    def __init__(self) -> None:
        options = LoopOptions(queues={"default": 1}, concurrency=1)
        self.parent = Parent(options, processes=2, grace=timedelta(seconds=1))
        self.sleepers: list[subprocess.Popen[bytes]] = []

    def add_child(self, index: int, *, started_at: float) -> subprocess.Popen[bytes]:
        sleeper = subprocess.Popen(["sleep", "600"])
        self.sleepers.append(sleeper)
        worker_id = uuid7()
        self.parent._shared.tables[index].reset(worker_id)
        self.parent._places[index].process = Process(sleeper.pid, started_at, worker_id)
        return sleeper

    def is_killed(self, sleeper: subprocess.Popen[bytes]) -> bool:
        processes = [place.process for place in self.parent._places]
        if any(
            each is not None and each.pid == sleeper.pid and each.killed_for
            for each in processes
        ):
            return sleeper.wait(60) == -9
        return sleeper.poll() is not None

    def close(self) -> None:
        for sleeper in self.sleepers:
            sleeper.kill()
            sleeper.wait()
        parent = self.parent
        inherited = parent._inherited
        for pair in (*inherited._pairs, (inherited.channel._end, inherited._far)):
            for end in pair:
                end.close()
        for file in (inherited._alive_reader, inherited._alive_writer):
            os.close(file)
        parent._bell.close()


@pytest.fixture
def watch() -> Iterator[Watch]:
    made = Watch()
    yield made
    made.close()


def test_a_thread_that_no_child_will_have_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    over = threading.Event()
    names = ("poller", "OtelBatchSpanRecordProcessor")
    threads = [threading.Thread(target=over.wait, name=name) for name in names]
    for thread in threads:
        thread.start()
    try:
        warn_of_threads()
    finally:
        over.set()
        for thread in threads:
            thread.join()

    (record,) = caplog.records
    named = vars(record)["threads"]
    assert "poller" in named
    assert not {"MainThread", "OtelBatchSpanRecordProcessor"} & set(named)


def test_a_worker_larger_than_its_children_may_be_says_so(
    watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    watch.parent._options = replace(watch.parent._options, max_memory_bytes=1)

    watch.parent._warn_of_size()

    (record,) = caplog.records
    assert vars(record)["event"] == "worker.too_large"
    assert vars(record)["size_bytes"] > vars(record)["limit_bytes"] == 1


def test_b05_a_child_whose_loop_stands_still_is_killed_uncharged(watch: Watch) -> None:
    now = time.monotonic()
    still, going = (watch.add_child(index, started_at=now - 100) for index in (0, 1))
    watch.parent._shared.tables[0].tick(now - 31)
    watch.parent._shared.tables[1].tick(now - 1)

    watch.parent._kill_stalled()

    assert watch.is_killed(still)
    assert not watch.is_killed(going)
    process = watch.parent._places[0].process
    assert process is not None
    assert process.killed_for == "its loop stood still"


def test_a_child_that_never_began_its_loop_is_killed_too(watch: Watch) -> None:
    stuck = watch.add_child(0, started_at=time.monotonic() - 31)
    young = watch.add_child(1, started_at=time.monotonic())

    watch.parent._kill_stalled()

    assert watch.is_killed(stuck)
    assert not watch.is_killed(young)


@pytest.mark.parametrize(
    ("lease", "silence", "is_killed"), [(1, 8, False), (1, 11, True), (30, 61, True)]
)
def test_a_keeper_may_wait_for_a_server_longer_than_a_short_lease(
    lease: int, silence: float, is_killed: bool
) -> None:
    with override_settings(RELAY={"LEASE": timedelta(seconds=lease)}):
        watch = Watch()
    keeper = subprocess.Popen(["sleep", "600"])
    watch.sleepers.append(keeper)
    now = time.monotonic()
    watch.parent._keeper.process = Process(keeper.pid, now - 100)
    watch.parent._shared.keeper_ticked_at = now - silence

    watch.parent._kill_stalled_keeper()

    killed_for = watch.parent._keeper.process.killed_for
    watch.close()
    assert killed_for == ("its loop stood still" if is_killed else None)


def test_b05_a_still_child_that_runs_a_job_is_left_alone(watch: Watch) -> None:
    child = watch.add_child(0, started_at=time.monotonic() - 100)
    watch.parent._shared.tables[0].tick(time.monotonic() - 100)
    watch.parent._shared.tables[0].begin(uuid7().bytes, 1)

    watch.parent._kill_stalled()

    assert not watch.is_killed(child)


def test_b07_a_child_has_a_new_id_at_each_start_whatever_its_name(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeper = subprocess.Popen(["sleep", "600"])
    watch.sleepers.append(sleeper)
    monkeypatch.setattr(parent_module, "fork", lambda run: sleeper.pid)
    place, ids = watch.parent._places[0], []

    for _ in range(2):
        watch.parent._start_child(0, place)
        assert place.process is not None
        ids.append(place.process.worker_id)
        assert watch.parent._shared.tables[0].worker_id == ids[-1]
        if place.process.brood is not None:
            place.process.brood.wait_until_gone()

    assert ids[0] != ids[1]


@pytest.mark.parametrize(
    ("left", "is_registered", "is_killed"),
    [(5.1, True, False), (4.9, True, True), (-100.0, False, False)],
    ids=["in time", "too late", "not registered"],
)
def test_children_are_killed_five_seconds_before_their_leases_end(
    watch: Watch,
    monkeypatch: pytest.MonkeyPatch,
    left: float,
    is_registered: bool,
    is_killed: bool,
) -> None:
    monkeypatch.setattr(parent_module, "time", SimpleNamespace(monotonic=lambda: 500.0))
    child = watch.add_child(0, started_at=500.0)
    if is_registered:
        watch.parent._shared.tables[0].mark_registered()
    watch.parent._shared.lease_safe_until = 500.0 + left

    watch.parent._fence()

    assert watch.is_killed(child) == is_killed


def test_a_fork_that_fails_is_tried_again_later(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_room(run: Any) -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(parent_module, "fork", no_room)
    before = time.monotonic()
    watch.parent._start_missing()
    places = [watch.parent._keeper, *watch.parent._places]
    assert all(place.process is None for place in places)
    assert all(place.start_at > before for place in places)
    assert "no process could be started" in caplog.text

    sleeper = subprocess.Popen(["sleep", "600"])
    watch.sleepers.append(sleeper)
    monkeypatch.setattr(parent_module, "fork", lambda run: sleeper.pid)
    for place in places:
        place.start_at = 0
    watch.parent._start_missing()

    assert all(place.process is not None for place in places)


def test_what_dies_young_is_started_later_each_time_and_what_lived_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "time", SimpleNamespace(monotonic=lambda: 0.0))
    place = Place()
    pauses = []
    for _ in range(10):
        place.process = Process(1, 0.0)
        place.ended(was_clean=False)
        pauses.append(place.start_at)

    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.1, 10)
    place.process = Process(1, -6.0)
    place.ended(was_clean=False)
    assert place.start_at == 0

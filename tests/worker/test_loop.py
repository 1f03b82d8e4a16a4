"""One child's loop against the database, step by step in this process."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import psycopg
import pytest
from django.dispatch import Signal
from django.test import override_settings

from relay.conf import get_settings
from relay.engine.claim import ClaimedJob, send_claim
from relay.engine.connection import EngineConnection
from relay.engine.finish import Completed, Outcome, Settled, completions
from relay.ids import uuid7
from relay.worker import announcing, pace
from relay.worker import hands as hands_module
from relay.worker import loop as loop_module
from relay.worker.apart import Nursery
from relay.worker.bell import Bell
from relay.worker.cancels import write_cancels
from relay.worker.embedded.loop import EmbeddedLoop
from relay.worker.loop import Loop
from relay.worker.options import LoopOptions
from relay.worker.pool import Ended
from relay.worker.shared import SharedState, SlotTable
from tests.engine import rows
from tests.waiting import WAIT_SECONDS

CAPACITY = 16


class Child:
    """A loop whose pool only keeps what it is given."""

    def __init__(self, duty: EngineConnection, monkeypatch: pytest.MonkeyPatch) -> None:
        self.worker_id = rows.add_worker(duty)
        self.table: SlotTable = SharedState(1, CAPACITY).tables[0]
        self.table.reset(self.worker_id)
        self.table.mark_registered()
        self.control, self.keeper = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.control.setblocking(False)
        self.alive, self.parent = os.pipe()
        options = LoopOptions(queues={"default": 1}, concurrency=8)
        self.loop = Loop(self.worker_id, options, self.table, self.control, self.alive)
        self.submitted: list[ClaimedJob] = []
        monkeypatch.setattr(self.loop._pool, "submit", self._submit)

    def _submit(self, jobs: list[ClaimedJob], **_: Any) -> None:
        self.submitted += jobs

    def step_until(self, condition: Callable[[], Any]) -> None:
        ends_at = time.monotonic() + WAIT_SECONDS
        while not condition():
            assert time.monotonic() < ends_at, "did not come true"
            self.loop._step()

    def claim(self, count: int) -> list[ClaimedJob]:
        self.step_until(lambda: len(self.submitted) >= count)
        return self.submitted

    def end(self, job: ClaimedJob, outcome: Outcome) -> None:
        """Let a job have run and ended."""
        entry = self.table.begin(job.id.bytes, job.attempt)
        self.loop._pool._ended.append(Ended(job, outcome, entry, 0.001))

    def assert_every_entry_is_free_once(self) -> None:
        assert list(self.table.started()) == []
        assert len(set(self.table._free)) == len(self.table._free) == CAPACITY

    def close(self) -> None:
        for end in (self.control, self.keeper):
            end.close()
        loop = self.loop
        for file in (self.alive, self.parent):
            os.close(file)
        loop._bell.close()
        if loop._link.connection is not None:
            loop._link.connection.close()


@pytest.fixture
def child(duty: EngineConnection, monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    with override_settings(RELAY={"POLL_INTERVAL": timedelta(milliseconds=20)}):
        made = Child(duty, monkeypatch)
        yield made
        made.close()


def completed(job: ClaimedJob, result: str = "null") -> Completed:
    return Completed(job.id, job.attempt, result, None)


def test_a_row_that_postgresql_refuses_fails_alone(
    child: Child, duty: EngineConnection
) -> None:
    ids = rows.add_jobs(duty, 5)
    jobs = {job.id: job for job in child.claim(5)}

    for job_id in ids:
        refused = job_id == ids[2]
        child.end(
            jobs[job_id], completed(jobs[job_id], '"\\u0000"' if refused else "1")
        )
    child.step_until(lambda: not child.loop._hands.held)

    assert [rows.job_row(duty, job_id)["state"] for job_id in ids] == [
        "completed",
        "completed",
        "failed",
        "completed",
        "completed",
    ]
    assert "PostgreSQL refused" in rows.job_row(duty, ids[2])["error_message"]
    child.assert_every_entry_is_free_once()


def test_a_row_whose_failure_cannot_be_counted_fails_and_stops_no_other(
    child: Child, duty: EngineConnection
) -> None:
    ids = rows.add_jobs(duty, 2)
    jobs = {job.id: job for job in child.claim(2)}
    duty.execute("UPDATE relay_job SET failures = 2000000000 WHERE id = %s", (ids[0],))

    retried = Settled(id=ids[0], attempt=1, verb="retry", is_charged=True)
    child.end(jobs[ids[0]], retried)
    child.end(jobs[ids[1]], completed(jobs[ids[1]]))
    child.step_until(lambda: not child.loop._hands.held)

    assert rows.job_row(duty, ids[0])["state"] == "failed"
    assert rows.job_row(duty, ids[1])["state"] == "completed"


def test_a_job_that_must_run_alone_is_put_off_at_once_beside_a_long_one(
    child: Child, duty: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.add_jobs(duty, 1)
    (running,) = child.claim(1)
    monkeypatch.setattr(child.loop._pool, "oldest_seconds", lambda: 60.0)
    (crashed,) = rows.add_jobs(duty, 1, crashes=1)

    child.step_until(lambda: rows.events(duty, crashed))

    assert rows.events(duty, crashed) == ["snooze"]
    assert set(child.loop._hands.held) == {running.id}
    assert child.loop._room() > 0


def test_a_refused_row_does_not_stop_the_claims(
    child: Child, duty: EngineConnection
) -> None:
    an_hour = timedelta(hours=1)
    child.loop._settings = replace(child.loop._settings, poll_interval=an_hour)
    child.loop._claims._idle_seconds = an_hour.total_seconds()
    rows.add_jobs(duty, 1)
    (job,) = child.claim(1)
    child.end(job, completed(job, '"\\u0000"'))
    rows.add_jobs(duty, 3)
    child.keeper.send(b"")

    child.step_until(lambda: len(child.submitted) == 4)


def test_a_flush_cut_off_half_way_lets_go_of_each_attempt_once(
    child: Child,
    duty: EngineConnection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids = rows.add_jobs(duty, 4)
    jobs = {job.id: job for job in child.claim(4)}
    for job_id in ids:
        refused = job_id == ids[3]
        child.end(
            jobs[job_id], completed(jobs[job_id], '"\\u0000"' if refused else "1")
        )
    cuts: list[set[UUID]] = []

    def cut(results: list[Completed], **more: Any) -> Any:
        # All four; then the first half; then the second is cut off.
        sent = {done.id for done in results}
        if len(sent) == 2 and ids[2] in sent and not cuts:
            cuts.append(sent)
            child.loop._link.connected().close()
            raise psycopg.OperationalError("cut off")
        return completions(results, **more)

    monkeypatch.setattr(hands_module, "completions", cut)
    child.step_until(lambda: not child.loop._hands.held)

    assert cuts
    child.assert_every_entry_is_free_once()
    assert rows.states(duty) == {"completed": 3, "failed": 1}
    assert "lease lost" not in caplog.text
    assert not child.loop._hands._doubtful


def test_a_claim_that_fails_takes_no_finish_with_it(
    child: Child,
    duty: EngineConnection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows.add_jobs(duty, 1)
    (job,) = child.claim(1)
    failing = [True]

    def fail(*args: Any, **more: Any) -> Any:
        if failing[0]:
            raise psycopg.errors.QueryCanceled("canceling statement")
        return send_claim(*args, **more)

    monkeypatch.setattr(loop_module, "send_claim", fail)
    child.end(job, completed(job))
    child.keeper.send(b"")
    child.step_until(lambda: not child.loop._hands.held)
    failing[0] = False
    rows.add_jobs(duty, 1)
    child.step_until(lambda: len(child.submitted) == 2)

    assert rows.job_row(duty, job.id)["state"] == "completed"
    assert "claim failed" in caplog.text or "database trouble" in caplog.text


def test_b02_a_result_of_a_job_that_another_holds_is_dropped_and_said(
    child: Child, duty: EngineConnection, caplog: pytest.LogCaptureFixture
) -> None:
    rows.add_jobs(duty, 1)
    (job,) = child.claim(1)
    duty.execute("UPDATE relay_job SET attempt = attempt + 1")
    before = rows.everything(duty)

    child.end(job, completed(job))
    child.step_until(lambda: not child.loop._hands.held)

    assert rows.everything(duty) == before
    assert "lease lost: the result was dropped" in caplog.text
    child.assert_every_entry_is_free_once()


def test_a_lost_lease_is_said_even_after_the_connection_was_once_lost(
    child: Child, duty: EngineConnection, caplog: pytest.LogCaptureFixture
) -> None:
    rows.add_jobs(duty, 1)
    (job,) = child.claim(1)
    assert child.loop._link.connection is not None
    child.loop._link.lose(psycopg.OperationalError("cut off"))
    duty.execute("UPDATE relay_job SET attempt = attempt + 1")

    child.end(job, completed(job))
    child.step_until(lambda: not child.loop._hands.held)

    assert "lease lost: the result was dropped" in caplog.text


def test_a_job_committed_late_and_unheard_of_is_claimed_by_the_next_sweep(
    child: Child,
) -> None:
    with rows.other_session(autocommit=False) as late, rows.other_session() as early:
        (late_id,) = rows.add_jobs(late)
        (early_id,) = rows.add_jobs(early)
        child.claim(1)
        late.commit()
        jobs = child.claim(2)

    assert [job.id for job in jobs] == [early_id, late_id]


def tell_to_cancel(child: Child, *jobs: tuple[UUID, int]) -> None:
    for datagram in write_cancels(jobs):
        child.keeper.send(datagram)
    child.loop._read_control()


def test_failure_035_a_claimed_job_that_has_not_started_is_cancelled_and_never_starts(
    child: Child, duty: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.add_jobs(duty, 2)
    first, second = child.claim(2)
    monkeypatch.setattr(child.loop._pool, "drop", lambda job: job == first)

    tell_to_cancel(child, (first.id, first.attempt))
    child.step_until(lambda: first.id not in child.loop._hands.held)

    assert rows.job_row(duty, first.id)["state"] == "cancelled"
    assert rows.events(duty, first.id) == ["cancel"]
    assert second.id in child.loop._hands.held


def test_a_job_that_waits_to_run_alone_is_cancelled_and_never_starts(
    child: Child, duty: EngineConnection
) -> None:
    [busy] = rows.add_jobs(duty)
    child.claim(1)
    [job_id] = rows.add_jobs(duty, crashes=1)
    child.keeper.send(b"")
    child.step_until(lambda: child.loop._alone)

    tell_to_cancel(child, (job_id, 1))
    child.step_until(lambda: job_id not in child.loop._hands.held)

    assert rows.job_row(duty, job_id)["state"] == "cancelled"
    assert [job.id for job in child.submitted] == [busy]


def test_a_cancel_reaches_a_job_that_runs_and_no_earlier_attempt_of_it(
    child: Child, duty: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.add_jobs(duty)
    [job] = child.claim(1)
    stopped: list[UUID] = []
    monkeypatch.setattr(child.loop._pool, "cancel", stopped.append)

    tell_to_cancel(child, (job.id, job.attempt - 1), (uuid7(), 1))
    assert stopped == []
    tell_to_cancel(child, (job.id, job.attempt))

    assert stopped == [job.id]


def test_a_cancel_of_a_job_that_has_just_ended_leaves_its_end_alone(
    child: Child, duty: EngineConnection
) -> None:
    rows.add_jobs(duty)
    [job] = child.claim(1)
    child.end(job, completed(job))

    tell_to_cancel(child, (job.id, job.attempt))
    child.step_until(lambda: not child.loop._hands.held)

    assert rows.job_row(duty, job.id)["state"] == "completed"
    child.assert_every_entry_is_free_once()


def test_jobs_are_not_handed_back_for_having_been_claimed_after_a_long_rest(
    child: Child, duty: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child.loop._pool, "withdraw", lambda: [*child.submitted])
    rows.add_jobs(duty, 3)
    child.claim(3)
    monkeypatch.setattr(child.loop._pool, "poke", lambda: True)

    for rest in (1, 2, 3):
        child.loop._poke(1_000_000.0 * rest)
    assert not child.loop._hands.unflushed

    for look in range(25):  # but so they are once they were seen waiting all along
        child.loop._poke(4_000_000.0 + look * 0.05)
    assert len(child.loop._hands.unflushed) == 3


def test_b09_rows_that_the_child_does_not_know_are_released_and_gone_ones_dropped(
    child: Child, duty: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = rows.add_jobs(duty, 2)
    child.claim(2)
    monkeypatch.setattr(child.loop._pool, "drop", lambda job: True)
    duty.execute(
        "INSERT INTO relay_queue (name, paused_at) VALUES ('default', now()) "
        "ON CONFLICT (name) DO UPDATE SET paused_at = now()"
    )
    (unknown,) = rows.hold(duty, child.worker_id)
    duty.execute(
        "UPDATE relay_job SET worker_id = NULL, state = 'queued' WHERE id = %s",
        (ids[0],),
    )

    child.loop._must_compare = True
    child.step_until(lambda: not child.loop._must_compare)

    assert rows.job_row(duty, unknown)["state"] == "queued"
    assert rows.events(duty, unknown) == ["release"]
    assert set(child.loop._hands.held) == {ids[1]}


def test_what_waits_makes_room_for_a_job_that_must_run_alone(
    child: Child, duty: EngineConnection
) -> None:
    rows.add_jobs(duty, 2)
    running, waiting = child.claim(2)
    child.loop._pool._ready.append(waiting)
    (crashed,) = rows.hold(duty, child.worker_id, crashes=1)

    child.loop._hand_out([waiting._replace(id=crashed, crashes=1)])
    child.step_until(lambda: waiting.id not in child.loop._hands.held)

    assert rows.job_row(duty, waiting.id)["state"] == "queued"
    assert running.id in child.loop._hands.held
    assert [job.id for job in child.loop._alone] == [crashed]


def test_jobs_that_take_long_are_not_kept_waiting_behind_each_other(
    child: Child, duty: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "STUCK_SECONDS", 0.02)
    monkeypatch.setattr(child.loop._pool, "poke", lambda: False)
    rows.add_jobs(duty, 2)
    ended, waiting = child.claim(2)
    child.loop._pool._ready.append(waiting)

    entry = child.table.begin(ended.id.bytes, ended.attempt)
    child.loop._pool._ended.append(Ended(ended, completed(ended), entry, 5.0))
    child.step_until(lambda: rows.events(duty, waiting.id))

    assert rows.events(duty, waiting.id)[0] == "release"
    assert rows.job_row(duty, ended.id)["state"] == "completed"


def test_a_drain_releases_what_has_not_started_and_then_ends(
    child: Child, duty: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = rows.add_jobs(duty, 2)
    jobs = child.claim(2)
    monkeypatch.setattr(
        child.loop._pool, "withdraw", lambda: [jobs.pop()] if jobs else []
    )

    child.loop.drain()
    child.step_until(child.loop._is_done)

    assert [rows.job_row(duty, job_id)["state"] for job_id in ids] == ["queued"] * 2
    assert [rows.events(duty, job_id) for job_id in ids] == [["release"]] * 2


def test_a_child_that_has_run_nothing_is_not_replaced_for_its_size(
    child: Child, duty: EngineConnection
) -> None:
    child.loop._options = replace(child.loop._options, max_memory_bytes=1)
    [job_id] = rows.add_jobs(duty, 1)

    [job] = child.claim(1)
    assert not child.loop._is_draining
    child.end(job, completed(job))
    child.step_until(lambda: not child.loop._hands.held)

    assert child.loop._is_draining
    assert rows.job_row(duty, job_id)["state"] == "completed"


def test_a_receiver_that_never_returns_does_not_keep_a_drained_child(
    child: Child, caplog: pytest.LogCaptureFixture
) -> None:
    announcer, over = child.loop._hands.announcer, threading.Event()
    child.loop._hands._settings = replace(get_settings(), grace=timedelta(0))
    signal = Signal()
    signal.connect(lambda **_: over.wait(), weak=False)
    announcer.put([announcing.News(signal, None, {})])

    child.loop.drain()
    child.loop.run()

    assert announcer.is_busy
    assert "receivers of signals did not return in time" in caplog.text
    over.set()


def test_an_embedded_loop_that_failed_leaves_no_thread_and_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = SharedState(1, CAPACITY).tables[0]
    control, waker = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with control, waker:
        options = LoopOptions(queues={"default": 1}, concurrency=1)
        loop = EmbeddedLoop(uuid7(), options, table, control, waker)
        closed = threading.Event()
        loop._nursery = cast("Nursery", SimpleNamespace(close=closed.set))
        loop._hands.announcer.put([announcing.News(Signal(), None, {})])
        thread = loop._hands.announcer._thread
        assert thread is not None
        monkeypatch.setattr(loop, "_step", lambda: 1 / 0)

        with pytest.raises(ZeroDivisionError):
            loop.run()
        loop.close()

    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()
    assert closed.is_set()


def test_a_wait_of_months_does_not_end_the_loop() -> None:
    bell, (reader, writer) = Bell(), os.pipe()
    os.write(writer, b".")

    assert bell.wait([reader], timedelta(days=365).total_seconds()) == [reader]

    bell.close()
    for file in (reader, writer):
        os.close(file)


def test_failures_of_every_kind_are_written_in_one_flush(
    child: Child, duty: EngineConnection
) -> None:
    ids = rows.add_jobs(duty, 4, max_retries=3)
    jobs = {job.id: job for job in child.claim(4)}

    def settle(job_id: UUID, verb: Any, **more: Any) -> None:
        job = jobs[job_id]
        child.end(job, Settled(id=job.id, attempt=job.attempt, verb=verb, **more))

    settle(ids[0], "retry", delay_seconds=60, is_charged=True, error_class="E")
    settle(ids[1], "fail", is_charged=True, error_class="E")
    settle(ids[2], "hand_back", delay_seconds=60, error_class="UnknownTask")
    child.end(jobs[ids[3]], completed(jobs[ids[3]]))
    child.step_until(lambda: not child.loop._hands.held)

    states = [rows.job_row(duty, job_id)["state"] for job_id in ids]
    assert states == ["retrying", "failed", "retrying", "completed"]
    assert [rows.job_row(duty, job_id)["failures"] for job_id in ids] == [1, 1, 0, 0]

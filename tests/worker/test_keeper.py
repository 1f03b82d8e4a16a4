"""The keeper's work, turn by turn in this process."""

from __future__ import annotations

import fcntl
import os
import resource
import select
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.test import override_settings

from relay.engine import holdings, lease
from relay.engine.connection import EngineConnection, connect
from relay.ids import uuid7
from relay.worker import keeper as keeper_module
from relay.worker import listener as listener_module
from relay.worker.cancels import read_cancels, write_cancels
from relay.worker.keeper import Keeper, KeeperOptions
from relay.worker.messages import Channel
from relay.worker.rota import Rota
from relay.worker.shared import SharedState
from tests.engine import rows

LEASE_SECONDS = 30.0


class Duty:
    """Raises what it is told to."""

    interval = timedelta(0)
    rest = timedelta(0)
    next_at = "NULL::timestamptz"

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.ticks = 0

    def tick(self, connection: EngineConnection) -> bool:
        self.ticks += 1
        if self.error is not None:
            raise self.error
        return False


class Office:
    """A keeper of two places, and the parent's end of its channel."""

    def __init__(self) -> None:
        self.shared = SharedState(2, 4)
        self.files = list(os.pipe())
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sockets = [near, far]
        self.children = []
        for _ in range(2):
            pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            for end in pair:
                end.setblocking(False)
            self.children.append(pair)
            self.sockets += pair
        self.parent = Channel(near)
        self.keeper = self._make(far)
        self.duty = Duty()
        self.keeper._rota = Rota([self.duty])

    def _make(self, far: socket.socket) -> Keeper:
        options = KeeperOptions(
            name="tests",
            supervisor=uuid7(),
            queues=["default"],
            concurrency=1,
            version="0",
        )
        ends = [keeper for keeper, _ in self.children]
        return Keeper(options, self.shared, Channel(far), ends, self.files[0])

    def start_child(self, index: int) -> UUID:
        worker_id = uuid7()
        self.shared.tables[index].reset(worker_id)
        self.tell(kind="child", index=index, worker=str(worker_id), pid=1)
        return worker_id

    def tell(self, **message: Any) -> None:
        self.keeper._take_in(message)

    def close(self) -> None:
        for end in self.sockets:
            end.close()
        for file in self.files:
            os.close(file)
        for connection in (
            self.keeper._link.connection,
            self.keeper._listener.connection,
        ):
            if connection is not None:
                connection.close()


@pytest.fixture
def office(transactional_db: None) -> Iterator[Office]:
    with override_settings(RELAY={"LEASE": timedelta(seconds=LEASE_SECONDS)}):
        made = Office()
        yield made
        made.close()


def workers(duty: EngineConnection) -> dict[UUID, str]:
    return dict(duty.execute("SELECT id, state FROM relay_worker").fetchall())


def test_a_child_may_claim_only_once_its_row_is_there(
    office: Office, duty: EngineConnection
) -> None:
    worker_id = office.start_child(0)
    assert not office.shared.tables[0].is_registered

    office.keeper._work()

    assert office.shared.tables[0].is_registered
    assert workers(duty) == {worker_id: "running"}
    assert 0 < office.shared.lease_safe_until - time.monotonic() <= LEASE_SECONDS
    assert office.children[0][1].recv(10) == b""  # it is woken


def test_a_new_keeper_renews_before_it_calls_old_leases_safe(
    office: Office, duty: EngineConnection
) -> None:
    """The row of a child that an earlier keeper registered is as old as it says."""
    worker_id = office.start_child(0)
    office.keeper._work()
    duty.execute(
        "UPDATE relay_worker SET lease_expires_at = clock_timestamp() + interval '1 s'"
    )
    office.keeper._children.clear()
    office.keeper._renew_at = time.monotonic() + 100
    office.shared.lease_safe_until = 7.0

    office.tell(kind="child", index=0, worker=str(worker_id), pid=1)
    office.keeper._work()
    assert office.shared.lease_safe_until == 7.0
    office.keeper._work()

    assert office.shared.lease_safe_until > time.monotonic() + LEASE_SECONDS / 2
    (seconds,) = duty.execute(
        "SELECT extract(epoch FROM lease_expires_at - clock_timestamp()) "
        "FROM relay_worker"
    ).fetchone() or (0,)
    assert seconds > LEASE_SECONDS / 2


def test_b04_a_child_that_was_given_up_is_reported_to_the_parent(
    office: Office, duty: EngineConnection
) -> None:
    first, second = office.start_child(0), office.start_child(1)
    office.keeper._work()
    duty.execute("UPDATE relay_worker SET state = 'lost' WHERE id = %s", (first,))

    office.keeper._renew_at = 0
    office.keeper._work()

    assert office.parent.receive() == [{"kind": "lost", "worker": str(first)}]
    assert workers(duty) == {first: "lost", second: "running"}


def test_a_dead_child_is_settled_once_and_the_parent_is_told(
    office: Office, duty: EngineConnection
) -> None:
    worker_id = office.start_child(0)
    office.keeper._work()
    started, waiting = rows.hold(duty, worker_id, 2)
    message = {
        "kind": "dead",
        "worker": str(worker_id),
        "started": [(str(started), 1)],
        "timed_out": [],
        "is_charged": True,
        "reason": "the worker process died of SIGKILL",
    }

    office.tell(**message)
    office.keeper._work()
    before = rows.everything(duty)
    office.tell(**message)
    office.keeper._work()

    assert rows.everything(duty) == before
    assert rows.job_row(duty, started)["crashes"] == 1
    assert rows.job_row(duty, waiting)["crashes"] == 0
    assert rows.states(duty) == {"queued": 2}
    assert workers(duty) == {worker_id: "stopped"}
    settled = {"kind": "settled", "worker": str(worker_id)}
    assert office.parent.receive() == [settled, settled]


def test_rows_that_are_refused_are_left_to_the_reaper_and_stop_no_duty(
    office: Office, duty: EngineConnection, caplog: pytest.LogCaptureFixture
) -> None:
    worker_id = office.start_child(0)
    office.keeper._work()
    [at_its_end] = rows.hold(duty, worker_id, crashes=2_000_000_000)
    ticks = office.duty.ticks
    office.tell(
        kind="dead",
        worker=str(worker_id),
        started=[(str(at_its_end), 1)],
        timed_out=[],
        is_charged=True,
        reason="the worker process died of SIGKILL",
    )

    for _ in range(2):
        office.keeper._rota.timers[0].due_at = 0
        office.keeper._work()

    assert office.duty.ticks == ticks + 2
    assert office.keeper._link.connection is not None
    settled = {"kind": "settled", "worker": str(worker_id)}
    assert office.parent.receive() == [settled]
    [record] = [r for r in caplog.records if r.__dict__["event"] == "worker.refused"]
    assert record.__dict__["worker_id"] == str(worker_id)
    assert lease.orphan_holders(duty) == [worker_id]
    lease.take(duty, worker_id, loss_limit=10)
    assert rows.states(duty) == {"queued": 1}


@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.QueryCanceled("statement timeout"),
        psycopg.errors.DeadlockDetected("deadlock"),
        ValueError("a bug"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_failure_115_a_failing_duty_costs_neither_the_connection_nor_the_leases(
    office: Office, error: Exception
) -> None:
    office.start_child(0)
    office.keeper._work()
    connection, sound_since = office.keeper._link.connection, office.keeper._sound_since
    office.duty.error = error
    office.keeper._rota.timers[0].due_at = 0

    office.keeper._work()

    assert office.duty.ticks == 2
    assert office.keeper._link.connection is connection
    assert office.keeper._sound_since == sound_since
    assert office.keeper._rota.timers[0].failures == 1


def test_a_failing_duty_comes_less_and_less_often_but_at_least_each_minute(
    office: Office,
) -> None:
    office.start_child(0)
    office.duty.interval = timedelta(seconds=1)
    office.duty.error = ValueError("a bug")
    pauses = []
    for _ in range(15):
        office.keeper._rota.timers[0].due_at = 0
        office.keeper._work()
        pauses.append(office.keeper._rota.timers[0].due_at - time.monotonic())

    assert pauses[0] < 3
    assert 10 < pauses[-1] < 70


@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.ReadOnlySqlTransaction("read-only"),
        psycopg.errors.AdminShutdown("shutdown"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_failure_060_a_duty_that_meets_an_outage_makes_the_keeper_reconnect(
    office: Office, error: Exception
) -> None:
    office.start_child(0)
    office.keeper._work()
    office.duty.error = error
    office.keeper._rota.timers[0].due_at = 0

    office.keeper._work()

    assert office.keeper._link.connection is None
    assert office.keeper._rota.timers[0].failures == 0


def test_nobody_is_given_up_by_a_keeper_that_was_stopped_itself(
    office: Office,
) -> None:
    office.start_child(0)
    office.keeper._work()
    office.keeper._sound_since = time.monotonic() - 10 * LEASE_SECONDS
    assert office.keeper._is_sound()

    office.keeper._worked_at = time.monotonic() - LEASE_SECONDS
    office.keeper._work()

    assert not office.keeper._is_sound()


def test_a_wake_up_reaches_every_child_and_a_full_one_is_passed_over(
    office: Office,
) -> None:
    (keeper, _), (_, other) = office.children
    with suppress(BlockingIOError):
        while True:
            keeper.send(b"x" * 1_000)

    office.keeper._listener.nudge(b"default 0 1")

    assert other.recv(100) == b"default 0 1"


def test_a_connection_over_which_nothing_can_be_heard_is_closed(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[EngineConnection] = []

    def unfit(alias: str, **options: Any) -> EngineConnection:
        made.append(connect(alias, **options))
        made[0].execute("BEGIN")
        with suppress(psycopg.Error):
            made[0].execute("SELECT 1 / 0")
        return made[0]

    monkeypatch.setattr(listener_module, "connect", unfit)

    office.keeper._listener.listen(time.monotonic())

    assert office.keeper._listener.connection is None
    assert [each.closed for each in made] == [True]


def cancels(office: Office, index: int) -> list[tuple[UUID, int]]:
    with suppress(BlockingIOError):
        while True:
            found = read_cancels(office.children[index][1].recv(65_536))
            if found:
                return found
    return []


def test_a_stop_reaches_the_parent_while_there_is_no_child(office: Office) -> None:
    office.keeper._heed("stop")

    assert [message["kind"] for message in office.parent.receive()] == ["shutdown"]


def test_a_descriptor_that_select_does_not_know_is_waited_for(office: Office) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1_100
    if wanted + 1 >= soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * wanted), hard))
    far = fcntl.fcntl(office.files[0], fcntl.F_DUPFD, wanted)
    try:
        office.keeper._parent_pipe = far
        office.keeper._parent._end.setblocking(False)
        office.parent.send(kind="drain")

        office.keeper._wait()
    finally:
        os.close(far)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert office.keeper._is_draining


def test_a_child_is_told_which_of_its_jobs_are_to_stop_until_they_have(
    office: Office, duty: EngineConnection
) -> None:
    worker_id, _ = office.start_child(0), office.start_child(1)
    office.keeper._work()
    [job_id] = rows.hold(duty, worker_id, attempt=2, cancel_requested_at="now")

    for _ in range(2):
        office.keeper._cancel_at = 0.0  # a second later
        office.keeper._work()
        assert cancels(office, 0) == [(job_id, 2)]
    duty.execute("UPDATE relay_job SET state = 'cancelled'")
    office.keeper._cancel_at = 0.0
    office.keeper._work()

    assert cancels(office, 0) == []
    assert cancels(office, 1) == []


def test_the_keeper_looks_for_cancels_once_a_second_and_when_it_hears_of_one(
    office: Office, duty: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert keeper_module.CANCEL_POLL_SECONDS == 1
    monkeypatch.setattr(keeper_module, "CANCEL_POLL_SECONDS", 1_000.0)
    worker_id = office.start_child(0)
    office.keeper._listener.listen(time.monotonic())
    listener = office.keeper._listener.connection
    assert listener is not None
    office.keeper._work()
    [job_id] = rows.hold(duty, worker_id, cancel_requested_at="now")
    assert 0 < office.keeper._cancel_at - time.monotonic() <= 1_000

    office.keeper._work()
    assert cancels(office, 0) == []
    duty.execute("SELECT pg_notify('relay_cancel', '')")
    select.select([listener], [], [], 60)
    office.keeper._listener.read()
    office.keeper._work()
    listener.close()

    assert cancels(office, 0) == [(job_id, 1)]


def test_a_poll_asks_nothing_while_no_child_runs_anything(
    office: Office, duty: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    find = holdings.cancel_requested

    def note(*args: Any) -> Any:
        asked.append(args)
        return find(*args)

    monkeypatch.setattr(holdings, "cancel_requested", note)
    worker_id = office.start_child(0)
    office.keeper._work()
    [job_id] = rows.hold(duty, worker_id, cancel_requested_at="now")
    asked.clear()

    office.keeper._cancel_at = time.monotonic() - 1
    office.keeper._work()
    assert not asked
    office.shared.tables[0].begin(job_id.bytes, 1)
    office.keeper._cancel_at = time.monotonic() - 1
    office.keeper._work()

    assert len(asked) == 1
    assert cancels(office, 0) == [(job_id, 1)]


def test_an_idle_keeper_sends_less_than_two_statements_a_second(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.keeper._rota = Rota(office.keeper._duties())
    office.start_child(0)
    office.keeper._work()
    sent: list[object] = []
    execute = EngineConnection.execute

    def count(self: EngineConnection, *args: Any, **options: Any) -> Any:
        sent.append(args[0])
        return execute(self, *args, **options)

    now = [time.monotonic()]
    with monkeypatch.context() as patch:
        patch.setattr(EngineConnection, "execute", count)
        patch.setattr(time, "monotonic", lambda: now[0])
        for _ in range(1_200):
            now[0] += 0.1
            office.keeper._work()

    assert 60 < len(sent) < 2 * 120


def test_a_child_that_reads_nothing_costs_the_others_no_cancel(
    office: Office, duty: EngineConnection
) -> None:
    ids = [office.start_child(0), office.start_child(1)]
    office.keeper._work()
    with suppress(BlockingIOError):
        while True:
            office.children[0][0].send(b"x" * 1_000)
    rows.hold(duty, ids[0], cancel_requested_at="now")
    [job_id] = rows.hold(duty, ids[1], cancel_requested_at="now")

    office.keeper._cancel_at = 0.0
    office.keeper._work()

    assert cancels(office, 1) == [(job_id, 1)]


def test_many_cancels_are_told_in_datagrams_that_every_system_takes() -> None:
    jobs = [(uuid7(), number) for number in range(1_200)]

    datagrams = list(write_cancels(jobs))

    assert [job for each in datagrams for job in read_cancels(each)] == jobs
    assert max(len(each) for each in datagrams) < 32_000
    assert read_cancels(b"default 0 1") == []

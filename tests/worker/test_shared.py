"""Memory and messages that a worker's processes share."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from uuid import UUID

import pytest

from relay.ids import uuid7
from relay.worker.messages import Channel
from relay.worker.shared import SharedState


@pytest.fixture
def pair() -> Iterator[tuple[Channel, Channel]]:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with near, far:
        yield Channel(near), Channel(far)


def test_a_table_tells_what_was_started_and_not_ended() -> None:
    table = SharedState(1, 3).tables[0]
    first, second = uuid7(), uuid7()

    entry = table.begin(first.bytes, 1)
    table.begin(second.bytes, 7)
    table.end(entry)

    assert list(table.started()) == [(second, 7)]


def test_a_table_holds_as_many_attempts_as_it_was_made_for_again_and_again() -> None:
    table = SharedState(1, 2).tables[0]

    for attempt in range(1, 50):
        entries = [table.begin(uuid7().bytes, attempt) for _ in range(2)]
        assert [found for _, found in table.started()] == [attempt] * 2
        for entry in entries:
            table.end(entry)

    assert list(table.started()) == []


def test_tables_and_cells_do_not_touch_each_other() -> None:
    shared = SharedState(3, 2)
    ids = [uuid7() for _ in shared.tables]
    for table, worker_id in zip(shared.tables, ids, strict=True):
        table.reset(worker_id)
    shared.lease_safe_until = 12.5
    shared.keeper_ticked_at = 13.5
    shared.tables[1].tick(3.25)
    shared.tables[1].mark_registered()
    shared.tables[1].begin(uuid7().bytes, 1)
    shared.tables[1].begin(uuid7().bytes, 2)

    assert (shared.lease_safe_until, shared.keeper_ticked_at) == (12.5, 13.5)
    assert [table.worker_id for table in shared.tables] == ids
    assert [table.ticked_at for table in shared.tables] == [0, 3.25, 0]
    assert [table.is_registered for table in shared.tables] == [False, True, False]
    assert [len(list(table.started())) for table in shared.tables] == [0, 2, 0]


def test_reset_forgets_everything_of_the_child_before() -> None:
    table = SharedState(1, 2).tables[0]
    table.mark_registered()
    table.tick(1.0)
    table.begin(uuid7().bytes, 1)
    new = uuid7()

    table.reset(new)

    assert table.worker_id == new
    assert not table.is_registered
    assert table.ticked_at == 0
    assert list(table.started()) == []


# Python 3.12 warns of any thread that lives meanwhile; the child runs none of its code.
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_what_a_killed_process_wrote_is_there_for_its_parent() -> None:
    shared = SharedState(1, 2)
    job = UUID(int=7)
    pid = os.fork()
    if pid == 0:
        shared.tables[0].begin(job.bytes, 3)
        shared.lease_safe_until = 9.0
        os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)

    assert list(shared.tables[0].started()) == [(job, 3)]
    assert shared.lease_safe_until == 9.0


def test_messages_arrive_whole_and_in_order(
    pair: tuple[Channel, Channel],
) -> None:
    near, far = pair

    near.send(kind="child", index=1)
    near.send(kind="drain")

    assert far.receive() == [{"kind": "child", "index": 1}, {"kind": "drain"}]
    assert far.receive() == []


def test_what_the_other_end_has_no_room_for_waits_and_is_not_lost(
    pair: tuple[Channel, Channel],
) -> None:
    near, far = pair
    for number in range(2_000):
        near.send(number=number, ballast="x" * 10_000)

    received: list[int] = []
    while len(received) < 2_000:
        messages = far.receive()
        near.flush()
        assert messages
        received += [message["number"] for message in messages]

    assert received == list(range(2_000))


def test_forget_drops_what_waits_for_a_process_that_is_gone(
    pair: tuple[Channel, Channel],
) -> None:
    near, far = pair
    for number in range(2_000):
        near.send(number=number, ballast="x" * 10_000)
    before = len(far.receive())

    near.forget()
    near.flush()

    assert 0 < before < 2_000
    assert far.receive() == []


def test_the_death_of_a_child_with_a_full_table_fits_into_one_message(
    pair: tuple[Channel, Channel],
) -> None:
    near, far = pair
    started = [(str(uuid7()), 1_000_000) for _ in range(4_096)]

    near.send(kind="dead", started=started)

    (message,) = far.receive()
    assert message["started"] == [list(each) for each in started]

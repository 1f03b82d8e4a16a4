"""relay.engine.watching: one thread and one connection for all who wait for jobs."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test import override_settings

from relay import JobHandle, JobNotFound, handles
from relay.engine import watching
from relay.engine.connection import EngineConnection, connect
from relay.engine.ended import (
    AWAITED_CHANNEL,
    ENDED_CHANNEL,
    notify_awaited,
    notify_ended,
    parse_ids,
)
from relay.ids import uuid7
from relay.models import Job
from testproject.tasks import add
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

NEVER = 1_000.0
SESSIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name = 'relay waiting' AND datname = current_database()
"""


@pytest.fixture
def session() -> Iterator[EngineConnection]:
    made = connect("default", role="listen", name="tests")
    until(lambda: count_sessions(made) == 0, what="no wait of an earlier test")
    yield made
    made.close()


@pytest.fixture
def only_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks: what is not told is not found."""
    monkeypatch.setattr(watching, "FIRST_LOOK_SECONDS", NEVER)
    monkeypatch.setattr(watching, "LAST_LOOK_SECONDS", NEVER)
    monkeypatch.setattr(handles, "OWN_LOOK_SECONDS", NEVER)


def count_sessions(session: EngineConnection) -> int:
    row = session.execute(SESSIONS).fetchone()
    return 0 if row is None else int(row[0])


def complete(session: EngineConnection, handle: JobHandle[Any]) -> None:
    session.execute(
        "UPDATE relay_job SET state = 'completed', result = '3' WHERE id = %s",
        (handle.id,),
    )


def wait_in_thread(handle: JobHandle[Any], results: list[Any]) -> threading.Thread:
    def run() -> None:
        try:
            results.append(handle.result(timeout=60))
        except Exception as error:
            results.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def awaited(session: EngineConnection) -> Iterator[str]:
    """Give the payloads of relay_awaited as they come."""
    session.execute(f"LISTEN {AWAITED_CHANNEL}".encode())
    while True:
        for heard in session.notifies(timeout=60, stop_after=1):
            yield heard.payload


def test_the_ids_of_a_payload_come_back_and_anything_else_is_no_payload() -> None:
    ids = [uuid7(), uuid7()]

    assert parse_ids(f"{ids[0].hex} {ids[1].hex}") == ids
    assert parse_ids("") == []
    assert parse_ids("a tale") == []


def test_many_ids_are_told_in_payloads_that_notify_can_take(
    session: EngineConnection,
) -> None:
    ids = [uuid7() for _ in range(1_000)]
    session.execute(f"LISTEN {AWAITED_CHANNEL}".encode())

    notify_awaited(session, ids)

    heard = session.notifies(timeout=60, stop_after=5)
    assert [each for note in heard for each in parse_ids(note.payload)] == ids


def test_a_caller_learns_of_an_end_without_looking(
    session: EngineConnection, only_told: None
) -> None:
    handle, results = add.enqueue(1, 2), list[Any]()
    payloads = awaited(session)
    thread = wait_in_thread(handle, results)

    with connect("default", role="duty", name="tests") as worker:
        assert parse_ids(next(payloads)) == [handle.id]
        complete(worker, handle)
        notify_ended(worker, [handle.id])
        thread.join(60)

    assert results == [3]


def test_async_callers_learn_of_an_end_without_looking(
    session: EngineConnection, only_told: None
) -> None:
    handles_ = [add.enqueue(1, 2) for _ in range(3)]

    async def wait_for_all() -> list[int]:
        waiting = [asyncio.create_task(each.aresult(60)) for each in handles_]
        await asyncio.to_thread(end_all)
        return await asyncio.gather(*waiting)

    def end_all() -> None:
        payloads, told = awaited(session), set()
        with connect("default", role="duty", name="tests") as worker:
            while told != {each.id for each in handles_}:
                told.update(parse_ids(next(payloads)))
            for each in handles_:
                complete(worker, each)
            notify_ended(worker, [each.id for each in handles_])

    assert async_to_sync(wait_for_all)() == [3, 3, 3]


def test_workers_are_told_again_while_somebody_waits(
    session: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "TELL_SECONDS", 0.05)
    handle, results = add.enqueue(1, 2), list[Any]()
    payloads = awaited(session)
    thread = wait_in_thread(handle, results)

    for _ in range(3):
        assert parse_ids(next(payloads)) == [handle.id]

    with connect("default", role="duty", name="tests") as worker:
        complete(worker, handle)
    thread.join(60)
    assert results == [3]


def test_an_end_that_nobody_tells_of_is_found_by_looking(
    session: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handles, "OWN_LOOK_SECONDS", NEVER)
    handle, results = add.enqueue(1, 2), list[Any]()
    thread = wait_in_thread(handle, results)
    until(lambda: count_sessions(session) == 1)

    complete(session, handle)
    thread.join(60)

    assert results == [3]


def test_a_row_that_is_deleted_meanwhile_ends_the_wait(
    session: EngineConnection,
) -> None:
    handle, results = add.enqueue(1, 2), list[Any]()
    thread = wait_in_thread(handle, results)
    until(lambda: count_sessions(session) == 1)

    Job.objects.filter(pk=handle.id).delete()
    thread.join(60)

    assert [type(each) for each in results] == [JobNotFound]


@pytest.mark.parametrize("relay", [{"NOTIFY": False}, {"TRANSACTION_POOLER": True}])
def test_without_listen_a_wait_looks_and_tells_nobody(
    session: EngineConnection, relay: dict[str, bool]
) -> None:
    session.execute(f"LISTEN {AWAITED_CHANNEL}".encode())
    with override_settings(RELAY=relay):
        handle, results = add.enqueue(1, 2), list[Any]()
        thread = wait_in_thread(handle, results)
        until(lambda: count_sessions(session) == 1)

        complete(session, handle)
        thread.join(60)

    assert results == [3]
    assert list(session.notifies(timeout=0)) == []


def test_many_waits_share_one_thread_and_one_connection(
    session: EngineConnection,
) -> None:
    many = [add.enqueue(1, 2) for _ in range(200)]

    async def wait_for_all() -> list[int]:
        waiting = [asyncio.create_task(each.aresult(60)) for each in many]
        await asyncio.to_thread(lambda: until(lambda: count_sessions(session) > 0))
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("relay-watching") == 1
        assert count_sessions(session) == 1
        await asyncio.to_thread(
            session.execute, "UPDATE relay_job SET state = 'completed', result = '3'"
        )
        return await asyncio.gather(*waiting)

    assert async_to_sync(wait_for_all)() == [3] * 200


def test_the_connection_is_closed_when_nobody_waits(
    session: EngineConnection,
) -> None:
    for _ in range(2):
        handle, results = add.enqueue(1, 2), list[Any]()
        thread = wait_in_thread(handle, results)
        until(lambda: count_sessions(session) == 1)
        complete(session, handle)
        thread.join(60)

        until(lambda: count_sessions(session) == 0)

        assert results == [3]


def test_a_wait_survives_the_loss_of_its_connection(
    session: EngineConnection,
) -> None:
    handle, results = add.enqueue(1, 2), list[Any]()
    thread = wait_in_thread(handle, results)
    until(lambda: count_sessions(session) == 1)

    session.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'relay waiting' AND datname = current_database()"
    )
    complete(session, handle)
    thread.join(60)

    assert results == [3]


def test_a_wait_goes_on_by_itself_where_no_connection_is_to_be_had(
    session: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = threading.Event()

    def refuse(*_: Any, **__: Any) -> EngineConnection:
        tried.set()
        raise psycopg.OperationalError("too many connections")

    monkeypatch.setattr(watching, "connect", refuse)
    handle, results = add.enqueue(1, 2), list[Any]()
    thread = wait_in_thread(handle, results)
    assert tried.wait(60)

    complete(session, handle)
    thread.join(60)

    assert results == [3]


def test_a_forked_child_has_waits_of_its_own(session: EngineConnection) -> None:
    handle, results = add.enqueue(1, 2), list[Any]()
    thread = wait_in_thread(handle, results)
    until(lambda: count_sessions(session) == 1)

    pid = os.fork()
    if pid == 0:
        os._exit(0 if not watching._watchers and not watching._lock.locked() else 1)
    _, status = os.waitpid(pid, 0)
    complete(session, handle)
    thread.join(60)

    assert os.waitstatus_to_exitcode(status) == 0
    assert results == [3]


def test_an_end_is_told_on_a_channel_of_its_own(session: EngineConnection) -> None:
    job_id = uuid7()
    session.execute(f"LISTEN {ENDED_CHANNEL}".encode())

    notify_ended(session, [job_id])

    [heard] = session.notifies(timeout=60, stop_after=1)
    assert parse_ids(heard.payload) == [job_id]

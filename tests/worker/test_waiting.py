"""A caller that waits for a job, and the worker that tells it of the end."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings

from relay import JobHandle, TaskFailed, handles
from relay.engine import watching
from relay.engine.connection import EngineConnection, connect
from relay.engine.ended import ENDED_CHANNEL
from relay.ids import uuid7
from relay.worker import waiters as waiters_module
from relay.worker.waiters import Waiters, write_awaited
from tests.waiting import until
from tests.worker.harness import Database, Workers

NEVER = 1_000.0


@pytest.fixture
def listener(duty: EngineConnection) -> Iterator[EngineConnection]:
    made = connect("default", role="listen", name="tests")
    made.execute(f"LISTEN {ENDED_CHANNEL}".encode())
    yield made
    made.close()


def heard(listener: EngineConnection, count: int = 0) -> list[str]:
    """Wait for so many; where none is to come, for a moment."""
    notes = listener.notifies(timeout=60 if count else 0.1, stop_after=count or None)
    return [note.payload for note in notes]


@pytest.fixture
def only_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks: what is not told is not found."""
    monkeypatch.setattr(watching, "FIRST_LOOK_SECONDS", NEVER)
    monkeypatch.setattr(watching, "LAST_LOOK_SECONDS", NEVER)
    monkeypatch.setattr(handles, "OWN_LOOK_SECONDS", NEVER)


def test_an_end_is_told_only_to_those_who_wait(
    duty: EngineConnection, listener: EngineConnection
) -> None:
    waiters, awaited, other = Waiters(), uuid7(), uuid7()
    assert not waiters.is_awaited
    assert waiters.read(write_awaited(awaited.hex.encode()))

    waiters.note([other])
    waiters.tell(duty)
    assert heard(listener) == []

    waiters.note([other, awaited])
    waiters.tell(duty)
    assert heard(listener, 1) == [awaited.hex]


def test_other_datagrams_are_left_to_others() -> None:
    waiters = Waiters()

    assert not waiters.read(b"default 0 1")
    assert waiters.read(write_awaited(b"no ids"))
    assert not waiters.is_awaited


def test_who_has_not_asked_again_is_forgotten(
    duty: EngineConnection,
    listener: EngineConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiters, job_id = Waiters(), uuid7()
    waiters.read(write_awaited(job_id.hex.encode()))
    monkeypatch.setattr(waiters_module, "REMEMBERED_SECONDS", 0.0)

    waiters.note([job_id])
    waiters.tell(duty)

    assert heard(listener, 1) == [job_id.hex]
    assert not waiters.is_awaited


def test_who_waits_for_a_job_of_another_child_is_forgotten(
    duty: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiters = Waiters()
    waiters.read(write_awaited(uuid7().hex.encode()))
    monkeypatch.setattr(waiters_module, "REMEMBERED_SECONDS", 0.0)

    waiters.note([uuid7()])
    waiters.tell(duty)

    assert not waiters.is_awaited


def test_a_child_remembers_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiters_module, "MOST_AWAITED", 2)
    waiters, ids = Waiters(), [uuid7() for _ in range(3)]

    waiters.read(write_awaited(b" ".join(each.hex.encode() for each in ids)))

    assert list(waiters._awaited) == ids[:2]


@pytest.mark.slow
def test_a_worker_tells_who_waits_that_a_job_has_ended(
    database: Database, workers: Workers, tmp_path: Path, only_told: None
) -> None:
    workers.start(processes=2)
    door = tmp_path / "door"
    ids = [
        database.enqueue_one("gate", str(door)),
        database.enqueue_one("gate", str(door), max_retries=0),
    ]
    for job_id in ids:
        database.wait_for_start(job_id)
    results: list[Any] = []
    threads = [threading.Thread(target=wait, args=(each, results)) for each in ids]
    for thread in threads:
        thread.start()
    # Told again: the children have known for two seconds, and there is no answer.
    told = database.session
    told.execute("LISTEN relay_awaited")
    times = Counter[str]()
    for note in told.notifies(timeout=60):
        times.update(note.payload.split())
        if all(times[job.hex] >= 2 for job in ids):
            break
    assert all(times[job.hex] >= 2 for job in ids)

    door.touch()
    for thread in threads:
        thread.join(60)

    assert results == [None, None]


def wait(job_id: Any, results: list[Any]) -> None:
    try:
        results.append(JobHandle[Any](job_id, "gate").result(timeout=60))
    except Exception as error:
        results.append(error)
    finally:
        connection.close()


@pytest.mark.slow
def test_a_failure_ends_the_wait_of_a_caller_that_may_not_listen(
    database: Database, workers: Workers
) -> None:
    workers.start()
    results: list[Any] = []

    with override_settings(RELAY={"NOTIFY": False}):
        wait(database.enqueue_one("fail", max_retries=0), results)

    assert [type(each) for each in results] == [TaskFailed]
    until(lambda: database.states() == {"failed": 1})

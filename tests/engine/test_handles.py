"""relay.handles: what a caller learns of its job, and how long it waits for that."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction

from relay import (
    ArgumentError,
    JobHandle,
    JobNotFound,
    RelayError,
    ResultExpired,
    ResultTimeout,
    StateConflict,
    TaskFailed,
    WaitRefused,
    codec,
)
from relay.ids import uuid7
from relay.models import Job, JobState
from testproject.tasks import add, echo

pytestmark = pytest.mark.django_db(transaction=True)


def end(handle: JobHandle[Any], state: str, result: object = None) -> None:
    text, _ = codec.encode_result(result)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE relay_job SET state = %s, result = %s::jsonb, "
            "error_class = 'ValueError', error_message = 'why' WHERE id = %s",
            [state, text, handle.id],
        )


def test_a_handle_shows_the_state_of_its_row() -> None:
    handle = add.enqueue(1, 2)
    assert handle.state == JobState.QUEUED
    assert handle.refresh() == JobState.QUEUED
    assert handle.task == "testproject.tasks.add"
    assert str(handle.id) in repr(handle)

    end(handle, "completed", 3)

    assert handle.refresh() is JobState.COMPLETED


def test_handles_of_one_job_are_equal() -> None:
    handle = add.enqueue(1, 2)

    assert JobHandle[int](handle.id, handle.task) == handle
    assert len({JobHandle(handle.id, handle.task), handle}) == 1
    assert handle != add.enqueue(1, 2)
    assert handle != handle.id


def test_failure_046_the_handle_of_a_rolled_back_job_says_that_it_is_gone() -> None:
    with transaction.atomic():
        handle = add.enqueue(1, 2)
        transaction.set_rollback(True)

    for act in (handle.refresh, lambda: handle.state, handle.result, handle.wait):
        with pytest.raises(JobNotFound, match="rolled back"):
            act()


def test_a_result_is_what_the_function_returned() -> None:
    handle = echo.enqueue(None)
    end(handle, "completed", {"when": {1, 2}})

    assert handle.result() == {"when": {1, 2}}
    assert async_to_sync(handle.aresult)() == {"when": {1, 2}}


def test_a_result_that_is_none_is_told_from_one_that_has_expired() -> None:
    handle = add.enqueue(1, 2)
    end(handle, "completed", None)

    assert handle.result() is None

    Job.objects.filter(pk=handle.id).update(result=None)
    with pytest.raises(ResultExpired, match=f"job {handle.id} is gone") as raised:
        handle.result()
    assert raised.value.job_id == handle.id
    assert handle.wait() == "completed"


def test_async_code_cancels_retries_and_replays() -> None:
    handle = add.enqueue(1, 2)

    assert async_to_sync(handle.acancel)(actor="ada")
    assert handle.state == "cancelled"
    async_to_sync(handle.aretry)(actor="ada")
    assert handle.state == "queued"
    handle.cancel()
    replayed = async_to_sync(handle.areplay)()

    assert replayed != handle
    assert async_to_sync(replayed.arefresh)() == "queued"
    with pytest.raises(StateConflict, match="cannot retry job"):
        async_to_sync(replayed.aretry)()


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_the_result_of_a_job_that_ended_badly_raises(state: str) -> None:
    handle = add.enqueue(1, 2)
    end(handle, state)

    with pytest.raises(TaskFailed, match=f"ended {state}: ValueError: why") as raised:
        handle.result()
    assert raised.value.job_id == handle.id
    assert handle.wait() == state
    assert async_to_sync(handle.await_)() == state


def test_a_wait_ends_in_time() -> None:
    handle = add.enqueue(1, 2)

    with pytest.raises(ResultTimeout, match=r"within 0.05 s"):
        handle.result(timeout=0.05)
    with pytest.raises(ResultTimeout, match=r"within 0.05 s"):
        async_to_sync(handle.aresult)(timeout=0.05)

    assert handle.state == "queued"


def test_a_timeout_of_zero_looks_once() -> None:
    handle = add.enqueue(1, 2)

    with pytest.raises(ResultTimeout):
        handle.wait(timeout=0)

    end(handle, "completed", 3)
    assert handle.result(timeout=0) == 3


def test_a_waiting_caller_gets_the_result_once_it_is_there() -> None:
    handle = add.enqueue(1, 2)

    def work() -> None:
        try:
            end(handle, "completed", 3)
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert handle.result(timeout=60) == 3
    finally:
        thread.join(60)


def test_async_code_waits_without_blocking_its_loop() -> None:
    handle = add.enqueue(1, 2)

    async def both() -> int:
        waiting = asyncio.create_task(handle.aresult(timeout=60))
        await asyncio.to_thread(work)
        return await waiting

    def work() -> None:
        try:
            end(handle, "completed", 3)
        finally:
            connection.close()

    assert async_to_sync(both)() == 3
    assert async_to_sync(handle.astate)() == "completed"
    assert async_to_sync(handle.arefresh)() == "completed"


def test_failure_053_waiting_inside_a_transaction_is_refused_at_once() -> None:
    with transaction.atomic():
        handle = add.enqueue(1, 2)
        with pytest.raises(WaitRefused, match=r"after the atomic\(\) block.*drain\(\)"):
            handle.result()


def test_failure_053_inside_a_transaction_a_result_that_is_there_is_given() -> None:
    handle = add.enqueue(1, 2)
    end(handle, "completed", 3)

    with transaction.atomic():
        assert handle.result() == 3


def test_failure_053_an_unknown_id_is_not_found() -> None:
    with pytest.raises(JobNotFound):
        JobHandle(uuid7(), "no:such").result()


@pytest.mark.parametrize(
    "timeout", [-1, float("nan"), float("inf"), None, "1", True], ids=str
)
def test_failure_053_a_wait_always_has_an_end(timeout: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^timeout="):
        add.enqueue(1, 2).result(timeout=timeout)


def test_a_queued_job_is_cancelled_retried_and_replayed_by_its_handle() -> None:
    handle = add.enqueue(1, 2)

    assert handle.cancel(actor="her")
    assert handle.state == "cancelled"
    copy = handle.replay()
    handle.retry()

    assert handle.state == "queued"
    assert copy.state == "queued"
    assert Job.objects.get(pk=copy.id).replay_of == handle.id
    with pytest.raises(StateConflict):
        handle.retry()


def test_cancel_of_a_running_job_says_that_it_is_not_cancelled_yet() -> None:
    handle = add.enqueue(1, 2)
    Job.objects.filter(pk=handle.id).update(state="running", worker_id=handle.id)

    assert handle.cancel() is False

    assert handle.state == "running"
    assert Job.objects.get(pk=handle.id).cancel_requested_at is not None


def test_every_refusal_is_a_relay_error() -> None:
    for kind in (ArgumentError, JobNotFound, ResultTimeout, TaskFailed, WaitRefused):
        assert issubclass(kind, RelayError)

"""Steps of a job: what is done is not done again, whatever happens in between."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.test import override_settings

from relay import (
    ArgumentError,
    EncodeError,
    JobHandle,
    LeaseLost,
    current_job,
    task,
)
from relay.engine.connection import EngineConnection
from relay.engine.prune import prune_jobs
from relay.engine.reseal import reseal
from relay.ids import uuid7
from relay.models import Job, Step
from relay.testing import drain, perform, run_job
from tests.waiting import until
from tests.worker.harness import Database, Workers

pytestmark = pytest.mark.django_db(transaction=True)

KEYS = {"a": "A" * 43 + "=", "b": "B" * 42 + "A="}
body: Callable[..., Any] = lambda: None  # noqa: E731 - replaced by each test
ran: list[str] = []


@task(name="tests.steps.plain", backoff=timedelta(0), max_retries=3)
def plain(*args: Any) -> Any:
    return body(*args)


@task(name="tests.steps.coroutine", backoff=timedelta(0), max_retries=3)
async def coroutine() -> Any:
    return await body()


@task(name="tests.steps.secret", sensitive=("card",), max_retries=0)
def secret(card: str) -> Any:
    return body()


@task(name="tests.steps.brief", retention=timedelta(0))
def brief() -> Any:
    return body()


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def run(handler: Callable[..., Any], made: Any = plain, *args: Any) -> JobHandle[Any]:
    global body
    body = handler
    handle: JobHandle[Any] = made.enqueue(*args)
    drain(with_retries=True)
    return handle


def note(text: str, value: Any = None) -> Any:
    ran.append(text)
    return value


def error_of(handle: JobHandle[Any]) -> tuple[str | None, str]:
    job = Job.objects.get(pk=handle.id)
    return job.error_class, job.error_message or ""


def test_a_step_that_is_done_is_not_done_again_and_gives_the_same_value() -> None:
    def handler() -> Any:
        job = current_job()
        first = job.step("first", note, "first", ("a", {1, 2}, None))
        if job.attempt == 1:
            raise ValueError("between the steps")
        return [first, job.step("second", note, "second", value=7)]

    handle = run(handler)

    assert ran == ["first", "second"]
    assert handle.result() == [["a", {1, 2}, None], 7]


def test_every_attempt_is_given_the_value_in_the_same_form() -> None:
    given: list[Any] = []

    def handler() -> None:
        given.append(current_job().step("pair", lambda: (1, 2)))
        if current_job().attempt == 1:
            raise ValueError("again")

    run(handler)

    assert given == [[1, 2], [1, 2]]


def test_a_step_that_returns_nothing_is_done_as_well() -> None:
    def handler() -> None:
        current_job().step("nothing", note, "nothing")
        if current_job().attempt == 1:
            raise ValueError("again")

    run(handler)

    assert ran == ["nothing"]


def test_a_step_that_raises_is_done_again_and_leaves_nothing_behind() -> None:
    def write() -> None:
        Group.objects.create(name=f"attempt {current_job().attempt}")
        if current_job().attempt == 1:
            raise ValueError("after the write")

    run(lambda: current_job().step("write", write))

    assert [group.name for group in Group.objects.all()] == ["attempt 2"]


def test_a_handler_may_try_a_step_again_in_the_same_attempt() -> None:
    def step() -> str:
        if note("try") is None and len(ran) < 3:
            raise ConnectionError
        return "there"

    def handler() -> str:
        for _ in range(5):
            try:
                return current_job().step("fetch", step)
            except ConnectionError:
                continue
        return "never"

    assert run(handler).result() == "there"


def test_a_step_inside_atomic_goes_with_it() -> None:
    def handler() -> None:
        job = current_job()
        with transaction.atomic():
            job.step(
                "write", lambda: note("write") or Group.objects.create(name="x").pk
            )
            if job.attempt == 1:
                raise ValueError("rolled back")

    run(handler)

    assert ran == ["write", "write"]
    assert Group.objects.count() == 1


def test_one_name_for_two_steps_of_an_attempt_is_refused() -> None:
    def handler() -> None:
        for order in (1, 2):
            current_job().step("charge", note, f"charge {order}")

    handle = run(handler)

    assert error_of(handle)[0] == "ArgumentError"
    assert "the step 'charge' already" in error_of(handle)[1]
    assert ran == ["charge 1"]


def test_a_step_inside_one_of_its_own_name_is_refused() -> None:
    def outer() -> None:
        current_job().step("charge", note, "inner")

    handle = run(lambda: current_job().step("charge", outer))

    assert error_of(handle)[0] == "ArgumentError"
    assert "inside the step 'charge'" in error_of(handle)[1]
    assert ran == []


def test_a_coroutine_step_inside_one_of_its_own_name_is_refused() -> None:
    async def handler() -> None:
        async def outer() -> None:
            await current_job().astep("charge", note, "inner")

        await current_job().astep("charge", outer)

    handle = run(handler, coroutine)

    assert error_of(handle)[0] == "ArgumentError"
    assert "inside the step 'charge'" in error_of(handle)[1]


def test_a_step_that_was_rolled_back_may_be_done_again_by_the_same_attempt() -> None:
    def outer() -> None:
        current_job().step("inner", note, "first")
        raise ValueError("rolls both back")

    def handler() -> str:
        for _ in range(2):
            with suppress(ValueError):
                current_job().step("outer", outer)
        with suppress(ValueError), transaction.atomic():
            current_job().step("inner", note, "second")
            raise ValueError("rolls it back")
        return current_job().step("inner", lambda: "third")

    handle = run(handler)

    assert handle.result() == "third"
    assert ran == ["first", "first", "second"]
    assert Step.objects.filter(job_id=handle.id).count() == 1


@pytest.mark.parametrize("name", ["", "x" * 201, "a\x00b", "a\nb", "\ud800", 7, None])
def test_what_cannot_name_a_step_is_refused(name: Any) -> None:
    handle = run(lambda: current_job().step(name, note, "ran"))

    assert error_of(handle)[0] == "ArgumentError"
    assert "cannot name a step" in error_of(handle)[1]
    assert ran == []


def test_a_value_that_cannot_be_kept_undoes_the_step_and_is_named() -> None:
    def handler() -> None:
        current_job().step("make", lambda: Group.objects.create(name="x") and object())

    handle = run(handler)

    assert error_of(handle)[0] == EncodeError.__name__
    assert "step 'make'" in error_of(handle)[1]
    assert Group.objects.count() == 0


def test_a_value_that_is_too_large_is_refused_with_the_remedy() -> None:
    with override_settings(RELAY={"MAX_RESULT_BYTES": 100}):
        handle = run(lambda: current_job().step("make", lambda: "x" * 200))

    assert "at most 100 are kept" in error_of(handle)[1]


def test_a_retry_by_hand_goes_on_behind_the_steps_and_a_replay_begins_anew() -> None:
    def handler() -> None:
        current_job().step("charge", note, f"charge for {current_job().id}")
        raise ValueError("never well")

    handle = run(handler)
    handle.retry()
    drain(with_retries=True)
    replay = handle.replay()
    drain(with_retries=True)

    assert ran == [f"charge for {handle.id}", f"charge for {replay.id}"]


def test_steps_go_with_their_job(duty: EngineConnection) -> None:
    handle = run(lambda: current_job().step("one", note, "one"))
    brief_handle = run(lambda: current_job().step("one", note, "one"), brief)
    assert [step.job_id for step in Step.objects.all()] == [handle.id]
    assert not Job.objects.filter(pk=brief_handle.id).exists()

    Job.objects.update(expires_at="2000-01-01T00:00Z")
    prune_jobs(duty)

    assert Step.objects.count() == 0


def test_a_handler_without_a_row_runs_its_steps() -> None:
    global body
    body = lambda: current_job().step("one", note, "one", value=3)  # noqa: E731 - as above

    assert perform(plain).result == 3

    async def handler() -> Any:
        async def step() -> int:
            return 4

        return await current_job().astep("one", step)

    body = handler
    assert perform(coroutine).result == 4


# --- whose job it is -----------------------------------------------------------------


def take_away(session: psycopg.Connection[Any]) -> None:
    session.execute("UPDATE relay_job SET worker_id = %s", (uuid7(),))


def test_an_attempt_that_has_lost_its_job_begins_no_step(database: Database) -> None:
    lost: list[BaseException] = []

    def handler() -> None:
        take_away(database.session)
        try:
            current_job().step("late", note, "late")
        except LeaseLost as error:
            lost.append(error)
            raise

    run(handler)

    assert len(lost) == 1
    assert ran == []


def test_an_attempt_that_loses_its_job_during_a_step_leaves_nothing(
    database: Database,
) -> None:
    lost: list[BaseException] = []

    def step() -> None:
        Group.objects.create(name="late")
        take_away(database.session)

    def handler() -> None:
        try:
            current_job().step("late", step)
        except LeaseLost as error:
            lost.append(error)
            raise

    run(handler)

    assert len(lost) == 1
    assert Group.objects.count() == 0
    assert Step.objects.count() == 0


def test_a_step_that_an_earlier_attempt_commits_meanwhile_counts(
    database: Database,
) -> None:
    """The earlier one ran on after it had lost its job: its record is under way."""
    own = database.session.info.backend_pid

    def step() -> str:
        Group.objects.create(name="second")
        database.session.execute("BEGIN")
        database.session.execute(
            "INSERT INTO relay_step (job_id, attempt, name, value) "
            "VALUES (%s, 0, 'pay', '\"first\"')",
            (current_job().id,),
        )
        commit.start()
        return "second"

    def commit_once_waited_for() -> None:
        with psycopg.connect(database.dsn, autocommit=True) as other:
            until(
                lambda: other.execute(
                    "SELECT 1 FROM pg_stat_activity "
                    "WHERE %s = ANY(pg_blocking_pids(pid))",
                    (own,),
                ).fetchone()
            )
        database.session.execute("COMMIT")

    commit = threading.Thread(target=commit_once_waited_for)
    handle = run(lambda: current_job().step("pay", step))
    commit.join(60)

    assert handle.result() == "first"
    assert Group.objects.count() == 0


# --- coroutines ----------------------------------------------------------------------


def test_coroutine_steps_are_done_once() -> None:
    async def step(number: int) -> int:
        await asyncio.sleep(0)
        return int(note(f"step {number}", number))

    async def handler() -> list[int]:
        job = current_job()
        first = await job.astep("first", step, 1)
        if job.attempt == 1:
            raise ValueError("between the steps")
        return [first, await job.astep("second", step, number=2)]

    handle = run(handler, coroutine)

    assert ran == ["step 1", "step 2"]
    assert handle.result() == [1, 2]


def test_a_plain_step_of_a_coroutine_is_one_transaction() -> None:
    def write() -> str:
        Group.objects.create(name=f"attempt {current_job().attempt}")
        if current_job().attempt == 1:
            raise ValueError("after the write")
        return "written"

    async def handler() -> str:
        value: str = await current_job().astep("write", write)
        count = await sync_to_async(Group.objects.count)()
        return f"{value} {count}"

    assert run(handler, coroutine).result() == "written 1"


def test_a_coroutine_function_in_a_plain_handler_s_step_is_refused() -> None:
    async def step() -> None: ...

    handle = run(lambda: current_job().step("one", step))

    assert "await current_job().astep" in error_of(handle)[1]


def test_a_coroutine_step_that_an_earlier_attempt_has_recorded_counts(
    database: Database,
) -> None:
    async def step() -> str:
        database.session.execute(
            "INSERT INTO relay_step (job_id, attempt, name, value) "
            "VALUES (%s, 0, 'pay', '\"first\"')",
            (current_job().id,),
        )
        return "second"

    async def handler() -> str:
        return await current_job().astep("pay", step)

    assert run(handler, coroutine).result() == "first"


# --- sensitive -----------------------------------------------------------------------


def test_the_steps_of_a_task_with_sensitive_arguments_are_encrypted() -> None:
    def handler() -> str:
        return current_job().step("charge", lambda: "4111-1111")

    with override_settings(RELAY={"ENCRYPTION_KEYS": KEYS}):
        handle = run(handler, secret, "4111-1111")
        stored = Step.objects.get().value
        assert "4111" not in str(stored)
        assert stored["__relay__"] == "sealed"
        assert stored["key"] == "a"
        assert handle.state == "completed"

    with override_settings(RELAY={"ENCRYPTION_KEYS": {"b": KEYS["b"], **KEYS}}):
        assert reseal(using="default").changed == 1
        assert Step.objects.get().value["key"] == "b"
        Job.objects.update(state="cancelled")
        handle.retry()
        global body
        body = lambda: current_job().step("charge", note, "again")  # noqa: E731 - as above
        outcome = run_job(handle)
        assert outcome.result == "4111-1111"

    assert ran == []


def test_the_refusal_of_a_sensitive_value_does_not_tell_it() -> None:
    class Card:
        def __repr__(self) -> str:
            return "4111-1111"

    with override_settings(RELAY={"ENCRYPTION_KEYS": KEYS}):
        handle = run(
            lambda: current_job().step("charge", lambda: {"4111-1111": Card()}),
            secret,
            "none",
        )

    assert error_of(handle)[0] == EncodeError.__name__
    assert "4111" not in error_of(handle)[1]


# --- in a real worker ----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["five_steps", "five_async_steps"])
def test_killed_in_the_third_step_a_job_goes_on_with_the_third(
    database: Database, workers: Workers, tmp_path: Path, name: str
) -> None:
    worker = workers.start()
    door = tmp_path / "door"
    job_id = database.enqueue_one(name, str(door))
    until(lambda: database.effects_of(job_id, "step 3"), what="the third step")

    os.kill(worker.child_pids()[0], signal.SIGKILL)
    until(lambda: len(database.effects_of(job_id, "step 3")) == 2)
    door.touch()
    database.wait_for(job_id)

    counts = [len(database.effects_of(job_id, f"step {n}")) for n in range(1, 6)]
    assert counts == [1, 1, 2, 1, 1]
    assert database.job(job_id)["result"] == [
        "1 by 1",
        "2 by 1",
        "3 by 2",
        "4 by 2",
        "5 by 2",
    ]
    assert connection.vendor == "postgresql"


def test_an_argument_error_is_what_a_caller_can_catch() -> None:
    def handler() -> str:
        try:
            current_job().step("", note, "ran")
        except ArgumentError:
            return "caught"
        return "not"

    assert run(handler).result() == "caught"

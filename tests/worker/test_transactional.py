"""Transactional tasks: what a handler wrote and its finish, or neither of them."""

from __future__ import annotations

import base64
import logging
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import IntegrityError, connection, connections, transaction
from django.test import override_settings

from relay import SettingsError, Unique, task
from relay.engine import finish
from relay.engine.claim import ClaimedJob
from relay.engine.connection import EngineConnection, connect
from relay.engine.finish import Outcome, Settled, Written
from relay.handles import JobHandle
from relay.worker import transactional
from relay.worker.executor import Executor
from relay.worker.interruption import Interruptible
from tests.engine import rows
from tests.waiting import WAIT_SECONDS, until
from tests.worker.proxy import Proxy

# What the tasks call in place of a body: tasks are registered only once.
body: Callable[[], Any] = lambda: None  # noqa: E731 - replaced by each test


@task(name="tests.transactional.plain", transactional=True)
def plain() -> Any:
    return body()


@task(name="tests.transactional.once", transactional=True, retention=timedelta(0))
def once() -> Any:
    return body()


@task(name="tests.transactional.secret", transactional=True, sensitive=True)
def secret() -> Any:
    return body()


@task(name="tests.transactional.unique", transactional=True, unique=Unique())
def unique() -> Any:
    return body()


@pytest.fixture
def hot(transactional_db: None) -> Iterator[EngineConnection]:
    made = connect("default", role="hot", name="tests")
    yield made
    made.close()


@pytest.fixture
def other(hot: EngineConnection) -> Iterator[psycopg.Connection[Any]]:
    """A session of the test's own beside the handler's, and a table to write to."""
    parameters = connection.get_connection_params()
    for key in ("context", "cursor_factory", "prepare_threshold"):
        parameters.pop(key, None)
    with psycopg.connect(**parameters, autocommit=True) as session:
        session.execute(
            "CREATE TABLE tests_effect ("
            "  number int NOT NULL, "
            "  UNIQUE (number) DEFERRABLE INITIALLY DEFERRED)"
        )
        yield session
        connection.close()
        session.execute("DROP TABLE tests_effect")


@pytest.fixture
def worker_id(hot: EngineConnection) -> UUID:
    return rows.add_worker(hot)


def write(number: int = 1) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO tests_effect VALUES (%s)", [number])


def effects(other: psycopg.Connection[Any]) -> list[int]:
    return [number for (number,) in other.execute("SELECT number FROM tests_effect")]


def claim(hot: EngineConnection, worker_id: UUID, handle: JobHandle[Any]) -> ClaimedJob:
    [job] = rows.claim(hot, worker_id)
    assert job.id == handle.id
    return job


def run(
    hot: EngineConnection,
    worker_id: UUID,
    handler: Callable[[], Any],
    *,
    made: Any = plain,
    interruptible: Callable[[ClaimedJob], Interruptible] | None = None,
) -> tuple[ClaimedJob, Outcome]:
    """Enqueue, claim and run a job whose handler is the given one."""
    global body
    body = handler
    job = claim(hot, worker_id, made.enqueue())
    outcome = Executor(worker_id).run(job, interruptible and interruptible(job))
    return job, outcome


def state(other: psycopg.Connection[Any], job: ClaimedJob) -> str:
    return str(rows.job_row(other, job.id)["state"])


# --- together ------------------------------------------------------------------------


def test_effects_and_finish_are_there_together(
    hot: EngineConnection, other: psycopg.Connection[Any], worker_id: UUID
) -> None:
    def handler() -> str:
        write()
        assert effects(other) == []
        return "done"

    job, outcome = run(hot, worker_id, handler)

    assert outcome == Written(job.id, 1, '"done"')
    assert effects(other) == [1]
    row = rows.job_row(other, job.id)
    assert (row["state"], row["result"]) == ("completed", "done")
    assert row["expires_at"] is not None
    assert not connection.in_atomic_block


def test_a_handler_that_raises_leaves_nothing_and_is_retried(
    hot: EngineConnection, other: psycopg.Connection[Any], worker_id: UUID
) -> None:
    def handler() -> None:
        write()
        raise ValueError("no")

    job, outcome = run(hot, worker_id, handler)

    assert isinstance(outcome, Settled)
    assert (outcome.verb, outcome.error_class) == ("retry", "ValueError")
    assert outcome.traceback is not None
    assert "worker/transactional.py" not in outcome.traceback
    assert (effects(other), state(other, job)) == ([], "running")


def test_a_handler_whose_job_is_another_s_leaves_nothing_and_is_no_failure(
    hot: EngineConnection,
    other: psycopg.Connection[Any],
    worker_id: UUID,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def handler() -> None:
        write()
        other.execute("UPDATE relay_job SET attempt = attempt + 1")

    before = caplog.at_level(logging.INFO, "relay.worker")
    with before:
        job, outcome = run(hot, worker_id, handler)

    assert outcome == Written(job.id, 1, None)
    assert (effects(other), state(other, job)) == ([], "running")
    assert [record.message for record in caplog.records] == [
        "lease lost: what the job wrote was rolled back"
    ]


@pytest.mark.parametrize(
    "statement", ["DELETE FROM relay_job", "UPDATE relay_job SET state = 'failed'"]
)
def test_a_handler_that_changes_the_row_of_its_own_job_fails(
    hot: EngineConnection,
    other: psycopg.Connection[Any],
    worker_id: UUID,
    statement: str,
) -> None:
    def handler() -> None:
        write()
        with connection.cursor() as cursor:
            cursor.execute(statement)

    job, outcome = run(hot, worker_id, handler)

    assert isinstance(outcome, Settled)
    assert (outcome.verb, outcome.is_charged) == ("retry", True)
    assert "the row of its own job" in (outcome.error_message or "")
    assert (effects(other), state(other, job)) == ([], "running")


def test_a_retention_of_nothing_deletes_the_row_in_the_same_transaction(
    hot: EngineConnection, other: psycopg.Connection[Any], worker_id: UUID
) -> None:
    job, outcome = run(hot, worker_id, write, made=once)

    assert outcome == Written(job.id, 1, "null")
    assert effects(other) == [1]
    assert rows.states(other) == {}


def test_a_unique_key_goes_with_the_finish(
    hot: EngineConnection, other: psycopg.Connection[Any], worker_id: UUID
) -> None:
    job, _ = run(hot, worker_id, write, made=unique)

    assert rows.job_row(other, job.id)["unique_key"] is None
    assert not unique.enqueue().is_duplicate


@override_settings(
    RELAY={"ENCRYPTION_KEYS": {"k": base64.b64encode(bytes(32)).decode()}}
)
def test_a_sensitive_result_is_encrypted_in_the_row(
    hot: EngineConnection, other: psycopg.Connection[Any], worker_id: UUID
) -> None:
    job, outcome = run(hot, worker_id, lambda: "canary", made=secret)

    assert isinstance(outcome, Written)
    assert "canary" not in str(rows.job_row(other, job.id))
    assert JobHandle(job.id, job.task).result() == "canary"


def test_the_row_is_not_locked_while_the_handler_runs(
    hot: EngineConnection, other: psycopg.Connection[Any], worker_id: UUID
) -> None:
    def handler() -> None:
        write()
        other.execute("SELECT FROM relay_job FOR UPDATE NOWAIT")

    _, outcome = run(hot, worker_id, handler)

    assert isinstance(outcome, Written)


# --- what the transaction itself says ------------------------------------------------


def test_a_deferred_constraint_that_fails_at_commit_is_the_job_s_failure(
    hot: EngineConnection, other: psycopg.Connection[Any], worker_id: UUID
) -> None:
    def handler() -> None:
        write(7)
        write(7)

    job, outcome = run(hot, worker_id, handler)

    assert isinstance(outcome, Settled)
    assert (outcome.verb, outcome.error_class) == ("retry", "IntegrityError")
    assert outcome.is_charged
    assert (effects(other), state(other, job)) == ([], "running")


def test_a_transaction_that_the_handler_left_broken_is_the_job_s_failure(
    hot: EngineConnection, other: psycopg.Connection[Any], worker_id: UUID
) -> None:
    def handler() -> None:
        write()
        with connection.cursor() as cursor, pytest.raises(IntegrityError):
            cursor.execute("INSERT INTO tests_effect VALUES (NULL)")

    job, outcome = run(hot, worker_id, handler)

    assert isinstance(outcome, Settled)
    assert outcome.verb == "retry"
    assert "transaction" in str(outcome.error_message)
    assert (effects(other), state(other, job)) == ([], "running")


def test_a_serialization_failure_is_retried_as_any_error(
    hot: EngineConnection, other: psycopg.Connection[Any], worker_id: UUID
) -> None:
    other.execute("INSERT INTO tests_effect VALUES (1)")

    def handler() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("SELECT number FROM tests_effect")
            other.execute("UPDATE tests_effect SET number = 2")
            cursor.execute("UPDATE tests_effect SET number = 3")

    job, outcome = run(hot, worker_id, handler)

    assert isinstance(outcome, Settled)
    assert (outcome.verb, outcome.error_class) == ("retry", "OperationalError")
    assert (effects(other), state(other, job)) == ([2], "running")


def test_a_session_that_is_lost_meanwhile_is_nobody_s_failure(
    hot: EngineConnection, other: psycopg.Connection[Any], worker_id: UUID
) -> None:
    def handler() -> None:
        write()
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            other.execute("SELECT pg_terminate_backend(%s, 60000)", cursor.fetchone())

    job, outcome = run(hot, worker_id, handler)

    assert isinstance(outcome, Settled)
    assert (outcome.verb, outcome.is_charged) == ("hand_back", False)
    assert (effects(other), state(other, job)) == ([], "running")


def test_an_alias_without_autocommit_is_refused_with_its_reason(
    hot: EngineConnection, other: psycopg.Connection[Any], worker_id: UUID
) -> None:
    job = claim(hot, worker_id, plain.enqueue())
    connection.set_autocommit(False)
    try:
        with pytest.raises(SettingsError, match="AUTOCOMMIT"):
            transactional.run(
                job, write, lambda _: pytest.fail("ran"), worker_id=worker_id
            )
    finally:
        connection.set_autocommit(True)


# --- on_commit() ---------------------------------------------------------------------


def test_callbacks_run_after_the_commit_in_their_order(
    hot: EngineConnection, other: psycopg.Connection[Any], worker_id: UUID
) -> None:
    seen: list[tuple[int, str]] = []

    def callback(number: int) -> None:
        [(found,)] = other.execute("SELECT state FROM relay_job").fetchall()
        seen.append((number, found))

    def handler() -> None:
        transaction.on_commit(lambda: callback(1))
        with transaction.atomic():
            transaction.on_commit(lambda: callback(2))

    run(hot, worker_id, handler)

    assert seen == [(1, "completed"), (2, "completed")]


@pytest.mark.parametrize("error", [ValueError("no mail"), SystemExit(3)], ids=repr)
def test_an_error_in_a_callback_changes_nothing_about_the_job(
    hot: EngineConnection,
    other: psycopg.Connection[Any],
    worker_id: UUID,
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
) -> None:
    def callback() -> None:
        raise error

    def handler() -> None:
        write()
        transaction.on_commit(callback)

    job, outcome = run(hot, worker_id, handler)

    assert outcome == Written(job.id, 1, "null")
    assert (effects(other), state(other, job)) == ([1], "completed")
    [record] = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_callbacks_of_a_job_that_was_rolled_back_do_not_run(
    hot: EngineConnection, other: psycopg.Connection[Any], worker_id: UUID
) -> None:
    def handler() -> None:
        transaction.on_commit(lambda: pytest.fail("ran"))
        raise ValueError

    run(hot, worker_id, handler)
    run(hot, worker_id, write)  # on the same connection

    assert effects(other) == [1]


# --- a commit without an answer ------------------------------------------------------


def in_thread(act: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Do something in a thread with a connection of its own."""
    found: list[Any] = []

    def body() -> None:
        try:
            found.append(act())
        finally:
            connections.close_all()

    thread = threading.Thread(target=body)
    thread.start()
    return thread, found


@pytest.fixture
def proxy(
    other: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Proxy]:
    """What connections that are opened from here on go through."""
    made = Proxy(other.info.dsn)
    settings = connections.settings["default"]
    port = made.dsn.rpartition(":")[2].partition("/")[0]
    connection.close()
    with monkeypatch.context() as patch:
        patch.setitem(settings, "HOST", "127.0.0.1")
        patch.setitem(settings, "PORT", port)
        patch.setitem(
            settings, "OPTIONS", {**settings["OPTIONS"], "gssencmode": "disable"}
        )
        yield made
    made.close()


def lose_answer_after_finish(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    real = transactional._finish

    def finish_and_lose(*args: Any) -> None:
        real(*args)
        proxy.loses_answers.set()

    monkeypatch.setattr(transactional, "_finish", finish_and_lose)


def test_a_commit_whose_answer_is_lost_is_known_by_the_row(
    hot: EngineConnection,
    other: psycopg.Connection[Any],
    worker_id: UUID,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    global body
    body = write
    job = claim(hot, worker_id, plain.enqueue())
    connection.close()
    lose_answer_after_finish(proxy, monkeypatch)

    thread, found = in_thread(lambda: Executor(worker_id).run(job))
    until(lambda: state(other, job) == "completed")
    proxy.cut()
    thread.join(WAIT_SECONDS)

    assert found == [Written(job.id, 1, "null")]
    assert effects(other) == [1]


def test_a_commit_that_may_or_may_not_have_been_is_left_to_the_fence(
    hot: EngineConnection,
    other: psycopg.Connection[Any],
    worker_id: UUID,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    global body
    body = write
    job = claim(hot, worker_id, plain.enqueue())
    connection.close()
    lose_answer_after_finish(proxy, monkeypatch)
    monkeypatch.setattr(transactional, "_LOOK_AFTER_SECONDS", ())

    thread, found = in_thread(lambda: Executor(worker_id).run(job))
    until(lambda: state(other, job) == "completed")
    proxy.cut()
    thread.join(WAIT_SECONDS)

    [outcome] = found
    assert isinstance(outcome, Settled)
    assert outcome.verb == "hand_back"
    before = rows.everything(other)
    sent = finish.send_settled(
        hot, [outcome], worker_id=worker_id, hand_back_limit=timedelta(days=1)
    )
    assert finish.read_finished(sent) == set()
    assert rows.everything(other) == before


def test_a_commit_that_the_server_died_on_is_run_again(
    hot: EngineConnection,
    other: psycopg.Connection[Any],
    worker_id: UUID,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = transactional._finish

    def finish_and_die(django: Any, *args: Any) -> None:
        real(django, *args)
        pid = django.connection.info.backend_pid
        other.execute("SELECT pg_terminate_backend(%s, 60000)", (pid,))

    monkeypatch.setattr(transactional, "_finish", finish_and_die)

    job, outcome = run(hot, worker_id, write)

    assert isinstance(outcome, Settled)
    assert (outcome.verb, outcome.is_charged) == ("hand_back", False)
    assert (effects(other), state(other, job)) == ([], "running")


def test_a_commit_without_an_answer_whose_job_is_another_s_by_now_is_lost(
    hot: EngineConnection,
    other: psycopg.Connection[Any],
    worker_id: UUID,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = transactional._finish

    def finish_and_die(django: Any, *args: Any) -> None:
        real(django, *args)
        pid = django.connection.info.backend_pid
        other.execute("SELECT pg_terminate_backend(%s, 60000)", (pid,))
        other.execute(
            "UPDATE relay_job SET state = 'queued', worker_id = NULL, started_at = NULL"
        )

    monkeypatch.setattr(transactional, "_finish", finish_and_die)

    job, outcome = run(hot, worker_id, write)

    assert outcome == Written(job.id, 1, None)
    assert (effects(other), state(other, job)) == ([], "queued")


def test_who_stops_between_finish_and_commit_holds_the_row_for_a_lease_at_most(
    hot: EngineConnection,
    other: psycopg.Connection[Any],
    worker_id: UUID,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = transactional._finish

    def finish_and_stop(django: Any, *args: Any) -> None:
        real(django, *args)
        other.execute("SET lock_timeout = '20s'")  # ends with the other's session
        other.execute("SELECT FROM relay_job FOR UPDATE")

    monkeypatch.setattr(transactional, "_finish", finish_and_stop)

    with override_settings(RELAY={"LEASE": timedelta(seconds=0.3)}):
        job, outcome = run(hot, worker_id, write)

    assert isinstance(outcome, Settled)
    assert outcome.verb == "retry"
    assert (effects(other), state(other, job)) == ([], "running")


# --- cancelled -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "verb"),
    [
        (Interruptible.interrupt, "cancel"),
        (Interruptible.withdraw, "release"),
        (Interruptible.time_out, "retry"),
    ],
    ids=["cancel", "drain", "timeout"],
)
def test_what_stops_the_handler_rolls_everything_back(
    hot: EngineConnection,
    other: psycopg.Connection[Any],
    worker_id: UUID,
    stop: Callable[[Interruptible], object],
    verb: str,
) -> None:
    made: list[Interruptible] = []

    def interruptible(job: ClaimedJob) -> Interruptible:
        made.append(Interruptible(job.id))
        return made[0]

    def handler() -> None:
        write()
        stop(made[0])
        for _ in range(1_000_000):
            pass

    job, outcome = run(hot, worker_id, handler, interruptible=interruptible)

    assert isinstance(outcome, Settled)
    assert outcome.verb == verb
    assert (effects(other), state(other, job)) == ([], "running")


@pytest.mark.parametrize(
    "stop",
    [Interruptible.interrupt, Interruptible.withdraw, Interruptible.time_out],
    ids=["cancel", "drain", "timeout"],
)
def test_what_comes_after_the_handler_does_not_strike_the_commit(
    hot: EngineConnection,
    other: psycopg.Connection[Any],
    worker_id: UUID,
    monkeypatch: pytest.MonkeyPatch,
    stop: Callable[[Interruptible], object],
) -> None:
    made: list[Interruptible] = []
    real = transactional._finish

    def interruptible(job: ClaimedJob) -> Interruptible:
        made.append(Interruptible(job.id))
        return made[0]

    def interrupt_and_finish(*args: Any) -> None:
        stop(made[0])
        real(*args)

    monkeypatch.setattr(transactional, "_finish", interrupt_and_finish)

    job, outcome = run(hot, worker_id, write, interruptible=interruptible)

    assert outcome == Written(job.id, 1, "null")
    assert (effects(other), state(other, job)) == ([1], "completed")

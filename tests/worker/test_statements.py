"""Statements of a job are bounded, and nobody else's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import copy_context
from datetime import timedelta
from typing import Any, Final

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import OperationalError, connection, transaction

from relay import task
from relay.engine.claim import ClaimedJob
from relay.engine.finish import Completed, Outcome, Settled
from relay.ids import uuid7
from relay.worker.executor import Executor
from relay.worker.watch import Watch
from tests.worker.harness import Database, Workers

pytestmark = pytest.mark.django_db(transaction=True)

EXECUTOR: Final = Executor(uuid7(), watch=Watch())

body: Callable[[], Any] = lambda: None  # noqa: E731 - replaced by each test


@task(name="tests.statements.plain")
def plain() -> Any:
    return body()


@task(name="tests.statements.bounded", statement_timeout=timedelta(seconds=7))
def bounded() -> Any:
    return body()


@task(name="tests.statements.coroutine", statement_timeout=timedelta(seconds=7))
async def coroutine() -> Any:
    return await sync_to_async(body)()


@pytest.fixture(autouse=True)
def _own_limit() -> Iterator[None]:
    """A fresh session, kept as a worker keeps it, and closed at the end."""
    before = {**connection.settings_dict}
    connection.close()
    connection.settings_dict |= {"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}
    yield
    connection.close()
    connection.settings_dict.clear()
    connection.settings_dict.update(before)
    connection.execute_wrappers.clear()


def run(name: str, function: Callable[[], Any], timeout_ms: int | None = None) -> Any:
    """Run a handler that does this; return what it returned."""
    outcome = attempt(name, function, timeout_ms)
    assert isinstance(outcome, Completed), outcome
    return outcome.result


def attempt(
    name: str, function: Callable[[], Any], timeout_ms: int | None = None
) -> Outcome:
    global body
    body = function
    job = ClaimedJob(
        uuid7(),
        f"tests.statements.{name}",
        "default",
        0,
        1,
        1,
        {"args": [], "kwargs": {}},
        0,
        0,
        3,
        timeout_ms,
    )
    if EXECUTOR.is_async(job):
        # async_to_sync takes over what the handler set in its context.
        return copy_context().run(async_to_sync(EXECUTOR.run_async), job)
    return EXECUTOR.run(job)


def show() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        found: str = cursor.fetchone()[0]
    return found


def show_pid() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid: int = cursor.fetchone()[0]
    return pid


def sleep() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(60)")


def test_the_task_s_limit_holds_for_its_jobs_and_for_no_other() -> None:
    assert [
        run("bounded", show),
        run("bounded", show),
        run("plain", show),
        run("bounded", show),
        run("plain", show),
    ] == ['"7s"', '"7s"', '"0"', '"7s"', '"0"']


@pytest.mark.parametrize("is_open", [True, False])
def test_a_session_that_is_open_and_one_that_the_job_opens_are_bounded(
    is_open: bool,
) -> None:
    if is_open:
        pid = show_pid()

    def look() -> list[Any]:
        return [show(), show_pid()]

    found = run("bounded", look)

    assert found.startswith('["7s"')
    if is_open:
        assert str(pid) in found


def test_a_timeout_bounds_the_statements_by_itself_and_a_shorter_limit_wins() -> None:
    assert run("plain", show, timeout_ms=30_000) == '"30s"'
    assert run("bounded", show, timeout_ms=30_000) == '"7s"'
    assert run("bounded", show, timeout_ms=3_000) == '"3s"'
    assert run("plain", show) == '"0"'


def test_a_limit_of_the_project_s_holds_against_a_timeout_and_comes_back() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = '4s'")

    assert run("plain", show, timeout_ms=30_000) == '"4s"'
    assert run("bounded", show) == '"7s"'
    assert run("plain", show) == '"4s"'


def test_a_limit_outlives_a_transaction_that_is_rolled_back() -> None:
    def look() -> list[str]:
        found = []
        with suppress(ZeroDivisionError), transaction.atomic():
            with suppress(ZeroDivisionError), transaction.atomic():
                found.append(show())
                raise ZeroDivisionError
            found.append(show())
            raise ZeroDivisionError
        return [*found, show()]

    assert run("bounded", look) == '["7s","7s","7s"]'


def test_a_session_that_the_job_opens_anew_is_bounded_too() -> None:
    def look() -> list[str]:
        first = show()
        connection.close()
        with transaction.atomic():
            second = show()
        return [first, second]

    assert run("bounded", look) == '["7s","7s"]'


def test_what_a_coroutine_asks_the_database_is_bounded() -> None:
    assert run("coroutine", show) == '"7s"'


def test_a_session_cut_off_before_the_job_is_replaced() -> None:
    dying = run("bounded", show_pid)
    ended = threading.Thread(target=_terminate, args=(int(dying),))
    ended.start()
    ended.join()

    assert run("plain", show) == '"0"'
    assert run("bounded", show) == '"7s"'
    assert run("plain", show_pid) != dying


def _terminate(pid: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])
    connection.close()


def test_failure_037_a_cancelled_statement_is_the_job_s_failure_and_charged() -> None:
    outcome = attempt("plain", sleep, timeout_ms=200)

    assert isinstance(outcome, Settled)
    assert (outcome.verb, outcome.is_charged) == ("retry", True)
    # The statement begins after the attempt, so the timeout is the first to pass.
    assert outcome.error_class in ("JobTimeout", "OperationalError")


def test_a_statement_limit_raises_an_error_that_the_handler_may_catch() -> None:
    short = task(
        name=f"tests.statements.{uuid7()}",
        statement_timeout=timedelta(milliseconds=500),
    )(_caught)

    assert run(short.name.removeprefix("tests.statements."), sleep) == '"caught"'


def _caught() -> str:
    with pytest.raises(OperationalError, match="statement timeout"):
        sleep()
    return "caught"


def test_behind_a_transaction_pooler_each_transaction_is_bounded_and_no_session() -> (
    None
):
    def look() -> list[str]:
        with transaction.atomic():
            with transaction.atomic():
                inside = show()
            still = show()
        with transaction.atomic():
            again = show()
        return [inside, still, again, show()]

    connection.settings_dict["DISABLE_SERVER_SIDE_CURSORS"] = True
    for _ in range(2):
        assert run("bounded", look) == '["7s","7s","7s","0"]'
        assert run("plain", look) == '["0","0","0","0"]'


@pytest.mark.slow
def test_a_query_that_sleeps_ends_with_the_job_s_timeout_and_costs_no_child(
    database: Database, workers: Workers
) -> None:
    worker = workers.start("-c", "2", LEASE=30, TIMEOUT_GRACE=60)
    child = worker.child_pids()
    options = {"timeout_ms": 500, "max_retries": 0}
    jobs = [
        database.enqueue_one("sleep_in_a_query", 600, **options),
        database.enqueue_one("sleep_in_a_query_of_a_coroutine", 600, **options),
    ]

    for job in jobs:
        database.wait_for(job, "failed")

    for job in jobs:
        row = database.job(job)
        assert (row["failures"], row["crashes"]) == (1, 0)
    following = database.enqueue("use_orm", count=4)
    for job in following:
        database.wait_for(job)
    assert worker.child_pids() == child


@pytest.mark.slow
@pytest.mark.parametrize("pool", [False, True], ids=["kept", "Django's pool"])
def test_a_limit_reaches_no_other_job_whatever_became_of_the_connection(
    database: Database, workers: Workers, pool: bool
) -> None:
    environment = {"WORKER_TESTS_POOL": "1"} if pool else {}
    workers.start("-c", "1", LEASE=30, environment=environment)
    asked: list[tuple[Any, str]] = []
    for is_closed_then in (False, True, False):
        for timeout_ms, shown in ((60_000, "1min"), (None, "0")):
            job = database.enqueue_one(
                "show_statement_limit", is_closed_then, timeout_ms=timeout_ms
            )
            asked.append((job, shown))

    for job, _ in asked:
        database.wait_for(job)

    found = [database.job(job)["result"] for job, _ in asked]
    assert found == [shown for _, shown in asked]

"""What RELAY["MIDDLEWARE"] puts around handlers, plain and coroutine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.checks import run_checks
from django.core.exceptions import MiddlewareNotUsed
from django.db import connection
from django.test import override_settings
from django.utils.decorators import (
    async_only_middleware,
    sync_and_async_middleware,
)

from relay import CurrentJob, SettingsError, current_job, task
from relay.engine import control
from relay.ids import uuid7
from relay.models import Job
from relay.testing import drain, perform
from relay.worker import middleware
from relay.worker.executor import Executor
from tests.worker.harness import Database, Workers, until

Handle = Callable[[CurrentJob], Any]

seen: list[Any] = []
VALUE: ContextVar[str] = ContextVar("VALUE", default="unset")
body: Callable[[], Any] = lambda: None  # noqa: E731 - replaced by each test
built: list[str] = []


@task(name="tests.middleware.plain", max_retries=1)
def plain(value: int = 0) -> Any:
    seen.append(("plain", current_job().id, threading.get_ident(), VALUE.get()))
    return body() or value


@task(name="tests.middleware.coroutine", max_retries=1)
async def coroutine(value: int = 0) -> Any:
    await asyncio.sleep(0)
    seen.append(("coroutine", current_job().id, threading.get_ident(), VALUE.get()))
    return body() or value


@task(name="tests.middleware.whole", transactional=True, max_retries=0)
def whole() -> None:
    seen.append("whole")


@sync_and_async_middleware
def outer(handle: Handle) -> Handle:
    built.append("outer")
    if asyncio.iscoroutinefunction(handle):

        async def around(job: CurrentJob) -> Any:
            seen.append("outer in")
            VALUE.set("of outer")
            result = await handle(job)
            seen.append("outer out")
            return result

        return around

    def around_plain(job: CurrentJob) -> Any:
        seen.append("outer in")
        VALUE.set("of outer")
        result = handle(job)
        seen.append("outer out")
        return result

    return around_plain


def inner(handle: Handle) -> Handle:
    def around(job: CurrentJob) -> Any:
        seen.append("inner in")
        assert job == current_job()
        try:
            return handle(job)
        finally:
            seen.append("inner out")

    return around


@async_only_middleware
def of_coroutines(handle: Handle) -> Handle:
    async def around(job: CurrentJob) -> Any:
        seen.append("async in")
        await asyncio.sleep(0)
        return await handle(job)

    return around


class Doubling:
    """A class, as many of Django's are."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __call__(self, job: CurrentJob) -> Any:
        return 2 * self._handle(job)


def breaking(handle: Handle) -> Handle:
    def around(job: CurrentJob) -> Any:
        handle(job)
        raise ConnectionError("after the handler")

    return around


def swallowing(handle: Handle) -> Handle:
    def around(job: CurrentJob) -> Any:
        try:
            return handle(job)
        except ValueError as error:
            return str(error)

    return around


def unused(handle: Handle) -> Handle:
    raise MiddlewareNotUsed("not here")


def forgetful(handle: Handle) -> None:
    """Returns nothing to call."""


@sync_and_async_middleware
def one_kind_only(handle: Handle) -> Handle:
    return lambda job: handle(job)


def neither(handle: Handle) -> Handle:
    return handle


neither.sync_capable = False  # type: ignore[attr-defined] # Django's own mark

number = 7


def use(*names: str) -> Any:
    return override_settings(RELAY={"MIDDLEWARE": [f"{__name__}.{n}" for n in names]})


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    seen.clear()
    built.clear()
    middleware._load.cache_clear()
    yield
    middleware._load.cache_clear()


def steps() -> list[str]:
    return [one if isinstance(one, str) else one[0] for one in seen]


kinds = pytest.mark.parametrize("made", [plain, coroutine])


@kinds
def test_the_first_is_the_outermost(made: Any) -> None:
    with use("outer", "inner"):
        outcome = perform(made, 5)

    assert outcome.result == 5
    name = made.name.rpartition(".")[2]
    assert steps() == ["outer in", "inner in", name, "inner out", "outer out"]


@kinds
def test_what_it_sets_in_its_context_the_handler_sees_and_no_other_job(
    made: Any,
) -> None:
    with use("outer"):
        perform(made)

    assert next(one for one in seen if not isinstance(one, str))[3] == "of outer"
    assert VALUE.get() == "unset"


@kinds
@pytest.mark.parametrize(
    "names", [("of_coroutines",), ("inner", "of_coroutines", "inner")], ids=len
)
def test_one_of_the_other_kind_is_adapted(made: Any, names: tuple[str, ...]) -> None:
    with use(*names):
        assert perform(made, 5).result == 5

    assert steps().count("async in") == 1
    assert steps().count("inner in") == len(names) - 1
    _, _, thread, _ = next(one for one in seen if not isinstance(one, str))
    if made is plain:
        assert thread == threading.get_ident()  # its own, with its connections


@kinds
def test_it_may_change_the_result(made: Any) -> None:
    with use("Doubling"):
        assert perform(made, 21).result == 42


@kinds
def test_an_error_in_one_is_the_jobs_failure(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with use("breaking"):
        outcome = perform(made)

    assert outcome.state == "retrying"
    assert isinstance(outcome.error, ConnectionError)


@pytest.mark.django_db
@kinds
def test_an_error_in_one_is_retried_and_then_final(made: Any) -> None:
    with use("breaking"):
        job = made.enqueue()

        drained = drain(with_retries=True)

    assert [str(error) for error in drained.errors] == ["after the handler"] * 2
    assert job.state == "failed"
    row = Job.objects.get()
    assert (row.failures, row.error_class) == (2, "ConnectionError")


@kinds
def test_it_may_take_the_handlers_error_for_a_result(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise ValueError("no such order")

    monkeypatch.setitem(globals(), "body", refuse)
    with use("swallowing"):
        assert perform(made).result == "no such order"


@pytest.mark.django_db(transaction=True)
def test_around_a_transactional_task_it_stands_inside_the_transaction() -> None:
    with use("breaking"):
        job = whole.enqueue()
        drain()

    assert job.state == "failed"
    assert seen == ["whole"]


def test_it_is_built_once_for_each_kind_whatever_runs() -> None:
    with use("outer"):
        for _ in range(3):
            perform(plain)
            perform(coroutine)

    assert built == ["outer"] * 2


def test_one_that_says_it_is_not_used_is_left_out() -> None:
    with use("inner", "unused"):
        perform(plain)

    assert steps() == ["inner in", "plain", "inner out"]


def test_without_any_nothing_is_built() -> None:
    assert Executor(uuid7())._middleware is None


@pytest.mark.parametrize(
    ("name", "said"),
    [("forgetful", "returned None"), ("one_kind_only", "a coroutine function")],
)
def test_a_factory_that_makes_nothing_to_call_is_named(name: str, said: str) -> None:
    with use(name), pytest.raises(SettingsError, match=said) as raised:
        middleware.load()

    assert name in str(raised.value)


@pytest.mark.parametrize("name", ["nowhere", "number", "neither"])
def test_the_check_names_a_path_that_cannot_be_used(name: str) -> None:
    with use("inner", name):
        found = [one for one in run_checks() if one.id == "relay.E011"]

    assert len(found) == 1
    assert f"{__name__}.{name}" in found[0].msg
    assert found[0].hint


@pytest.mark.parametrize("value", ["app.mw.tenant", [7], {"a": 1}])
def test_a_setting_that_is_no_list_of_paths_is_refused(value: Any) -> None:
    with override_settings(RELAY={"MIDDLEWARE": value}):
        assert [one.id for one in run_checks() if "MIDDLEWARE" in one.msg] == [
            "relay.E005"
        ]


@pytest.mark.django_db
def test_a_coroutine_inside_a_plain_one_reaches_the_database() -> None:
    def ask() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")

    @task(name="tests.middleware.asks")
    async def asks() -> int:
        await sync_to_async(ask)()
        return 1

    with use("inner", "outer"):
        asks.enqueue()
        assert drain().completed == 1


# --- a real worker -------------------------------------------------------------------


@pytest.mark.slow
def test_a_worker_puts_middleware_around_all_kinds_and_sends_signals(
    database: Database, workers: Workers
) -> None:
    app = {"WORKER_TESTS_APP": "tests.worker.hooked"}
    around = [f"tests.worker.hooked.middleware.{n}" for n in ("both", "plain_only")]
    worker = workers.start("-c", "4", environment=app, MIDDLEWARE=around)
    names = ("plain", "apart", "coroutine")
    jobs = [database.enqueue_one(f"tests.worker.hooked.tasks.{one}") for one in names]
    failed = database.enqueue_one("tests.worker.hooked.tasks.fail", max_retries=0)
    waits = database.enqueue_one("tests.worker.hooked.tasks.wait")
    for job in jobs:
        database.wait_for(job)
    database.wait_for(failed, "failed")
    database.wait_for_start(waits)
    control.cancel(waits, actor=None, using="default")
    database.wait_for(waits, "cancelled")
    assert worker.stop() == 0

    for job in jobs:
        phases = [one.phase for one in database.effects_of(job)]
        assert phases == [
            "job_started",
            "outer",
            "inner",
            "start",
            "after",
            "job_completed",
        ]
    last = {job: database.effects_of(job)[-1].phase for job in (failed, waits)}
    assert last == {failed: "job_failed", waits: "job_cancelled"}
    until(lambda: not worker.child_pids())

"""relay.tasks without a database: decoration, options, binding, the registry."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any
from uuid import UUID

import pytest

from relay import ArgumentError, Backoff, TaskNameConflict, UnknownTask, tasks
from relay.options import LATEST
from relay.retention import Retention
from relay.tasks import task
from testproject.tasks import aadd, add, echo, fail


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A registry of the test's own, with what is registered already."""
    copy = dict(tasks._tasks)
    monkeypatch.setattr(tasks, "_tasks", copy)
    return copy


def plain(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


# --- decoration ----------------------------------------------------------------------


@pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are read at once")
def test_a_name_that_only_type_checkers_know_may_annotate_a_task() -> None:
    names: dict[str, Any] = {"__name__": "tests.made"}
    source = "def function(a: Missing, b=2) -> Missing: ..."
    exec(compile(source, "made", "exec", dont_inherit=True), names)

    assert list(task(names["function"]).signature.parameters) == ["a", "b"]


def test_a_bare_task_has_its_functions_name_and_the_defaults() -> None:
    made = task(plain)

    assert made.name == f"{__name__}.plain"
    assert made.function is plain
    assert (made.queue, made.priority) == ("default", 0)
    assert (made.max_retries, made.backoff) == (None, None)
    assert made.retention == Retention()
    assert made.on_failure is None
    assert not made.is_async
    assert repr(made) == f"<Task {__name__}.plain>"
    assert made.__doc__ == "Add."


def test_a_task_with_options_keeps_them() -> None:
    backoff = Backoff.exponential(base=timedelta(seconds=1))

    made = task(
        name="math:plain",
        queue="mail",
        priority=-100,
        max_retries=0,
        backoff=backoff,
        retention=None,
    )(plain)

    assert made.name == "math:plain"
    assert (made.queue, made.priority, made.max_retries) == ("mail", -100, 0)
    assert made.backoff is backoff
    assert made.retention == Retention(completed=None)


def test_the_words_of_djangos_proposal_are_taken() -> None:
    def slower(failures: int, error: BaseException) -> timedelta | None:
        return failures * timedelta(seconds=30)

    made = task(max_attempts=3, backoff=slower)(plain)

    assert made.max_retries == 2
    assert made.backoff is slower


def test_a_plain_call_runs_the_function() -> None:
    assert add(1, b=2) == 3
    assert asyncio.run(aadd(1, 2)) == 3
    with pytest.raises(ValueError, match="why"):
        fail("why")


def test_a_coroutine_function_makes_an_async_task() -> None:
    assert aadd.is_async
    assert isinstance(aadd, tasks.AsyncTask)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"priority": 101}, "priority=101"),
        ({"priority": -101}, "priority=-101"),
        ({"priority": 2**31}, "priority=2147483648"),
        ({"priority": True}, "priority=True"),
        ({"priority": 1.0}, "priority=1.0"),
        ({"priority": None}, "priority=None"),
        ({"max_retries": -1}, "max_retries=-1"),
        ({"max_retries": 1_000_001}, "max_retries=1000001"),
        ({"max_retries": "3"}, "max_retries='3'"),
        ({"queue": "two words"}, "queue='two words'"),
        ({"queue": "é"}, "queue='é'"),
        ({"queue": ""}, "queue=''"),
        ({"queue": "q" * 101}, "queue='qqq"),
        ({"queue": None}, "queue=None"),
    ],
    ids=str,
)
def test_failure_123_options_out_of_range_are_refused_by_name(
    options: Any, named: str
) -> None:
    for act in (task, partial(task, plain), add.using, partial(tasks.enqueue, "a:b")):
        with pytest.raises(ArgumentError) as refused:
            act(**options)

        assert str(refused.value).startswith(named)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"name": ""}, "'' cannot name a task"),
        ({"name": "a b"}, "'a b' cannot name a task"),
        ({"name": "a\x00"}, r"'a\\x00' cannot name a task"),
        ({"name": "\ud800"}, "cannot name a task"),
        ({"name": "x" * 201}, "cannot name a task"),
        ({"name": None}, "None cannot name a task"),
        ({"backoff": 60}, "backoff=60"),
        ({"max_attempts": 0}, "max_attempts=0: give a whole number from 1 to 1000001"),
        ({"max_attempts": None}, "max_attempts=None"),
        ({"max_attempts": 3, "max_retries": 2}, "are both given"),
        ({"retry_until": 60}, "retry_until=60"),
        ({"give_up_on": "OSError"}, "give_up_on='OSError'"),
        ({"backoff": None}, "backoff=None"),
        ({"isolation": "thread"}, "isolation='thread'"),
        ({"permission": 1}, "permission=1: give a permission of Django's"),
        ({"memory_limit": 1 << 30}, "memory_limit=1073741824 without isolation"),
        ({"max_jobs": 3}, "max_jobs=3 without isolation"),
        ({"isolation": "process", "memory_limit": 512}, "memory_limit=512"),
        ({"isolation": "process", "memory_limit": True}, "memory_limit=True"),
        ({"isolation": "process", "memory_limit": "1G"}, "memory_limit='1G'"),
        ({"isolation": "process", "max_jobs": 0}, "max_jobs=0"),
        ({"isolation": "process", "max_jobs": None}, "max_jobs=None"),
        ({"retention": timedelta(-1)}, "retention="),
        ({"retention": 60}, "retention=60"),
        ({"transactional": 1}, "transactional=1"),
        ({"timeout": 30}, "timeout=30"),
        ({"timeout": timedelta(0)}, "timeout="),
        ({"timeout": timedelta(days=25)}, "24 days"),
        ({"timeout": timedelta.max}, "24 days"),
        ({"soft_timeout": timedelta(-1)}, "soft_timeout="),
        ({"statement_timeout": 5}, "statement_timeout=5"),
        (
            {"timeout": timedelta(seconds=5), "soft_timeout": timedelta(seconds=5)},
            "not shorter than timeout",
        ),
        ({"deadline": timedelta(1)}, "unknown option deadline"),
        ({"run_in": timedelta(1)}, "unknown option run_in"),
        ({"max_retry": 5}, r"max_retry \(did you mean max_retries\?\): there are"),
    ],
    ids=str,
)
def test_what_a_task_cannot_be_told_is_refused(options: Any, named: str) -> None:
    with pytest.raises(ArgumentError, match=named):
        task(**options)


def test_a_task_in_the_place_of_its_name_is_sent_to_its_enqueue() -> None:
    with pytest.raises(ArgumentError, match=r"<Task .*call its enqueue"):
        tasks.enqueue(add, 1)  # type: ignore[arg-type] # the mistake itself


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"run_in": 5}, "run_in=5"),
        ({"run_in": timedelta.max}, "run_in="),
        ({"run_in": timedelta(days=365 * 8000)}, "run_in="),
        ({"run_at": datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001 - naive on purpose
        ({"run_at": "2026-01-01"}, "time zone"),
        ({"run_at": datetime(1969, 12, 31, tzinfo=UTC)}, "1970-01-01"),
        ({"run_at": LATEST + timedelta(microseconds=1)}, "9999-12-29"),
        ({"run_at": datetime.max.replace(tzinfo=UTC)}, "9999-12-29"),
        (
            {"run_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))},
            "9999-12-29",
        ),
        (
            {"run_at": datetime.min.replace(tzinfo=timezone(timedelta(hours=12)))},
            "1970-01-01",
        ),
        (
            {"run_at": datetime(2026, 1, 1, tzinfo=UTC), "run_in": timedelta(1)},
            "both given",
        ),
        ({"id": "x"}, "id='x'"),
        ({"timeout": 1}, "timeout=1"),
        ({"timeout": timedelta(microseconds=10)}, "timeout="),
        ({"timeout": 1e308}, "timeout=1e"),
        ({"soft_timeout": timedelta(1)}, "unknown option soft_timeout"),
        ({"deadline": 5}, "deadline=5"),
        ({"deadline": datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001 - naive on purpose
        ({"deadline": timedelta(0)}, "deadline="),
        ({"deadline": timedelta(-1)}, "deadline="),
        ({"deadline": timedelta.max}, "9999-12-29"),
        ({"deadline": datetime.max.replace(tzinfo=UTC)}, "9999-12-29"),
        (
            {"deadline": timedelta(hours=1), "run_in": timedelta(hours=1)},
            "could never start",
        ),
        (
            {
                "deadline": datetime(2026, 1, 1, tzinfo=UTC),
                "run_at": datetime(2026, 1, 1, tzinfo=UTC),
            },
            "could never start",
        ),
        ({"unique": 1}, "unique=1"),
    ],
    ids=str,
)
def test_failures_123_137_what_an_enqueue_cannot_be_told_is_refused(
    options: Any, named: str
) -> None:
    for act in (add.using, partial(tasks.enqueue, "no:code")):
        with pytest.raises(ArgumentError, match=named):
            act(**options)


def test_a_coroutine_function_is_no_transactional_task() -> None:
    async def handler() -> None: ...

    with pytest.raises(ArgumentError, match="coroutine function"):
        task(name="tests.tasks.coroutine", transactional=True)(handler)


@pytest.mark.parametrize(
    "value", [print, partial(plain, 1), Path, type("X", (), {"__call__": plain})(), 3]
)
def test_only_functions_become_tasks(value: Any) -> None:
    with pytest.raises(ArgumentError, match="no function"):
        task(value)


def test_a_generator_is_no_task() -> None:
    def one() -> Iterator[int]:
        yield 1

    async def two() -> AsyncIterator[int]:
        yield 1

    for function in (one, two):
        with pytest.raises(ArgumentError, match="generator"):
            task(name="a:b")(function)


def test_a_functions_own_attributes_do_not_change_its_task() -> None:
    def function() -> None: ...

    function.queue = "theirs"  # type: ignore[attr-defined] # as decorators do
    made = task(name="a:b")(function)

    assert made.queue == "default"


def test_a_function_that_no_worker_could_find_needs_a_name() -> None:
    def nested() -> None: ...

    class Holder:
        @staticmethod
        def method() -> None: ...

    for function in (nested, lambda: None, Holder.method):
        with pytest.raises(ArgumentError, match="top level of its module"):
            task(function)
        assert task(name=f"named:{id(function)}")(function).name


def test_a_function_of_the_main_module_needs_a_name() -> None:
    function = FunctionType(plain.__code__, {}, "plain")
    function.__module__ = "__main__"

    with pytest.raises(ArgumentError, match="main module"):
        task(function)


# --- the registry --------------------------------------------------------------------


def test_a_task_is_found_by_its_name_and_never_imported() -> None:
    assert tasks.get_task("testproject.tasks.add") is add
    for name in ("os.system", "builtins.eval", "testproject.tasks._private", ""):
        with pytest.raises(UnknownTask, match=r"tasks\.py"):
            tasks.get_task(name)


def test_all_tasks_cannot_be_written_to() -> None:
    assert tasks.all_tasks()["testproject.tasks.echo"] is echo
    with pytest.raises(TypeError):
        tasks.all_tasks()["x"] = echo  # type: ignore[index] # on purpose


def test_two_functions_under_one_name_conflict() -> None:
    task(name="one:name")(plain)

    with pytest.raises(TaskNameConflict, match=r"one:name.*plain.*registry"):
        task(name="one:name")(registry_function)


def registry_function() -> None: ...


def made_by(number: int) -> Callable[[], int]:
    if number == 1:
        return lambda: 1
    return lambda: 2


def test_two_nested_functions_under_one_name_conflict() -> None:
    task(name="one:name")(made_by(1))

    with pytest.raises(TaskNameConflict):
        task(name="one:name")(made_by(2))


def test_decorating_the_same_function_again_replaces_its_task() -> None:
    first = task(plain)
    second = task(plain)

    assert tasks.get_task(first.name) is second


def test_reloading_a_module_replaces_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reloaded_tasks.py").write_text(
        "from relay import task\n\n@task\ndef one(): ...\n\n"
        "@task(name='two')\ndef two(): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    module = importlib.import_module("reloaded_tasks")
    first = module.one
    try:
        importlib.reload(module)
    finally:
        del sys.modules["reloaded_tasks"]

    assert module.one is not first
    assert tasks.get_task("reloaded_tasks.one") is module.one


def test_known_queues_are_those_of_settings_and_tasks() -> None:
    task(queue="of-a-task")(plain)

    assert {"default", "of-a-task"} <= tasks.known_queues()


def test_an_adapter_declares_queues_and_registers_what_it_made() -> None:
    made = tasks.Task(plain, name="tests.of-an-adapter", queue="of-an-adapter-s-task")

    tasks.declare_queues(["of-an-adapter"])
    tasks.register(made)

    assert tasks.get_task("tests.of-an-adapter") is made
    assert {"of-an-adapter", "of-an-adapter-s-task"} <= tasks.known_queues()


# --- requests ------------------------------------------------------------------------


def test_a_request_holds_what_the_task_says() -> None:
    made = task(queue="mail", priority=3, max_retries=7)(plain)

    request = made.job(1)

    assert (request.task, request.queue) == (made.name, "mail")
    assert (request.priority, request.max_retries) == (3, 7)
    assert request.args == '{"args":[1],"kwargs":{}}'


def test_an_enqueues_options_come_before_the_tasks_and_those_before_settings() -> None:
    made = task(queue="mail", priority=3)(plain)

    request = made.using(priority=0).using(queue="slow", max_retries=0).job(1)

    assert (request.priority, request.queue, request.max_retries) == (0, "slow", 0)
    assert made.job(1).max_retries == 25


def test_later_changes_of_an_argument_do_not_reach_the_job() -> None:
    value = [1]
    request = echo.job(value)

    value.append(2)

    assert request.args == '{"args":[[1]],"kwargs":{}}'


def test_using_leaves_the_task_as_it_was() -> None:
    job_id = UUID(int=1)

    bound = add.using(id=job_id)

    assert bound.job(1, 2).new_job().id == job_id
    assert add.job(1, 2).new_job().id != job_id


@pytest.mark.parametrize(
    ("args", "kwargs", "named"),
    [
        ((), {}, "missing a required argument: 'a'"),
        ((1, 2, 3), {}, "too many positional arguments"),
        ((1,), {"c": 1}, "unexpected keyword argument 'c'"),
        ((1,), {"a": 1}, "multiple values for argument 'a'"),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit_are_refused_at_enqueue(
    args: Any, kwargs: Any, named: str
) -> None:
    made = task(plain)

    for act in (made.job, made.enqueue, made.using(priority=1).enqueue):
        with pytest.raises(ArgumentError) as refused:
            act(*args, **kwargs)

        assert named in str(refused.value)
        assert f"{__name__}.plain" in str(refused.value)


def test_arguments_may_have_any_name() -> None:
    def function(self: int, task: int, name: int, args: int, kwargs: int) -> None: ...

    made = task(name="any:names")(function)

    request = made.job(self=1, task=2, name=3, args=4, kwargs=5)

    assert '"self":1' in request.args

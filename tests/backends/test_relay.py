"""What relay adds: the transaction, safe values, one function for both APIs."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

import relay
from relay import ArgumentError, EncodeError, RelayError
from relay.backends import backend as module
from relay.backends import discover
from relay.models import Job
from relay.tasks import all_tasks, get_task, known_queues
from tests.backends import tasks
from tests.backends.api import (
    TASKS,
    InvalidTask,
    InvalidTaskBackend,
    TaskResultDoesNotExist,
    TaskResultStatus,
    default_task_backend,
    task,
    task_backends,
)
from tests.backends.conftest import Work

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])


def columns(job: Job) -> dict[str, Any]:
    names = ("task", "queue", "priority", "state", "args", "max_retries", "meta")
    return {name: getattr(job, name) for name in names}


# --- the transaction -----------------------------------------------------------------


def test_a_rolled_back_enqueue_leaves_nothing() -> None:
    with transaction.atomic():
        result = tasks.noop.enqueue()
        assert tasks.noop.get_result(result.id) == result
        transaction.set_rollback(True)

    assert not Job.objects.exists()
    with pytest.raises(TaskResultDoesNotExist):
        tasks.noop.get_result(result.id)


def test_a_committed_enqueue_is_there_once(told: list[Any]) -> None:
    with transaction.atomic():
        result = tasks.noop.enqueue()
        assert [name for name, *_ in told] == ["task_enqueued"]

    assert str(Job.objects.get().pk) == result.id


# --- values --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("a\x00b", r"args\[0\]\['x'\]\[1\]"),
        ("\udce9", r"args\[0\]\['x'\]\[1\]"),
        (float("nan"), r"args\[0\]\['x'\]\[1\]"),
        (float("inf"), r"args\[0\]\['x'\]\[1\]"),
        ({1: 2}, r"args\[0\]\['x'\]\[1\]"),
        ({"a\x00": 2}, r"args\[0\]\['x'\]\[1\]"),
        (b"\xff", r"args\[0\]\['x'\]\[1\]"),
        (10**6_000, r"args\[0\]\['x'\]\[1\]"),
    ],
    ids=["nul", "surrogate", "nan", "inf", "key", "nul-key", "bytes", "integer"],
)
def test_a_value_that_postgresql_refuses_is_refused_with_its_path(
    value: Any, path: str
) -> None:
    with pytest.raises(EncodeError, match=path) as caught:
        tasks.echo.enqueue({"x": (0, value)})

    assert isinstance(caught.value, RelayError)
    assert not Job.objects.exists()


def test_a_type_that_is_no_json_is_refused_with_its_path() -> None:
    with pytest.raises(
        ArgumentError, match=r"kwargs\['value'\]\[0\]: Unsupported type"
    ):
        tasks.echo.enqueue(value=[{1, 2}])


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)

    with pytest.raises(EncodeError, match="contains itself"):
        tasks.echo.enqueue(value)


def test_json_values_travel_as_django_normalises_them(work: Work) -> None:
    value = {"tuple": (1, 2.5), "bytes": b"caf\xc3\xa9", "none": None, "__relay__": 1}

    result = tasks.echo.enqueue(value)
    work()

    normal = {"tuple": [1, 2.5], "bytes": "café", "none": None, "__relay__": 1}
    assert result.args == [normal]
    found = tasks.echo.get_result(result.id)
    assert found.args == [normal]
    assert found.return_value == normal


@pytest.mark.parametrize(
    ("made", "stored"),
    [(tasks.not_a_number, None), (tasks.nul, "a\\x00b")],
    ids=["nan", "nul"],
)
def test_a_result_that_postgresql_refuses_is_stored_changed(
    made: Any, stored: Any, work: Work
) -> None:
    result = made.enqueue()
    work()

    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.return_value == stored


def test_arguments_are_checked_against_the_signature() -> None:
    with pytest.raises(ArgumentError, match="too many positional arguments"):
        tasks.add.enqueue(1, 2, 3)
    with pytest.raises(TypeError):
        tasks.add.enqueue()


@pytest.mark.parametrize("priority", [True, 1.0])
def test_a_priority_of_another_type_is_stored_as_a_number(priority: Any) -> None:
    result = tasks.noop.using(priority=priority).enqueue()

    assert Job.objects.get().priority == 1
    assert type(tasks.noop.get_result(result.id).task.priority) is int


# --- one function for both APIs ------------------------------------------------------


def test_a_django_task_is_enqueued_alike_by_both_apis(work: Work) -> None:
    tasks.add.enqueue(1, b=2)
    tasks.add.relay.enqueue(1, b=2)
    handle = relay.enqueue("tests.backends.tasks.add", 1, kwargs={"b": 2})

    first, *others = Job.objects.order_by("ready_seq")
    assert [columns(job) for job in others] == [columns(first)] * 2
    work()
    assert handle.result(timeout=60) == 3
    assert default_task_backend.get_result(str(handle.id)).return_value == 3


def test_a_relay_task_is_a_django_task_with_its_options(work: Work) -> None:
    result = tasks.stacked.using(queue_name="queue_1").enqueue(1)
    tasks.stacked.relay.enqueue(1)

    first, second = Job.objects.order_by("ready_seq")
    assert columns(first) == columns(second)
    assert (first.task, first.max_retries) == ("tests:stacked", 2)
    work()
    result.refresh()
    assert result.return_value == 1
    assert tasks.stacked.relay(5) == 5


@pytest.mark.parametrize("made", [tasks.shared_task, tasks.shared_relay_task])
def test_a_function_can_be_a_task_of_each(
    made: Any, work: Work, told: list[Any]
) -> None:
    tasks.shared_task.using()  # the function became relay's task after Django's

    made.enqueue(1)
    work()

    assert [name for name, *_ in told][-2:] == ["task_started", "task_finished"]
    assert Job.objects.get().state == "completed"
    assert tasks.shared_relay_task(3) == tasks.shared_task.call(3) == 3


def test_relays_own_name_of_a_function_wins() -> None:
    assert get_task("tests:stacked").function.__wrapped__ is tasks.stacked.func
    with pytest.raises(relay.UnknownTask):
        get_task("tests.backends.tasks.stacked")


def test_a_task_calls_itself_without_signals(told: list[Any]) -> None:
    registered = get_task("tests.backends.tasks.add")

    assert registered(1, 2) == 3
    assert told == []


def test_a_task_of_another_alias_has_no_relay_api() -> None:
    with pytest.raises(ArgumentError, match="'immediate'"):
        _ = tasks.noop.using(backend="immediate").relay


# --- how workers find tasks ----------------------------------------------------------


def of_another_alias() -> int:
    return 1


def test_what_a_stored_name_says_is_never_imported() -> None:
    for name in ("os.system", "builtins.eval", "tests.backends.tasks.notes"):
        handle = relay.enqueue(name, "true")
        with pytest.raises(TaskResultDoesNotExist):
            default_task_backend.get_result(str(handle.id))
        with pytest.raises(relay.UnknownTask):
            get_task(name)


def test_tasks_of_another_alias_are_found_for_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rerouted = task(backend="immediate")(of_another_alias)
    name = rerouted.module_path
    fake = ModuleType("fakeapp.tasks")
    fake.rerouted = rerouted  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fakeapp.tasks", fake)
    config = SimpleNamespace(name="fakeapp")
    monkeypatch.setattr(
        module, "apps", SimpleNamespace(get_app_configs=lambda: [config])
    )
    assert name not in all_tasks()

    discover()

    assert get_task(name).function.__wrapped__ is of_another_alias


def test_queues_of_the_aliases_are_known_to_workers() -> None:
    named = {**TASKS["default"], "QUEUES": ["default", "queue_1", "named-by-alias"]}

    with override_settings(TASKS={"default": named}):
        assert task_backends["default"].queues == set(named["QUEUES"])

    assert "named-by-alias" in known_queues()


def test_a_result_of_a_task_that_only_relay_knows_can_be_read(work: Work) -> None:
    handle = relay.enqueue("testproject.tasks.add", 1, 2)
    work()

    result = default_task_backend.get_result(str(handle.id))

    assert result.return_value == 3
    assert result.task.module_path == "testproject.tasks.add"


# --- what is refused -----------------------------------------------------------------


def generator() -> Any:
    yield 1


async def async_generator() -> Any:
    yield 1


@pytest.mark.parametrize("function", [generator, async_generator])
def test_a_generator_is_no_task(function: Any) -> None:
    with pytest.raises(InvalidTask, match="generator"):
        task(function)


def test_a_function_of_the_main_module_is_no_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(generator, "__module__", "__main__")
    monkeypatch.setattr(of_another_alias, "__module__", "__main__")

    with pytest.raises(InvalidTask, match=r"tasks\.py"):
        task(of_another_alias)


def test_a_queue_name_that_relay_cannot_use_is_refused() -> None:
    with pytest.raises(InvalidTask, match="cannot name a queue"):
        tasks.noop.using(backend="patient", queue_name="a b")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"OPTIONS": {"retries": 3}}, "unknown option retries"),
        ({"OPTIONS": {"queue": "mail"}}, "unknown option queue"),
        ({"OPTIONS": {"max_retries": -1}}, "max_retries=-1"),
        ({"QUEUES": ["a b"]}, "cannot name a queue"),
    ],
    ids=["unknown", "of-the-task", "range", "queue"],
)
def test_wrong_settings_are_refused(options: dict[str, Any], message: str) -> None:
    broken = {**TASKS, "broken": {**TASKS["patient"], **options}}

    with (
        override_settings(TASKS=broken),
        pytest.raises(InvalidTaskBackend, match=message),
    ):
        _ = task_backends["broken"]


def test_options_are_those_of_the_alias() -> None:
    tasks.noop.enqueue()
    tasks.noop.using(backend="patient").enqueue()

    assert [job.max_retries for job in Job.objects.order_by("ready_seq")] == [0, 3]


def test_the_check_misses_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = task_backends["default"]
    assert backend.check() == []
    monkeypatch.setattr(
        module, "apps", SimpleNamespace(is_installed=lambda name: False)
    )
    (message,) = backend.check()
    assert message.id == "relay.E009"

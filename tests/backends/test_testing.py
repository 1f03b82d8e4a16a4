"""The backend for tests of who uses django.tasks: no row, no run, the same refusals."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import override_settings

from relay import ArgumentError, EncodeError
from relay.backends import TestBackend
from tests.backends import aliases, tasks
from tests.backends.api import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    default_task_backend,
    task_backends,
)

TASKS = aliases.TASKS | {
    "default": {
        "BACKEND": "relay.backends.TestBackend",
        "QUEUES": ["default", "queue_1"],
    }
}


@pytest.fixture(autouse=True)
def backend(relay_as_backend: None) -> Iterator[TestBackend]:
    """As the backend of "default", in a test that may use no database."""
    with override_settings(TASKS=TASKS):
        made = task_backends["default"]
        assert isinstance(made, TestBackend)
        yield made


def test_results_are_kept_until_they_are_cleared(
    backend: TestBackend, told: list[Any]
) -> None:
    first = tasks.add.enqueue(1, b=2)
    second = tasks.add.using(priority=7).enqueue(3)

    assert [result.id for result in backend.results] == [first.id, second.id]
    kept = backend.results[0]
    assert (kept.task, kept.args, kept.kwargs) == (tasks.add, [1], {"b": 2})
    assert kept.status == TaskResultStatus.READY
    assert kept.enqueued_at is not None
    assert backend.results[1].task.priority == 7
    assert default_task_backend.get_result(first.id) == first
    assert [name for name, *_ in told] == ["task_enqueued", "task_enqueued"]
    backend.clear()
    assert backend.results == []
    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result(first.id)


def test_what_a_test_does_to_a_result_changes_none_that_is_kept(
    backend: TestBackend,
) -> None:
    result = tasks.echo.enqueue({"a": 1})

    result.args[0]["a"] = 2

    assert backend.results[0].args == [{"a": 1}]


def test_coroutines_enqueue_too(backend: TestBackend) -> None:
    result = async_to_sync(tasks.noop_async.aenqueue)()

    assert async_to_sync(tasks.noop_async.aget_result)(result.id) == result
    assert len(backend.results) == 1


def test_a_span_until_it_is_due_becomes_an_instant(backend: TestBackend) -> None:
    result = tasks.noop.using(run_after=timedelta(hours=1)).enqueue()

    assert result.enqueued_at is not None
    assert result.task.run_after == result.enqueued_at + timedelta(hours=1)


def test_it_refuses_what_relay_would_refuse(backend: TestBackend) -> None:
    with pytest.raises(ArgumentError):
        tasks.add.enqueue(1, c=2)
    with pytest.raises(ArgumentError, match=r"args\[0\]"):
        tasks.echo.enqueue({1, 2})
    with pytest.raises(EncodeError, match="NUL"):
        tasks.echo.enqueue("a\x00b")
    with pytest.raises(InvalidTask):
        tasks.add.using(queue_name="nowhere").enqueue(1)

    assert backend.results == []


def test_the_context_is_no_argument(backend: TestBackend) -> None:
    tasks.check_context.enqueue(1)

    with pytest.raises(ArgumentError):
        tasks.check_context.enqueue()
    assert len(backend.results) == 1

"""Tasks of django.tasks for these tests."""

from __future__ import annotations

from datetime import date
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.contenttypes.models import ContentType

import relay
from tests.backends.api import TaskContext, task

notes: list[Any] = []


@task()
def noop(*args: Any, **kwargs: Any) -> None:
    return None


@task
def noop_bare(*args: Any, **kwargs: Any) -> None:
    return None


@task()
async def noop_async(*args: Any, **kwargs: Any) -> None:
    return None


@task()
def answer() -> int:
    return 42


@task()
async def answer_async() -> int:
    return 42


@task()
def add(a: int, b: int = 0) -> int:
    return a + b


@task()
def echo(value: Any) -> Any:
    return value


@task()
def value_error() -> None:
    raise ValueError("This task failed due to ValueError")


@task()
async def value_error_async() -> None:
    raise ValueError("This task failed due to ValueError")


@task()
def system_exit() -> None:
    raise SystemExit("This task failed due to SystemExit")


@task()
def keyboard_interrupt() -> None:
    raise KeyboardInterrupt("This task failed due to KeyboardInterrupt")


class OwnError(Exception):
    pass


@task()
def nested_error() -> None:
    raise ValueError(ValueError("This task failed"))


@task()
def own_error() -> None:
    try:
        raise KeyError("first")
    except KeyError as error:
        raise OwnError("two\nValueError: lines") from error


@task()
def unserialisable() -> Any:
    return {"when": [date(2026, 1, 1)]}


@task()
def not_a_number() -> float:
    return float("nan")


@task()
def nul() -> str:
    return "a\x00b"


@task()
def skip_retry() -> None:
    raise relay.SkipRetry("no use")


@task(takes_context=True)
def task_id(context: TaskContext) -> str:
    return context.task_result.id


@task(takes_context=True)
def check_context(context: TaskContext, attempt: int) -> list[Any]:
    assert isinstance(context, TaskContext)
    assert context.attempt == attempt
    result = context.task_result
    return [str(result.status), result.args, result.kwargs, result.worker_ids]


@task(takes_context=True)
async def check_context_async(context: TaskContext, attempt: int) -> int:
    assert isinstance(context, TaskContext)
    assert context.attempt == attempt
    return context.attempt


@task()
async def uses_the_orm() -> int:
    return await sync_to_async(ContentType.objects.count)()


@task(queue_name="queue_1", priority=7)
def elsewhere() -> None:
    pass


@task
@relay.task(max_retries=2, queue="queue_1", name="tests:stacked")
def stacked(value: Any) -> Any:
    return value


def shared(value: Any) -> Any:
    return value


shared_task = task(shared)
shared_relay_task = relay.task(shared)

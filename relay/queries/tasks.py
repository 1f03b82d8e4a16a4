"""Tasks that are registered here, and what their calls look like."""

from __future__ import annotations

import inspect
from inspect import Parameter
from typing import Any, Final

from relay.conf import get_settings
from relay.exceptions import UnknownTask
from relay.operations import Actor
from relay.queries.documents import TaskDocument
from relay.queries.schema import arguments_schema
from relay.tasks import Task, all_tasks, is_own, listed_tasks

__all__ = ["get_task", "list_tasks"]

_STARS: Final[dict[Any, str]] = {
    Parameter.VAR_POSITIONAL: "*",
    Parameter.VAR_KEYWORD: "**",
}


def list_tasks(actor: Actor) -> list[TaskDocument]:
    """Return the tasks of this process by name, without relay's own.

    may_enqueue of each says whether the actor may enqueue it.

    Raises:
        NotAllowed: the actor lacks view_job.
    """
    actor.require("view_job", "list_tasks")
    known = all_tasks()
    return [_document(actor, known[name]) for name in listed_tasks()]


def get_task(actor: Actor, name: str) -> TaskDocument:
    """Return one task.

    Raises:
        NotAllowed: the actor lacks view_job.
        UnknownTask: there is none of this name in this process.
    """
    actor.require("view_job", "get_task")
    task = all_tasks().get(name)
    if task is None:
        raise UnknownTask(f"no task {name[:200]!r} is registered in this process")
    return _document(actor, task)


def _document(actor: Actor, task: Task[..., Any]) -> TaskDocument:
    may_enqueue = actor.may("enqueue_job") and actor.may_call(task.name)
    retries = task.max_retries
    return {
        "name": task.name,
        "summary": (inspect.getdoc(task.function) or "").partition("\n")[0],
        "queue": task.queue,
        "priority": task.priority,
        "max_retries": get_settings().max_retries if retries is None else retries,
        "timeout": None if task.timeout is None else task.timeout.total_seconds(),
        "is_async": task.is_async,
        "isolation": task.isolation,
        "transactional": task.transactional,
        "unique": task.unique is not None,
        "tags": list(task.tags),
        "sensitive": task.sensitive is True or list(task.sensitive),
        "permission": task.permission,
        "may_enqueue": may_enqueue and not is_own(task.name),
        "signature": _signature(task),
        "arguments": arguments_schema(task),
    }


def _signature(task: Task[..., Any]) -> str:
    """Return the names, without defaults: a default may be a secret."""
    names = []
    for each in task.signature.parameters.values():
        mark = "" if each.default is Parameter.empty else "=…"
        names.append(f"{_STARS.get(each.kind, '')}{each.name}{mark}")
    return f"({', '.join(names)})"

"""The job that a schedule's row describes."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Protocol
from uuid import UUID

from relay import sensitive_places
from relay.conf import DEFAULT_QUEUE, OWN_QUEUE, check_queue_name, get_settings
from relay.engine.new_job import NewJob
from relay.exceptions import ScheduleError, UnknownTask
from relay.ids import uuid7
from relay.options import PRIORITIES
from relay.tasks import Task, all_tasks, get_task

__all__ = [
    "Definition",
    "check_arguments",
    "check_priority",
    "check_queue",
    "make_job",
    "refuse_sensitive",
]


class Definition(Protocol):
    """What a row of relay_schedule says of its jobs; args is the document's text."""

    id: UUID
    task: str
    args: str
    queue: str | None
    priority: int | None


def make_job(row: Definition) -> NewJob:
    """Return a job as the row describes it, ready now and of no occurrence.

    What the row leaves open its task says, and the settings where the task's code is
    not known to this process.

    Raises:
        ScheduleError: the row's task, arguments, queue or priority cannot be used.
    """
    refuse_own(row.task)
    queue, priority = row.queue, row.priority
    max_retries, timeout = get_settings().max_retries, None
    tags: tuple[str, ...] = ()
    try:
        task = get_task(row.task)
    except UnknownTask:
        pass
    else:
        queue = task.queue if queue is None else queue
        priority = task.priority if priority is None else priority
        max_retries = max_retries if task.max_retries is None else task.max_retries
        timeout, tags = task.timeout, task.tags
        if task.sensitive:
            document = check_arguments(json.loads(row.args))
            refuse_sensitive(task, document["args"], document["kwargs"])
    return NewJob(
        id=uuid7(),
        task=row.task,
        queue=check_queue(DEFAULT_QUEUE if queue is None else queue),
        priority=check_priority(0 if priority is None else priority),
        max_retries=max_retries,
        args=_arguments(row.args),
        timeout=timeout,
        tags=tags,
        schedule_id=row.id,
    )


def _arguments(text: str) -> str:
    document = check_arguments(json.loads(text))
    # The row's own text where it is whole: a number in it may be past a float.
    return text if document == json.loads(text) else json.dumps(document)


def check_arguments(document: object) -> dict[str, Any]:
    """Return the arguments of a schedule in the form that jobs carry.

    Raises:
        ScheduleError: the document holds something else.
    """
    if isinstance(document, dict) and document.keys() <= {"args", "kwargs"}:
        args, kwargs = document.get("args", []), document.get("kwargs", {})
        if isinstance(args, list) and isinstance(kwargs, dict):
            return {"args": args, "kwargs": kwargs}
    raise ScheduleError(
        'the arguments must have the form {"args": [...], "kwargs": {...}}'
    )


def refuse_own(task: str) -> None:
    """Refuse a schedule of a task of relay's own: its arguments say what was permitted.

    Raises:
        ScheduleError: it is one.
    """
    made = all_tasks().get(task)
    if made is not None and made.queue == OWN_QUEUE:
        raise ScheduleError(
            f"{task} is relay's own: only an act enqueues it; name a task of yours"
        )


def refuse_sensitive(
    task: Task[..., Any], args: Collection[object], kwargs: Collection[str]
) -> None:
    """Refuse a schedule that would give sensitive arguments: its row keeps them plain.

    Raises:
        ScheduleError: it would.
    """
    if task.sensitive and sensitive_places.find_places(
        task.name, task.signature, task.sensitive, args, kwargs
    ):
        raise ScheduleError(
            f"a schedule of {task.name} cannot give its sensitive arguments, as its "
            "row is not encrypted: let the handler look them up"
        )


def check_queue(name: str) -> str:
    """Return the name if it may name a queue.

    Raises:
        ScheduleError: it may not.
    """
    try:
        return check_queue_name(name)
    except ValueError as error:
        raise ScheduleError(str(error)) from error


def check_priority(priority: int) -> int:
    """Return the priority if a job may have it.

    Raises:
        ScheduleError: it may not.
    """
    if priority not in PRIORITIES:
        raise ScheduleError(
            f"priority {priority} must lie in {PRIORITIES[0]} to {PRIORITIES[-1]}"
        )
    return priority

"""What a job is called with, as a person or client says it: checked and encoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from relay import sensitive
from relay.codec import check_count
from relay.engine.connection import fetch_all
from relay.exceptions import ArgumentError, JobNotFound
from relay.operations.bulk_jobs import OWN_TASKS
from relay.operations.registry import Act
from relay.options import EnqueueOptions, check_task_name
from relay.requests import JobRequest, request_by_name
from relay.tasks import all_tasks

__all__ = ["JobCall", "Original", "check_own", "encoder", "original_of", "request_of"]

# Primary key.
_ORIGINAL: Final = """
SELECT task, queue, args ? 'sealed' FROM relay_job WHERE id = %(id)s
"""


@dataclass(frozen=True, slots=True)
class JobCall:
    """A job to be enqueued: its task's name, its arguments and options."""

    task: str
    args: Sequence[Any] = field(default=(), repr=False)
    kwargs: Mapping[str, Any] | None = field(default=None, repr=False)
    options: EnqueueOptions = field(default_factory=EnqueueOptions)


def request_of(act: Act, call: JobCall) -> JobRequest[Any]:
    """Return what is to be enqueued.

    Raises:
        NotAllowed: the task or the queue asks for what the actor lacks.
        ArgumentError, EncodeError: an argument or option cannot be taken.
    """
    _check_joins(call.options)
    made = all_tasks().get(check_task_name(call.task))
    check_own(call.task)
    act.actor.require_call(call.task, act.operation)
    check_count(call.args, call.kwargs)
    request = request_by_name(
        call.task, made, tuple(call.args), call.kwargs, call.options
    )
    act.actor.require_fill(request.queue, act.operation)
    return request


def check_own(task: str) -> None:
    """Refuse relay's own tasks: their arguments say what was permitted to others."""
    if task in OWN_TASKS:
        raise ArgumentError(
            f"task={task!r} is relay's own: start a bulk operation, which enqueues it"
        )


def _check_joins(options: Mapping[str, Any]) -> None:
    if options.get("outside_transaction") or options.get("on_commit") is not None:
        raise ArgumentError(
            "outside_transaction= and on_commit= are for code: what a person asks for "
            "commits together with its record"
        )


# --- of a job that is there ----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """A job whose arguments are to be given anew.

    Attributes:
        is_sealed: whether some of those it has are encrypted.
    """

    task: str
    queue: str
    is_sealed: bool


def original_of(job_id: UUID, *, using: str) -> Original:
    """Return what a job is of.

    Raises:
        JobNotFound: it is gone.
    """
    for task, queue, is_sealed in fetch_all(_ORIGINAL, {"id": job_id}, using=using):
        return Original(task=task, queue=queue, is_sealed=is_sealed)
    raise JobNotFound(job_id)


def encoder(
    original: Original, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
) -> Callable[[UUID], str]:
    """Return what makes the arguments' text for a job's id, checked and encoded now.

    Where something was encrypted that the task does not name, or the task is not at
    hand, everything is: what was secret must not come to lie open.
    """
    check_own(original.task)
    check_count(args, kwargs)
    made = all_tasks().get(original.task)
    options: dict[str, Any] = {"unique": None}
    if original.is_sealed and (made is None or not made.sensitive):
        options["sensitive"] = True
    request = request_by_name(original.task, made, tuple(args or ()), kwargs, options)
    return lambda job_id: sensitive.seal_arguments(
        request.args, request.rare.sealed, job_id
    )

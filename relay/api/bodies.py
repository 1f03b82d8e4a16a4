"""What requests say of jobs, bulk acts and queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from rest_framework import serializers

from relay import codec
from relay.api.fields import (
    AnyField,
    Body,
    ChoiceField,
    InstantField,
    SpanField,
    TextField,
    WholeField,
)
from relay.engine.weight import LARGEST_WEIGHT
from relay.exceptions import DecodeError, UnknownTask
from relay.models import QueuePolicy
from relay.operations import AT_ONCE, LONGEST_LABEL, SCOPES, JobCall
from relay.operations.bulk_jobs import ACTIONS, OWN_TASKS
from relay.options import EnqueueOptions, check_task_name
from relay.tasks import all_tasks
from relay.unique import Unique

__all__ = [
    "BatchBody",
    "BulkBody",
    "EditBody",
    "EmptyBody",
    "EnqueueBody",
    "ExpectedBody",
    "JobBody",
    "MarkBody",
    "PauseBody",
    "QueueBody",
    "ReplayBody",
    "TokenBody",
    "call_of",
    "queue_of",
]

MOST_JOBS: Final = 1_000
_LONGEST_NAME: Final = 200
_MOST_TAGS: Final = 20
_LONGEST_TAG: Final = 100


class DeadlineField(InstantField):
    """An instant, or a span from now."""

    default_error_messages = {  # noqa: RUF012 - as DRF's fields
        "invalid": "give a time with its zone, or a span from now such as 2h"
    }

    def to_internal_value(self, data: Any) -> Any:
        """Return a datetime or a timedelta."""
        try:
            return super().to_internal_value(data)
        except serializers.ValidationError:
            return SpanField().run_validation(data)


class EmptyBody(Body):
    """Nothing: the address says it all."""


class UniqueBody(Body):
    """While what another job with the same key keeps this one out."""

    on = serializers.ListField(
        child=TextField(max_length=_LONGEST_NAME), required=False, min_length=1
    )
    key = TextField(required=False)
    scope = TextField(required=False)
    until = ChoiceField(["started", "finished", "forever"], required=False)
    on_conflict = ChoiceField(["return", "raise", "replace"], required=False)
    due = ChoiceField(["keep", "push"], required=False)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Return the fields; `for` is no name that Python has."""
        return {**super().get_fields(), "for": SpanField(required=False)}


def _tags() -> serializers.ListField:
    return serializers.ListField(
        child=TextField(max_length=_LONGEST_TAG), required=False, max_length=_MOST_TAGS
    )


class ArgumentsBody(Body):
    """All the arguments of a call."""

    args = serializers.ListField(child=AnyField(), required=False)
    kwargs = serializers.DictField(child=AnyField(), required=False)


class JobBody(ArgumentsBody):
    """A job: of a task with its arguments, or of a command with its payload."""

    type = TextField(required=False, help_text="`command`, in place of `task`.")
    payload = TextField(required=False, allow_blank=True, help_text="The command.")
    task = TextField(required=False, max_length=_LONGEST_NAME)
    queue = TextField(required=False)
    priority = WholeField(required=False, min_value=-100, max_value=100)
    max_retries = WholeField(required=False, min_value=0, max_value=1_000_000)
    timeout = SpanField(required=False, allow_null=True)
    run_at = InstantField(required=False, allow_null=True)
    delay = SpanField(required=False, allow_null=True, help_text="In place of run_at.")
    deadline = DeadlineField(required=False, allow_null=True)
    unique = UniqueBody(required=False, allow_null=True)
    tags = _tags()
    meta = serializers.DictField(child=AnyField(), required=False)
    id = serializers.UUIDField(
        required=False, help_text="Enqueued again under it, it is there once."
    )


class EnqueueBody(JobBody):
    """A job, and the key by which it is not enqueued twice."""

    idempotency_key = TextField(
        required=False, max_length=255, help_text="As the header Idempotency-Key."
    )


class BatchBody(Body):
    """Jobs that are enqueued together: all or none."""

    jobs = serializers.ListField(child=JobBody(), min_length=1, max_length=MOST_JOBS)


class ChangedArgumentsBody(ArgumentsBody):
    """All the arguments of a job anew; what is marked with a type is of that type."""

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Read the marks that answers have: what was read can be sent back."""
        given = {name: attrs[name] for name in ("args", "kwargs") if name in attrs}
        try:
            args, kwargs = codec.decode_arguments(given)
        except DecodeError as error:
            raise serializers.ValidationError({next(iter(given)): str(error)}) from None
        read = {"args": args, "kwargs": kwargs}
        return {**attrs, **{name: read[name] for name in given}}


class EditBody(ChangedArgumentsBody):
    """What shall change of a job that waits."""

    queue = TextField(required=False)
    priority = WholeField(required=False, min_value=-100, max_value=100)
    max_retries = WholeField(required=False, min_value=0, max_value=1_000_000)
    run_at = InstantField(required=False)
    timeout = SpanField(required=False, allow_null=True)
    deadline = InstantField(required=False, allow_null=True)
    tags = _tags()


class ReplayBody(ChangedArgumentsBody):
    """Other arguments for the new job; those of the old one unless given."""


class BulkBody(Body):
    """An act over all jobs that match a filter; or over these, at once."""

    action = ChoiceField(list(ACTIONS))
    filter = TextField(required=False)
    ids = serializers.ListField(
        child=serializers.UUIDField(), required=False, min_length=1, max_length=AT_ONCE
    )
    expected = WholeField(
        required=False,
        min_value=0,
        max_value=2_147_483_647,
        help_text="How many are meant; with more than a tenth above it, it is refused.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Take a filter or ids."""
        if ("filter" in attrs) == ("ids" in attrs):
            raise serializers.ValidationError({"filter": "give it, or ids"})
        if "ids" in attrs and "expected" in attrs:
            raise serializers.ValidationError({"expected": "is for a filter"})
        return attrs


class ExpectedBody(Body):
    """How many jobs are meant."""

    expected = WholeField(required=False, min_value=0, max_value=2_147_483_647)


class PauseBody(Body):
    """Until when; until it is resumed unless given."""

    until = InstantField(required=False, allow_null=True)


class MarkBody(Body):
    """A moment that charts point out."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Return the fields; DRF has an attribute `label` of its own."""
        about = "Such as `deploy 1.4`."
        label = TextField(max_length=LONGEST_LABEL, help_text=about)
        return {**super().get_fields(), "label": label}


class QueueBody(Body):
    """What shall change of a queue."""

    policy = ChoiceField(QueuePolicy.values, required=False)
    weight = WholeField(
        required=False,
        min_value=1,
        max_value=LARGEST_WEIGHT,
        help_text="How often it is claimed from first, where -q says nothing.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Take something to change."""
        if not attrs:
            raise serializers.ValidationError("give policy or weight")
        return attrs


class TokenBody(Body):
    """A token that is to be made."""

    name = TextField(max_length=100, help_text="What people call it.")
    scopes = serializers.ListField(child=ChoiceField(list(SCOPES)), min_length=1)
    expires_in = SpanField(
        required=False,
        allow_null=True,
        help_text="Until it ends: 90 days unless given, null for never.",
    )
    queues = serializers.ListField(
        child=TextField(),
        required=False,
        allow_null=True,
        min_length=1,
        help_text="The only ones whose jobs it is for; null for all.",
    )
    tasks = serializers.ListField(
        child=TextField(max_length=_LONGEST_NAME),
        required=False,
        allow_null=True,
        min_length=1,
        help_text="The only ones that it may have run, by name or as mail.*; null for "
        "all that ask for no permission.",
    )


# --- of a job ------------------------------------------------------------------------

_RENAMED: Final = {"delay": "run_in"}
_NO_OPTIONS: Final = {"type", "payload", "task", "args", "kwargs", "idempotency_key"}


def call_of(values: Mapping[str, Any]) -> JobCall:
    """Return the job that a JobBody says.

    Raises:
        UnknownTask: no task of this name is registered here. Names are looked up and
            nothing is imported by them.
        ArgumentError: an option cannot be taken.
        ValidationError: it is not said which task.
    """
    task = values.get("task")
    if task is None:
        raise serializers.ValidationError({"task": "give the name of a task"})
    if check_task_name(task) not in all_tasks() or task in OWN_TASKS:
        raise UnknownTask(
            f"no task {task!r} is registered in this process: GET /v1/tasks lists "
            "those that are"
        )
    options: dict[str, Any] = {
        _RENAMED.get(name, name): value
        for name, value in values.items()
        if name not in _NO_OPTIONS
    }
    if options.get("unique") is not None:
        options["unique"] = _unique(options["unique"])
    return JobCall(
        task,
        values.get("args", ()),
        values.get("kwargs"),
        cast("EnqueueOptions", options),
    )


def _unique(values: Mapping[str, Any]) -> Unique:
    given = {"for_" if name == "for" else name: each for name, each in values.items()}
    return Unique(**given)


def queue_of(call: JobCall) -> str:
    """Return the queue that a job would go to."""
    return call.options.get("queue") or all_tasks()[call.task].queue

"""The forms of jobs: what an operation is asked for. Nothing here writes a row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.db import models

from relay.admin.act_form import ActForm
from relay.admin.schedule_form import ArgumentsField
from relay.instants import typed
from relay.packing import TAG

__all__ = [
    "EditForm",
    "EnqueueForm",
    "JobForm",
    "ReplayForm",
    "initial_of",
    "plain_arguments",
]

_ARGUMENTS: Final = ("args", "kwargs")


class CallField(ArgumentsField):
    """Arguments, or nothing: an empty field."""

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else super().prepare_value(value)


class InstantField(forms.SplitDateTimeField):
    """A date and a time, in the current zone, also where USE_TZ is off."""

    def compress(self, data_list: Any) -> datetime | None:
        found = super().compress(data_list)
        return typed(found, str(self.error_messages["invalid_date"]))


class TagsField(forms.CharField):
    """Tags, one a line."""

    column = models.TextField

    def to_python(self, value: Any) -> list[str]:  # type: ignore[override] # a list of texts
        text = super().to_python(value) or ""
        return [line.strip() for line in text.splitlines() if line.strip()]

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list | tuple) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        return self.to_python(data) != list(initial or ())


class JobForm(ActForm):
    """What operations on one job take. Left empty, a field asks for nothing."""

    args = CallField(
        label="Arguments", required=False, help_text="A list in JSON, such as [42]."
    )
    kwargs = CallField(
        label="Keyword arguments",
        required=False,
        help_text='An object in JSON, such as {"user_id": 42}.',
    )
    reason = forms.CharField(
        required=False, max_length=500, help_text="Why, for the record."
    )

    def clean_args(self) -> Sequence[Any] | None:
        value = self.cleaned_data["args"]
        if value is None or isinstance(value, list):
            return value
        raise ValidationError("This is no list: write it as [1, 2].")

    def clean_kwargs(self) -> Mapping[str, Any] | None:
        value = self.cleaned_data["kwargs"]
        if value is None or isinstance(value, dict):
            return value
        raise ValidationError('This is no object: write it as {"name": 1}.')

    def options(self) -> dict[str, Any]:
        """Return what the operation is called with, by name: all that was given."""
        return {
            name: value
            for name, value in self.cleaned_data.items()
            if name != "reason" and value not in (None, "", [])
        }


class _OptionsForm(JobForm):
    """What is said of a job besides its task."""

    queue = forms.CharField(required=False, max_length=100)
    priority = forms.IntegerField(
        required=False, help_text="-100 to 100, higher first."
    )
    run_at = InstantField(
        label="Due", required=False, help_text="It does not start before this."
    )
    max_retries = forms.IntegerField(
        required=False, help_text="Attempts that may fail, less the first."
    )
    timeout = forms.DurationField(
        required=False,
        help_text="How long one attempt may run, as 45 (seconds), 10:00 or 06:00:00.",
    )
    deadline = InstantField(required=False, help_text="After this no attempt starts.")
    tags = TagsField(required=False, help_text="One a line.")


class EnqueueForm(_OptionsForm):
    """A new job, by its task's name."""

    task = forms.CharField(max_length=200)

    field_order = ("task", "args", "kwargs", "queue")

    def options(self) -> dict[str, Any]:
        given = super().options()
        if "args" in given:
            given["args"] = tuple(given["args"])
        return given


class EditForm(_OptionsForm):
    """A job that waits: what has changed is asked for, and nothing else."""

    def options(self) -> dict[str, Any]:
        """Return what has changed; of arguments both kinds, or none.

        A queue, a due time or a number that was emptied is left as it is: a job cannot
        be without.
        """
        changed = {
            name: self.cleaned_data[name]
            for name in self.changed_data
            if name not in (*_ARGUMENTS, "reason")
        }
        for name in ("queue", "priority", "run_at", "max_retries"):
            if changed.get(name) in (None, ""):
                changed.pop(name, None)
        return changed | _arguments(self)


class ReplayForm(JobForm):
    """A new job like one that has ended, with other arguments."""

    def options(self) -> dict[str, Any]:
        return _arguments(self)


def _arguments(form: JobForm) -> dict[str, Any]:
    """Return the arguments anew; nothing if none was changed."""
    if not {*_ARGUMENTS} & {*form.changed_data}:
        return {}
    given = form.cleaned_data
    return {"args": given["args"] or [], "kwargs": given["kwargs"] or {}}


def initial_of(job: Any) -> dict[str, Any]:
    """Return what stands in the form of a job, but for its arguments."""
    milliseconds = job.timeout_ms
    return {
        "queue": job.queue,
        "priority": job.priority,
        "run_at": job.run_at,
        "max_retries": job.max_retries,
        "timeout": None
        if milliseconds is None
        else timedelta(milliseconds=milliseconds),
        "deadline": job.deadline_at,
        "tags": job.tags or [],
    }


def plain_arguments(stored: str, shown: str | None) -> dict[str, Any] | None:
    """Return a job's arguments as a form may hold them; None if it may not.

    Those of which something is masked, tagged or cut off stand in no form: they would
    be saved so.

    Args:
        stored: as pretty() reads them.
        shown: as a page shows them.
    """
    if stored != shown or f'"{TAG}"' in stored:
        return None
    try:
        found = json.loads(stored)
    except (ValueError, RecursionError):  # cut off, too deep, or too long a number
        return None
    if not isinstance(found, dict) or found.keys() - {*_ARGUMENTS}:
        return None
    return {name: found[name] for name in _ARGUMENTS if found.get(name)}

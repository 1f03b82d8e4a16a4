"""Forms: a new job, a waiting one edited, an ended one replayed with changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.forms.fields import InvalidJSONInput
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from relay import codec, operations, queries
from relay.conf import LONGEST
from relay.dashboard.access import page
from relay.dashboard.asking import go_back
from relay.dashboard.drawing import draw, link
from relay.dashboard.verbs import job_link
from relay.exceptions import (
    ArgumentError,
    Conflict,
    DecodeError,
    EncodeError,
    MissingKey,
    NotFound,
)
from relay.instants import typed
from relay.operations import Actor
from relay.queries.reading import CUT
from relay.sensitive import MASK
from relay.unique import Unique

__all__ = [
    "WHEN",
    "ArgumentsForm",
    "InstantField",
    "arguments_of",
    "edit_job",
    "enqueue",
    "has_mask",
    "moment",
    "replay_job",
    "seconds_field",
]

_REFUSED: Final = (ArgumentError, Conflict, DecodeError, EncodeError, MissingKey)
_ARGUMENTS: Final = ("args", "kwargs")
WHEN: Final = gettext_lazy(
    "In the server's zone: 2026-11-30 08:00; or with its own: 2026-11-30T08:00Z"
)


def seconds_field(label: Any) -> forms.FloatField:
    """Return a field of a span, which may be empty."""
    most = LONGEST.total_seconds()
    return forms.FloatField(required=False, min_value=0, max_value=most, label=label)


class InstantField(forms.DateTimeField):
    """An instant; without a zone it is in the server's, also where USE_TZ is off."""

    def prepare_value(self, value: Any) -> Any:
        is_shifted = isinstance(value, datetime) and not settings.USE_TZ
        local = timezone.localtime(value).replace(tzinfo=None) if is_shifted else value
        return super().prepare_value(local)

    def to_python(self, value: Any) -> datetime | None:
        return typed(super().to_python(value), str(self.error_messages["invalid"]))


def span_of(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


class ArgumentsField(forms.JSONField):
    """JSON of one kind; shows again what was typed, also where nobody can read it."""

    def __init__(self, kind: type[list[Any]] | type[dict[str, Any]], **kwargs: Any):
        widget = forms.Textarea(attrs={"rows": 4, "spellcheck": "false"})
        super().__init__(required=False, widget=widget, **kwargs)
        self._kind = kind

    def to_python(self, value: Any) -> Any:
        try:
            found = super().to_python(value)
        except (RecursionError, ValueError) as error:
            raise ValidationError(_("It is too deep to be read."), "deep") from error
        if found is None:
            return self._kind()
        if not isinstance(found, self._kind):
            kinds = {list: _("Give a list: [1, 2]."), dict: _('Give {"name": 1}.')}
            raise ValidationError(kinds[self._kind], "kind")
        return found

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, InvalidJSONInput):
            return value
        return json.dumps(value or self._kind(), indent=2, ensure_ascii=False)

    def bound_data(self, data: Any, initial: Any) -> Any:
        return data if data is None else InvalidJSONInput(data)

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.to_python(data) != (initial or self._kind()))
        except ValidationError:
            return True


class ArgumentsForm(forms.Form):
    """What a job is called with."""

    args = ArgumentsField(list, label=gettext_lazy("Positional arguments"))
    kwargs = ArgumentsField(dict, label=gettext_lazy("Arguments by name"))

    def arguments(self) -> dict[str, Any]:
        """Return both as values; what is marked with a type is of that type.

        Raises:
            DecodeError: it cannot be.
        """
        given = {name: self.cleaned_data[name] for name in _ARGUMENTS}
        args, kwargs = codec.decode_arguments(given)
        return {"args": args, "kwargs": kwargs}


class EditForm(ArgumentsForm):
    """All that may be changed of a waiting job."""

    queue = forms.CharField(label=gettext_lazy("Queue"))
    priority = forms.IntegerField(label=gettext_lazy("Priority, higher first"))
    run_at = InstantField(label=gettext_lazy("Due at"), help_text=WHEN)
    max_retries = forms.IntegerField(label=gettext_lazy("Retries"))
    timeout = seconds_field(gettext_lazy("Timeout in seconds; empty for none"))
    deadline = InstantField(
        required=False, label=gettext_lazy("Deadline; empty for none")
    )
    tags = forms.CharField(
        required=False, label=gettext_lazy("Tags, with spaces between")
    )

    def options(self) -> dict[str, Any]:
        """Return what was changed, as operations.edit_job takes it."""
        changed = set(self.changed_data)
        values = self.cleaned_data
        found = {
            name: values[name]
            for name in changed & {"queue", "priority", "run_at", "max_retries"}
        }
        if "timeout" in changed:
            found["timeout"] = span_of(values["timeout"])
        if "deadline" in changed:
            found["deadline"] = values["deadline"]
        if "tags" in changed:
            found["tags"] = values["tags"].split()
        if changed & {*_ARGUMENTS}:
            found |= self.arguments()
        return found


class EnqueueForm(ArgumentsForm):
    """A new job; what is empty is the task's."""

    queue = forms.CharField(required=False, label=gettext_lazy("Queue"))
    priority = forms.IntegerField(
        required=False, label=gettext_lazy("Priority, higher first")
    )
    run_at = InstantField(required=False, label=gettext_lazy("Due at"), help_text=WHEN)
    max_retries = forms.IntegerField(required=False, label=gettext_lazy("Retries"))
    timeout = seconds_field(gettext_lazy("Timeout in seconds"))
    deadline = InstantField(
        required=False, label=gettext_lazy("Deadline; empty for none")
    )
    unique_for = seconds_field(gettext_lazy("No other such job for so many seconds"))
    unique_key = forms.CharField(
        required=False,
        label=gettext_lazy("Such a job: with this key; empty for the same arguments"),
    )
    tags = forms.CharField(
        required=False, label=gettext_lazy("Tags, with spaces between")
    )
    meta = ArgumentsField(dict, label=gettext_lazy("Data beside the arguments"))

    def options(self) -> dict[str, Any]:
        """Return what was given, as operations.enqueue_job takes it.

        Raises:
            ArgumentError: an option cannot be taken.
        """
        values = self.cleaned_data
        given = {
            **{name: values[name] for name in ("queue", "priority", "run_at")},
            **{name: values[name] for name in ("max_retries", "deadline")},
            "timeout": span_of(values["timeout"]),
            "tags": values["tags"].split(),
            "meta": values["meta"],
        }
        found = {name: v for name, v in given.items() if v not in (None, "", [], {})}
        window, key = span_of(values["unique_for"]), values["unique_key"] or None
        if window is not None or key is not None:
            found["unique"] = Unique(for_=window, key=key)
        return found


@page("GET", "HEAD", "POST")
def enqueue(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Offer a form for a job of a task, and enqueue it."""
    actor.require("enqueue_job", "enqueue_job")
    listed = queries.list_tasks(actor)
    tasks = {task["name"]: task for task in listed if task["may_enqueue"]}
    name = request.POST.get("task") or request.GET.get("task") or ""
    actor.require_call(name, "enqueue_job")
    values: dict[str, Any] = {"title": _("Enqueue a job"), "tasks": tasks, "name": name}
    if name not in tasks:
        return draw(request, actor, "enqueue.html", values)
    form = EnqueueForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            arguments = form.arguments()
            handle = operations.enqueue_job(actor, name, **arguments, **form.options())
        except _REFUSED as error:
            form.add_error(None, f"{error}.")
        else:
            told = _("Enqueued.")
            if handle.is_duplicate:
                told = _("This job holds the same unique key: nothing was enqueued.")
            return go_back(request, link("job", handle.id), told)
    values |= {"form": form, "task": tasks[name]}
    return draw(request, actor, "enqueue.html", values)


@page("GET", "HEAD", "POST")
def edit_job(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    """Offer a form with what may be changed of a waiting job, and change it."""
    actor.require("edit_job", "edit_job")
    job = queries.get_job(actor, job_id)
    initial = {
        **arguments_of(job),
        **{name: job[name] for name in ("queue", "priority", "max_retries")},
        "timeout": job["timeout"],
        "run_at": moment(job["run_at"]),
        "deadline": moment(job["deadline_at"]),
        "tags": " ".join(job["tags"]),
    }
    form = EditForm(request.POST if request.method == "POST" else None, initial=initial)
    if form.is_valid():
        try:
            if options := form.options():
                operations.edit_job(actor, job_id, **options)
        except (*_REFUSED, NotFound) as error:
            form.add_error(None, f"{error}.")
        else:
            told = _("Changed.") if options else _("Nothing was changed.")
            return go_back(request, link("job", job_id), told)
    values = {
        "title": _("Edit a job"),
        "text": _("With a new queue, priority or time it goes behind what waits."),
        "button": _("Change it"),
    }
    return _form_page(request, actor, job, form, values)


@page("GET", "HEAD", "POST")
def replay_job(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    """Offer a form with an ended job's arguments, and enqueue one like it with them."""
    actor.require("retry_job", "replay_job")
    actor.require("edit_job", "replay_job")
    job = queries.get_job(actor, job_id)
    data = request.POST if request.method == "POST" else None
    form = ArgumentsForm(data, initial=arguments_of(job))
    if form.is_valid():
        try:
            given = form.arguments() if form.has_changed() else {}
            new_id = operations.replay_job(actor, job_id, **given)
        except _REFUSED as error:
            form.add_error(None, f"{error}.")
        else:
            told = format_html(_("This is the replay of {}."), job_link(job_id))
            return go_back(request, link("job", new_id), told)
    values = {
        "title": _("Replay with other arguments"),
        "text": _("A new job of the same task is enqueued; this one stays as it is."),
        "button": _("Replay it"),
    }
    return _form_page(request, actor, job, form, values)


def _form_page(
    request: HttpRequest,
    actor: Actor,
    job: Mapping[str, Any],
    form: forms.Form,
    values: Mapping[str, Any],
) -> HttpResponse:
    is_masked = has_mask(job)
    known = {**values, "job": job, "form": form, "is_masked": is_masked}
    return draw(request, actor, "job_form.html", known)


def arguments_of(called: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a form starts from: none where some are not shown.

    A mask must not be taken for a value; all of them are given anew, or none.
    """
    if has_mask(called):
        return {}
    return {name: called[name] for name in _ARGUMENTS}


def has_mask(called: Mapping[str, Any]) -> bool:
    """Tell whether some of the arguments of a job or schedule are not shown."""
    return any(_holds_mask(called[name]) for name in _ARGUMENTS)


def _holds_mask(document: Any) -> bool:
    if isinstance(document, dict):
        return any(map(_holds_mask, document.values()))
    if isinstance(document, list):
        return any(map(_holds_mask, document))
    return document in (MASK, CUT)


def moment(text: str | None) -> Any:
    return None if text is None else parse_datetime(text)

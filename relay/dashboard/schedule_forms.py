"""Forms: a new schedule, and one of the database edited; code declares its own."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID
from zoneinfo import available_timezones

from django import forms
from django.core.exceptions import ValidationError
from django.db import DataError
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from relay import operations, queries
from relay.conf import get_settings
from relay.dashboard.access import page
from relay.dashboard.asking import go_back
from relay.dashboard.drawing import draw, link
from relay.dashboard.job_forms import (
    WHEN,
    ArgumentsForm,
    InstantField,
    arguments_of,
    has_mask,
    moment,
    seconds_field,
)
from relay.exceptions import Conflict, NotFound
from relay.models import CatchUp, Overlap, Schedule
from relay.operations import Actor
from relay.tasks import listed_tasks

__all__ = ["edit_schedule", "new_schedule"]

# Columns by the field that says them, where the names differ.
_SPANS: Final = {
    **{"every": "every_ms", "spread": "spread_ms"},
    **{"success_within": "success_within_ms", "catch_up_window": "catch_up_window_ms"},
}
_COLUMNS: Final = {**_SPANS, "kwargs": "args"}
_FIELDS: Final = {column: field for field, column in _SPANS.items()}
# As they stand in the row.
_TIMES: Final = ("once_at", "starts_at", "ends_at")
_PLAIN: Final = (
    *("name", "task", "cron", "timezone", "catch_up", "overlap", "priority"),
    *_TIMES,
)


class LinesField(forms.CharField):
    """Lines; a form ends them its own way."""

    def to_python(self, value: Any) -> str:
        return (super().to_python(value) or "").replace("\r\n", "\n")


class ScheduleForm(ArgumentsForm):
    """When a schedule is due, and what it enqueues."""

    name = forms.CharField(label=gettext_lazy("Name"))
    task = forms.CharField(
        label=gettext_lazy("Task"), widget=forms.TextInput(attrs={"list": "tasks"})
    )
    cron = forms.CharField(
        required=False,
        label=gettext_lazy("Cron expression"),
        help_text=gettext_lazy("Five fields; or give an interval."),
    )
    every = seconds_field(gettext_lazy("Interval in seconds"))
    once_at = InstantField(
        required=False, label=gettext_lazy("Or once, at"), help_text=WHEN
    )
    timezone = forms.CharField(
        label=gettext_lazy("Time zone"),
        initial="UTC",
        widget=forms.TextInput(attrs={"list": "zones"}),
    )
    queue = forms.CharField(
        required=False, label=gettext_lazy("Queue; empty for the task's")
    )
    priority = forms.IntegerField(
        required=False, label=gettext_lazy("Priority; empty for the task's")
    )
    catch_up = forms.ChoiceField(
        choices=[
            (CatchUp.LATEST, gettext_lazy("the latest")),
            (CatchUp.ALL, gettext_lazy("all of them")),
            (CatchUp.NONE, gettext_lazy("none of them")),
        ],
        initial=CatchUp.LATEST,
        label=gettext_lazy("Missed runs that are caught up"),
    )
    overlap = forms.ChoiceField(
        choices=[
            (Overlap.ALLOW, gettext_lazy("the next one runs beside it")),
            (Overlap.SKIP, gettext_lazy("the next one is left out")),
            (Overlap.QUEUE, gettext_lazy("the next one waits")),
            (Overlap.CANCEL, gettext_lazy("it is cancelled")),
        ],
        initial=Overlap.ALLOW,
        label=gettext_lazy("While an earlier run has not ended"),
    )
    catch_up_window = seconds_field(
        gettext_lazy("Missed runs are caught up, so many seconds back")
    )
    starts_at = InstantField(required=False, label=gettext_lazy("Not before"))
    ends_at = InstantField(required=False, label=gettext_lazy("Not after"))
    spread = seconds_field(gettext_lazy("Each run up to so many seconds later"))
    success_within = seconds_field(
        gettext_lazy("Warn after so many seconds without a success")
    )
    excluded = LinesField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        label=gettext_lazy("Left out"),
        help_text=gettext_lazy(
            "One a line, in the time zone: 2026-12-25, 2026-12-24/2027-01-06, or an "
            "expression of five fields."
        ),
    )
    field_order = (
        *("name", "task", "cron", "every", "once_at", "timezone", "queue"),
        *("priority", "catch_up", "catch_up_window", "overlap", "starts_at"),
        *("ends_at", "spread", "success_within", "excluded", "args", "kwargs"),
    )

    def columns(self) -> dict[str, Any]:
        """Return the values of the columns that were changed."""
        given = self.cleaned_data
        values = {
            **{name: given[name] for name in _PLAIN},
            **{_SPANS[name]: _milliseconds(given[name]) for name in _SPANS},
            **{name: given[name] or None for name in ("queue", "excluded")},
            "args": {"args": given["args"], "kwargs": given["kwargs"]},
        }
        if values["catch_up_window_ms"] is None:  # which every schedule has
            del values["catch_up_window_ms"]
        changed = {_COLUMNS.get(name, name) for name in self.changed_data}
        return {name: value for name, value in values.items() if name in changed}

    def refuse(self, error: ValidationError) -> None:
        """Say at each field why the schedule cannot be kept."""
        for name, reasons in error.message_dict.items():
            field = _FIELDS.get(name, name)
            if field in self.fields:
                self.add_error(field, reasons)
            else:
                self.add_error(None, [f"{name}: {reason}" for reason in reasons])


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1_000)


@page("GET", "HEAD", "POST")
def new_schedule(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Offer a form for a schedule, and add it."""
    for permission in ("manage_schedule", "enqueue_job"):
        actor.require(permission, "create_schedule")
    form = ScheduleForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            made = operations.create_schedule(actor, Schedule(**form.columns()))
        except ValidationError as error:
            form.refuse(error)
        except Conflict as error:
            form.add_error("name", f"{error}.")
        else:
            return go_back(request, link("schedule", made.name), _("Added."))
    values = {"title": _("Add a schedule"), "form": form, "button": _("Add it")}
    return _form_page(request, actor, values, link("schedules"))


@page("GET", "HEAD", "POST")
def edit_schedule(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    """Offer a form with a schedule, and save what was changed."""
    actor.require("manage_schedule", "edit_schedule")
    found = queries.get_schedule(actor, name)
    values: dict[str, Any] = {**found}
    initial = {
        **{each: values[each] for each in (*_PLAIN, *_SPANS)},
        **{each: moment(values[each]) for each in _TIMES},
        **{each: values[each] or "" for each in ("cron", "queue", "excluded")},
        **arguments_of(found),
    }
    data = request.POST if request.method == "POST" else None
    form = ScheduleForm(data, initial=initial)
    if form.is_valid():
        try:
            new_name = _save(actor, UUID(found["id"]), form.columns())
        except ValidationError as error:
            form.refuse(error)
        except (Conflict, NotFound) as error:
            form.add_error(None, f"{error}.")
        else:
            return go_back(request, link("schedule", new_name), _("Changed."))
    values = {
        "title": _("Edit a schedule"),
        "form": form,
        "button": _("Change it"),
        "schedule": found,
        "is_masked": has_mask(found),
    }
    return _form_page(request, actor, values, link("schedule", name))


def _save(actor: Actor, schedule_id: UUID, columns: dict[str, Any]) -> str:
    rows = Schedule.objects.using(get_settings().database).filter(pk=schedule_id)
    try:
        schedule = rows.first()
    except DataError as error:  # a time that Python cannot hold
        raise Conflict(f"the schedule cannot be read: {error}") from error
    if schedule is None:
        raise NotFound(f"schedule {schedule_id} does not exist")
    for name, value in columns.items():
        setattr(schedule, name, value)
    operations.edit_schedule(actor, schedule, columns.keys())
    return schedule.name


def _form_page(
    request: HttpRequest, actor: Actor, values: dict[str, Any], back: str
) -> HttpResponse:
    zones = sorted(available_timezones())
    tasks = list(filter(actor.may_call, listed_tasks()))
    known = {**values, "zones": zones, "tasks": tasks, "back": back}
    return draw(request, actor, "schedule_form.html", known)

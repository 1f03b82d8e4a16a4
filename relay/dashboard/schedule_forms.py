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
from relay.conf import LONGEST, get_settings
from relay.dashboard.access import page
from relay.dashboard.asking import go_back
from relay.dashboard.drawing import draw, link
from relay.dashboard.job_forms import ArgumentsForm, arguments_of, has_mask
from relay.exceptions import Conflict, NotFound
from relay.models import CatchUp, Overlap, Schedule
from relay.operations import Actor
from relay.tasks import listed_tasks

__all__ = ["edit_schedule", "new_schedule"]

# Columns by the field that says them, where the names differ.
_COLUMNS: Final = {"every": "every_ms", "kwargs": "args"}
_FIELDS: Final = {"every_ms": "every"}


class ScheduleForm(ArgumentsForm):
    """When a schedule is due, and what it enqueues; the admin's form has the rest."""

    name = forms.CharField(label=gettext_lazy("Name"))
    task = forms.CharField(
        label=gettext_lazy("Task"), widget=forms.TextInput(attrs={"list": "tasks"})
    )
    cron = forms.CharField(
        required=False,
        label=gettext_lazy("Cron expression"),
        help_text=gettext_lazy("Five fields; or give an interval."),
    )
    every = forms.FloatField(
        required=False,
        min_value=0,
        max_value=LONGEST.total_seconds(),
        label=gettext_lazy("Interval in seconds"),
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
    field_order = (
        *("name", "task", "cron", "every", "timezone", "queue", "priority"),
        *("catch_up", "overlap", "args", "kwargs"),
    )

    def columns(self) -> dict[str, Any]:
        """Return the values of the columns that were changed."""
        given = self.cleaned_data
        every = given["every"]
        values = {
            **{name: given[name] for name in ("name", "task", "cron", "timezone")},
            **{name: given[name] for name in ("catch_up", "overlap", "priority")},
            "queue": given["queue"] or None,
            "every_ms": None if every is None else round(every * 1_000),
            "args": {"args": given["args"], "kwargs": given["kwargs"]},
        }
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


@page("GET", "HEAD", "POST")
def new_schedule(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Offer a form for a schedule, and add it."""
    actor.require("manage_schedule", "create_schedule")
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
    names = ("name", "task", "timezone", "catch_up", "overlap", "priority", "every")
    initial = {
        **{each: dict(found)[each] for each in names},
        **{"cron": found["cron"] or "", "queue": found["queue"] or ""},
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

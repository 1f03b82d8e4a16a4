"""Schedules in the admin: edit, enable, run now, look ahead and back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from relay import operations
from relay.admin.acting import Tool
from relay.admin.lists import NOTHING, RelayAdmin, actor_of, moment, showing
from relay.admin.schedule_form import (
    SPANS,
    ArgumentsField,
    ScheduleForm,
    SpanField,
    as_shown,
    as_span,
)
from relay.exceptions import Conflict, NotAllowed, NotFound, ScheduleError
from relay.models import Occurrence, OccurrenceState, Schedule, ScheduleSource
from relay.queries.reading import SHOWN_CHARACTERS, clamped, pretty
from relay.redaction import conceal, redact
from relay.scheduler.expression import parse
from relay.scheduler.lateness import Lateness, read_lateness
from relay.scheduler.preview import Run, preview
from relay.scheduler.words import in_words

__all__ = ["ScheduleAdminMixin"]

NEXT_FIRES: Final = 10
# Occurrences shown on a schedule's page, of so many that are looked at.
LAST_SHOWN: Final = 20
LAST_LOOKED_AT: Final = 1_000
MOST_AT_ONCE: Final = 100

_WHEN: Final = (
    "cron",
    "seconds",
    "every_ms",
    "once_at",
    "timezone",
    "starts_at",
    "ends_at",
    "excluded",
    "spread_ms",
)
_WHAT: Final = ("task", "args", "queue", "priority")
_LATE: Final = ("overlap", "catch_up", "catch_up_window_ms", "success_within_ms")

# What @cron says; the row says whether it is enabled.
_OWNED_BY_CODE: Final = ("name", *_WHAT, *_WHEN, *_LATE)

_SHOWN_OF_OCCURRENCE: Final = ("id", "state", "outcome", "reason", "count", "job_id")

# Of the times, those that a form edits.
_EDITED_TIMES: Final = ("once_at", "starts_at", "ends_at")


_HELP: Final = {
    "cron": "Five fields, or with seconds six; or give an interval, or one instant.",
    "every_ms": "As 45 (seconds), 10:00 or 06:00:00: counted from its start, or from "
    "1970-01-01 00:00 UTC.",
    "once_at": "Due this once.",
    "excluded": "One a line: 2026-12-25, 2026-12-24/2027-01-06, or an expression of "
    "five fields such as * * 25 12 *. In the schedule's time zone.",
    "spread_ms": "Each run comes so much later at most, always by the same.",
    "success_within_ms": "Reported if no job has completed for longer.",
    "catch_up_window_ms": "How far back missed runs are caught up.",
    "overlap": "While an earlier run has not ended.",
}


def _describe(lateness: Lateness) -> str | None:
    second = timedelta(seconds=1)
    if lateness.is_late:
        return f"late by {lateness.late_by // second * second}"
    if lateness.is_unsuccessful:
        return f"no success for {lateness.unsuccessful_for // second * second}"
    return None


def _line(run: Run) -> str:
    text = (
        f"{run.local:%Y-%m-%d %H:%M:%S} {run.local.tzinfo} "
        f"({run.planned_at:%Y-%m-%d %H:%M:%S} UTC)"
    )
    if run.starts_at != run.planned_at:
        text += f", spread to {run.starts_at.astimezone(run.local.tzinfo):%H:%M:%S}"
    return f"{text}, {run.mark}" if run.mark else text


def _became(row: Occurrence) -> str:
    text = row.outcome or row.state
    if row.count > 1:
        text += f" {row.count:,} times"
    return f"{text}: {row.reason}" if row.reason else text


class ScheduleAdminMixin(RelayAdmin):
    """One schedule a line. What code declares is edited in the code."""

    view_permission = "view_schedule"
    buttons = {  # noqa: RUF012 - never written
        "run_now": "Run now",
        "enable": "Resume",
        "disable": "Pause",
    }
    form = ScheduleForm
    formfield_overrides = {  # noqa: RUF012 - never written
        models.JSONField: {"form_class": ArgumentsField}
    }
    large_columns = ("args",)
    page_annotations = {"shown_args": pretty("args")}  # noqa: RUF012 - never written

    list_display = (
        "name",
        "task",
        "when",
        "timezone",
        "enabled",
        "source",
        "next_due_at",
        "last_due_at",
        "last_success_at",
        "trouble",
    )
    actions = ("run_now", "enable", "disable")
    fieldsets = (
        (None, {"fields": ("name", "enabled", "source", "trouble")}),
        ("When", {"fields": (*_WHEN, "words", "next_fires")}),
        ("What", {"fields": _WHAT}),
        (
            "Late, missed and overlapping runs",
            {"fields": (*_LATE, "latest", "not_run")},
        ),
        (
            "Times",
            {
                "fields": (
                    "next_due_at",
                    "waiting_at",
                    "last_due_at",
                    "last_success_at",
                    "finished_at",
                    "created_at",
                )
            },
        ),
    )
    _fieldsets_to_add = (
        (None, {"fields": ("name", "enabled")}),
        ("When", {"fields": _WHEN}),
        ("What", {"fields": _WHAT}),
        ("Late, missed and overlapping runs", {"fields": _LATE}),
    )
    _shown_only = (
        "arguments",
        "source",
        "trouble",
        "words",
        "next_fires",
        "latest",
        "not_run",
        "next_due_at",
        "waiting_at",
        "last_due_at",
        "last_success_at",
        "finished_at",
        "created_at",
    )

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("name",)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        schedule = super().get_object(request, object_id, from_field)
        if schedule is not None:
            is_shown = actor_of(request).may("view_payload")
            schedule.told_args = (redact if is_shown else conceal)(schedule.shown_args)
            schedule.hides_args = (
                schedule.told_args != schedule.shown_args
                or len(schedule.shown_args) > SHOWN_CHARACTERS
            )
        return schedule

    def get_fieldsets(self, request: HttpRequest, obj: Schedule | None = None) -> Any:
        """Leave out what a schedule has only once it is there."""
        if obj is None:
            return self._fieldsets_to_add
        shown = super().get_fieldsets(request, obj)
        if obj.source == ScheduleSource.CODE:
            return [
                (title, {"fields": as_shown(options["fields"])})
                for title, options in shown
            ]
        # Here those times are edited.
        edited: dict[Any, str] = {self._moments[name]: name for name in _EDITED_TIMES}
        if not self.has_change_permission(request, obj):
            edited["args"] = "arguments"  # for who may see them
        return [
            (title, {"fields": tuple(edited.get(f, f) for f in options["fields"])})
            for title, options in shown
        ]

    def get_readonly_fields(
        self, request: HttpRequest, obj: Schedule | None = None
    ) -> tuple[Any, ...]:
        if obj is not None and obj.source == ScheduleSource.CODE:
            return as_shown(self.shown(self._shown_only + _OWNED_BY_CODE))
        return self.shown(self._shown_only)

    def formfield_for_dbfield(
        self, db_field: models.Field[Any, Any], request: HttpRequest, **kwargs: Any
    ) -> forms.Field | None:
        if db_field.name in SPANS:
            label = SPANS[db_field.name].capitalize()
            return SpanField(
                label=label,
                required=not db_field.blank,
                initial=db_field.get_default(),
                help_text=_HELP[db_field.name],
            )
        kwargs["help_text"] = _HELP.get(db_field.name, "")
        if isinstance(db_field, models.TextField) and not db_field.choices:
            if db_field.name != "excluded":
                kwargs["widget"] = AdminTextInputWidget
            if db_field.null:
                kwargs["empty_value"] = None
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def is_possible(self, action: str, row: Schedule) -> bool:
        return {"enable": not row.enabled, "disable": row.enabled}.get(action, True)

    def tools(self, request: HttpRequest, row: Any) -> list[Tool]:
        found = super().tools(request, row)
        if operations.may_have_run(actor_of(request), row.task, row.queue):
            return found
        return [tool for tool in found if tool.action != "run_now"]

    def has_manage_permission(self, request: HttpRequest) -> bool:
        return actor_of(request).may("manage_schedule")

    def has_run_permission(self, request: HttpRequest) -> bool:
        return actor_of(request).may("run_schedule")

    def has_add_permission(self, request: HttpRequest) -> bool:
        may_enqueue = actor_of(request).may("enqueue_job")
        return may_enqueue and self.has_manage_permission(request)

    def has_change_permission(
        self, request: HttpRequest, obj: Schedule | None = None
    ) -> bool:
        return self.has_manage_permission(request)

    def has_delete_permission(
        self, request: HttpRequest, obj: Schedule | None = None
    ) -> bool:
        if obj is not None and obj.source == ScheduleSource.CODE:
            return False  # a sync would make it again
        return self.has_manage_permission(request)

    def save_model(
        self, request: HttpRequest, obj: Schedule, form: Any, change: bool
    ) -> None:
        actor = actor_of(request)
        if change:
            operations.edit_schedule(actor, obj, form.changed_data)
        else:
            operations.create_schedule(actor, obj)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> HttpResponse:
        try:
            return super().changeform_view(request, object_id, *args, **kwargs)
        except NotAllowed as error:  # for what the task or the queue asks for
            raise PermissionDenied(str(error)) from error
        except (Conflict, NotFound) as error:  # since the form was checked
            self.message_user(request, f"Nothing was saved: {error}.", messages.ERROR)
            return HttpResponseRedirect(self.url_of("changelist"))

    def delete_model(self, request: HttpRequest, obj: Schedule) -> None:
        operations.delete_schedule(actor_of(request), obj.pk)

    # --- columns ---------------------------------------------------------------------

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        found = super().get_changelist_instance(request)
        lateness = {row.id: row for row in read_lateness(using=self.alias)}
        for schedule in found.result_list:
            schedule.lateness = lateness.get(schedule.pk)
        return found

    @admin.display(description="when")
    def when(self, schedule: Schedule) -> str:
        if schedule.cron:
            return schedule.cron
        if schedule.every_ms is not None:
            return f"every {as_span(schedule.every_ms)}"
        return "once"

    @admin.display(description="arguments")
    def arguments(self, schedule: Any) -> SafeString | str:
        return showing(schedule.told_args)

    @admin.display(description="trouble")
    def trouble(self, schedule: Schedule) -> str | None:
        """Why it cannot be kept, how late it is, how long it has not succeeded."""
        if schedule.last_error:
            return schedule.last_error
        if hasattr(schedule, "lateness"):
            lateness = schedule.lateness
        else:
            rows = read_lateness(using=self.alias)
            lateness = next((row for row in rows if row.id == schedule.pk), None)
        return None if lateness is None else _describe(lateness)

    @admin.display(description="in words")
    def words(self, schedule: Schedule) -> str | None:
        if not schedule.cron:
            return self.when(schedule)
        hash_id = str(schedule.pk)
        try:
            spec = parse(schedule.cron, seconds=schedule.seconds, hash_id=hash_id)
        except ScheduleError as error:
            return str(error)
        return in_words(spec)

    @admin.display(description=f"next {NEXT_FIRES} runs")
    def next_fires(self, schedule: Schedule) -> SafeString | str | None:
        try:
            runs = preview(schedule, now=timezone.now(), limit=NEXT_FIRES)
        except (ScheduleError, TypeError, AttributeError) as error:
            return str(error)
        if not runs:
            return "none: nothing is due any more"
        return format_html_join("", "<div>{}</div>", ((_line(run),) for run in runs))

    @admin.display(description=f"latest {LAST_SHOWN} occurrences")
    def latest(self, schedule: Schedule) -> SafeString | str:
        return self._occurrences(schedule, self._latest(schedule)[:LAST_SHOWN])

    @admin.display(description="missed and skipped")
    def not_run(self, schedule: Schedule) -> SafeString | str:
        latest = self._latest(schedule).values("pk")[:LAST_LOOKED_AT]
        rows = self._latest(schedule).filter(
            pk__in=latest, state__in=(OccurrenceState.MISSED, OccurrenceState.SKIPPED)
        )
        return self._occurrences(schedule, rows[:LAST_SHOWN])

    def _latest(self, schedule: Schedule) -> models.QuerySet[Any]:
        # Index: relay_occurrence_once, from its end.
        rows = Occurrence.objects.using(self.alias).filter(schedule_id=schedule.pk)
        rows = rows.annotate(shown_at=clamped("due_at")).only(*_SHOWN_OF_OCCURRENCE)
        return rows.order_by("-due_at")

    def _occurrences(
        self, schedule: Schedule, rows: models.QuerySet[Any]
    ) -> SafeString | str:
        lines = format_html_join(
            "",
            "<div>{} {} {}</div>",
            ((moment(row.shown_at), _became(row), self._job(row)) for row in rows),
        )
        return lines or NOTHING

    def _job(self, occurrence: Occurrence) -> SafeString | str:
        job_id = occurrence.job_id
        return "" if job_id is None else self.link("job", job_id)

    # --- actions ---------------------------------------------------------------------

    @admin.action(description="Run selected schedules now", permissions=["run"])
    def run_now(
        self, request: HttpRequest, queryset: models.QuerySet[Schedule]
    ) -> None:
        schedules = self._selected(request, queryset)
        done: list[Schedule] = []
        for schedule in schedules or ():
            try:
                operations.run_schedule(actor_of(request), schedule.pk)
            except (NotAllowed, NotFound, ScheduleError) as error:
                self.message_user(request, f"{schedule.name}: {error}", messages.ERROR)
            else:
                done.append(schedule)
        if done:
            self.log_acts(request, done, "Schedule run now.")
            self.message_user(request, f"{len(done):,} enqueued.", messages.SUCCESS)

    @admin.action(description="Resume selected schedules", permissions=["manage"])
    def enable(self, request: HttpRequest, queryset: models.QuerySet[Schedule]) -> None:
        self._set_enabled(request, queryset, True)

    @admin.action(description="Pause selected schedules", permissions=["manage"])
    def disable(
        self, request: HttpRequest, queryset: models.QuerySet[Schedule]
    ) -> None:
        self._set_enabled(request, queryset, False)

    def _set_enabled(
        self, request: HttpRequest, queryset: models.QuerySet[Schedule], enabled: bool
    ) -> None:
        schedules = self._selected(request, queryset)
        if schedules is None:
            return
        act = operations.resume_schedules if enabled else operations.pause_schedules
        changed = act(actor_of(request), [schedule.pk for schedule in schedules])
        word = "resumed" if enabled else "paused"
        rows = [schedule for schedule in schedules if schedule.pk in changed]
        self.log_acts(request, rows, f"Schedule {word}.")
        message = f"{len(rows):,} {word}."
        if skipped := len(schedules) - len(rows):
            reason = "not paused" if enabled else "paused already"
            message += f" {skipped:,} skipped: {reason}."
        self.message_user(request, message, messages.SUCCESS)

    def _selected(
        self, request: HttpRequest, queryset: models.QuerySet[Schedule]
    ) -> list[Schedule] | None:
        ids = self.selected_ids(request, queryset, limit=MOST_AT_ONCE)
        if ids is None:
            return None
        rows = Schedule.objects.using(self.alias).filter(pk__in=ids)
        return list(rows.only("id", "name").order_by("name"))

"""Schedules and their occurrences in the admin: edit, enable, run now, look back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models
from django.forms.fields import InvalidJSONInput
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from relay.admin.lists import RelayAdmin, actor_of
from relay.conf import get_settings
from relay.exceptions import ScheduleError
from relay.models import Occurrence, Schedule, ScheduleSource
from relay.scheduler import acts
from relay.scheduler.cron import load_zone, occurrences, parse

__all__ = ["OccurrenceAdmin", "ScheduleAdmin"]

NEXT_FIRES: Final = 5
MOST_AT_ONCE: Final = 100
# Schedules offered to filter occurrences by.
MOST_OFFERED: Final = 1_000

# What @cron says; the row says whether it is enabled.
_OWNED_BY_CODE: Final = (
    "name",
    "task",
    "args",
    "queue",
    "priority",
    "cron",
    "seconds",
    "timezone",
    "catch_up",
    "catch_up_window_ms",
)

if TYPE_CHECKING:
    _ScheduleForm = forms.ModelForm[Schedule]
else:
    _ScheduleForm = forms.ModelForm


class ArgumentsField(forms.JSONField):
    """Refuses, where Django fails, what cannot be read; shows again what was typed."""

    def to_python(self, value: Any) -> Any:
        try:
            return super().to_python(value)
        except (RecursionError, ValueError) as error:
            raise ValidationError(
                "Too deep, or with too long a number, to be read.", code="unreadable"
            ) from error

    def bound_data(self, data: Any, initial: Any) -> Any:
        # Django would read it, and write it anew: a lone surrogate cannot be sent.
        return data if data is None or self.disabled else InvalidJSONInput(data)


class ScheduleForm(_ScheduleForm):
    """Shows the model's reasons; those about fields it leaves out, above the form."""

    def add_error(self, field: str | None, error: Any) -> None:
        if field is None and hasattr(error, "error_dict"):
            for name, reasons in error.error_dict.items():
                if name == NON_FIELD_ERRORS or name in self.fields:
                    super().add_error(name, reasons)
                else:
                    text = "; ".join(ValidationError(reasons).messages)
                    super().add_error(None, f"{name}: {text}")
        else:
            super().add_error(field, error)


@admin.register(Schedule)
class ScheduleAdmin(RelayAdmin):
    """One schedule a line. What code declares is edited in the code."""

    form = ScheduleForm
    formfield_overrides = {  # noqa: RUF012 - never written
        models.JSONField: {"form_class": ArgumentsField}
    }
    large_columns = ("args",)

    list_display = (
        "name",
        "task",
        "cron",
        "timezone",
        "enabled",
        "source",
        "next_due_at",
        "last_due_at",
        "last_error",
    )
    actions = ("run_now", "enable", "disable")
    fieldsets = (
        (None, {"fields": ("name", "enabled", "source", "last_error")}),
        ("When", {"fields": ("cron", "seconds", "timezone", "next_fires")}),
        ("What", {"fields": ("task", "args", "queue", "priority")}),
        ("What was missed", {"fields": ("catch_up", "catch_up_window_ms")}),
        ("Times", {"fields": ("next_due_at", "last_due_at", "created_at")}),
    )
    _fieldsets_to_add = (
        (None, {"fields": ("name", "enabled")}),
        ("When", {"fields": ("cron", "seconds", "timezone")}),
        *fieldsets[2:4],
    )
    _shown_only = (
        "source",
        "last_error",
        "next_fires",
        "next_due_at",
        "last_due_at",
        "created_at",
    )

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("name",)

    def get_fieldsets(self, request: HttpRequest, obj: Schedule | None = None) -> Any:
        """Leave out what a schedule has only once it is there."""
        if obj is None:
            return self._fieldsets_to_add
        return super().get_fieldsets(request, obj)

    def get_readonly_fields(
        self, request: HttpRequest, obj: Schedule | None = None
    ) -> tuple[Any, ...]:
        if obj is not None and obj.source == ScheduleSource.CODE:
            return self.shown(self._shown_only + _OWNED_BY_CODE)
        return self.shown(self._shown_only)

    def formfield_for_dbfield(
        self, db_field: models.Field[Any, Any], request: HttpRequest, **kwargs: Any
    ) -> forms.Field | None:
        if isinstance(db_field, models.TextField) and not db_field.choices:
            kwargs["widget"] = AdminTextInputWidget
            if db_field.null:
                kwargs["empty_value"] = None
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return admin.ModelAdmin.has_add_permission(self, request)

    def has_change_permission(
        self, request: HttpRequest, obj: Schedule | None = None
    ) -> bool:
        return admin.ModelAdmin.has_change_permission(self, request, obj)

    def has_delete_permission(
        self, request: HttpRequest, obj: Schedule | None = None
    ) -> bool:
        if obj is not None and obj.source == ScheduleSource.CODE:
            return False  # a sync would make it again
        return admin.ModelAdmin.has_delete_permission(self, request, obj)

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[Any], dict[str, int], set[str], list[str]]:
        """Name the schedules only: their occurrences may be millions."""
        return [str(schedule) for schedule in objs], {"schedules": len(objs)}, set(), []

    def save_model(
        self, request: HttpRequest, obj: Schedule, form: Any, change: bool
    ) -> None:
        # What the schedulers write to the row meanwhile stays as they wrote it.
        obj.save(
            using=self.alias,
            force_insert=not change,
            update_fields=form.changed_data if change else None,
        )

    @admin.display(description=f"next {NEXT_FIRES} fires")
    def next_fires(self, schedule: Schedule) -> SafeString | str | None:
        if not schedule.cron:
            return None
        try:
            spec = parse(
                schedule.cron, seconds=schedule.seconds, hash_id=str(schedule.pk)
            )
            zone = load_zone(schedule.timezone)
        except ScheduleError as error:
            return str(error)
        fires = occurrences(spec, zone, after=timezone.now(), limit=NEXT_FIRES)
        return format_html_join(
            "",
            "<div>{} ({} UTC)</div>",
            (
                (
                    f"{fire.astimezone(zone):%Y-%m-%d %H:%M:%S} {schedule.timezone}",
                    f"{fire:%Y-%m-%d %H:%M:%S}",
                )
                for fire in fires
            ),
        )

    # --- actions ---------------------------------------------------------------------

    @admin.action(description="Run selected schedules now", permissions=["change"])
    def run_now(
        self, request: HttpRequest, queryset: models.QuerySet[Schedule]
    ) -> None:
        schedules = self._selected(request, queryset)
        done: list[Schedule] = []
        for schedule in schedules or ():
            try:
                acts.run_now(schedule.pk, actor=actor_of(request), using=self.alias)
            except ScheduleError as error:
                self.message_user(request, f"{schedule.name}: {error}", messages.ERROR)
            else:
                done.append(schedule)
        if done:
            self.log_acts(request, done, "Schedule run now.")
            self.message_user(request, f"{len(done):,} enqueued.", messages.SUCCESS)

    @admin.action(description="Enable selected schedules", permissions=["change"])
    def enable(self, request: HttpRequest, queryset: models.QuerySet[Schedule]) -> None:
        self._set_enabled(request, queryset, True)

    @admin.action(description="Disable selected schedules", permissions=["change"])
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
        changed = acts.set_enabled(
            [schedule.pk for schedule in schedules],
            enabled,
            actor=actor_of(request),
            using=self.alias,
        )
        word = "enabled" if enabled else "disabled"
        rows = [schedule for schedule in schedules if schedule.pk in changed]
        self.log_acts(request, rows, f"Schedule {word}.")
        message = f"{len(rows):,} {word}."
        if skipped := len(schedules) - len(rows):
            message += f" {skipped:,} skipped: {word} already."
        self.message_user(request, message, messages.SUCCESS)

    def _selected(
        self, request: HttpRequest, queryset: models.QuerySet[Schedule]
    ) -> list[Schedule] | None:
        ids = self.selected_ids(request, queryset, limit=MOST_AT_ONCE)
        if ids is None:
            return None
        rows = Schedule.objects.using(self.alias).filter(pk__in=ids)
        return list(rows.only("id", "name").order_by("name"))


class OfSchedule(admin.SimpleListFilter):
    """By schedule; the names come from the schedules' rows."""

    title = "schedule"
    parameter_name = "schedule"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        rows = Schedule.objects.using(get_settings().database).order_by("name")
        offered = rows.values_list("id", "name")[:MOST_OFFERED]
        return [(str(key), name) for key, name in offered]

    def queryset(
        self, request: HttpRequest, queryset: models.QuerySet[Occurrence]
    ) -> models.QuerySet[Occurrence]:
        value = self.value()
        if value is None:
            return queryset
        try:
            return queryset.filter(schedule_id=UUID(value))
        except ValueError as error:
            raise IncorrectLookupParameters(f"{value!r} is no id") from error


@admin.register(Occurrence)
class OccurrenceAdmin(RelayAdmin):
    """One due instant a line, the newest first."""

    filter_parameters = ("schedule",)

    list_display = ("due_at", "schedule_name", "state", "job_link", "count", "until_at")
    list_filter = (OfSchedule,)
    fields = (
        "schedule_name",
        "due_at",
        "state",
        "job_link",
        "count",
        "until_at",
        "created_at",
    )

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[Occurrence]:
        rows: models.QuerySet[Occurrence] = super().get_queryset(request)
        return rows.annotate(name_of_schedule=models.F("schedule__name"))

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        # relay_occurrence_once, from a schedule's last row; else the primary key.
        return ("-due_at",) if "schedule" in request.GET else ("-id",)

    @admin.display(description="schedule")
    def schedule_name(self, occurrence: Any) -> str:
        return str(occurrence.name_of_schedule)

    @admin.display(description="job")
    def job_link(self, occurrence: Occurrence) -> SafeString | str:
        return self.link("job", occurrence.job_id)

"""Due instants in the admin, and what became of them."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db import models
from django.http import HttpRequest
from django.utils.safestring import SafeString

from relay.admin.lists import RelayAdmin
from relay.conf import get_settings
from relay.ids import read_id
from relay.models import Occurrence, Schedule

__all__ = ["OccurrenceAdminMixin"]

# Schedules offered to filter occurrences by.
MOST_OFFERED: Final = 1_000


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
        schedule_id = read_id(value)
        if schedule_id is None:
            raise IncorrectLookupParameters(f"{value!r} is no id")
        return queryset.filter(schedule_id=schedule_id)


class OccurrenceAdminMixin(RelayAdmin):
    """One due instant a line, the newest first."""

    view_permission = "view_schedule"
    filter_parameters = ("schedule",)

    list_display = (
        "due_at",
        "schedule_name",
        "state",
        "outcome",
        "reason",
        "job_link",
        "count",
        "until_at",
    )
    list_filter = (OfSchedule,)
    fields = (
        "schedule_name",
        "due_at",
        "state",
        "outcome",
        "reason",
        "job_link",
        "window_start",
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

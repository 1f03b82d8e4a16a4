"""The record of acts in the admin: who did what, to what, from where and why."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db import models
from django.db.models.functions import Cast, Coalesce
from django.http import HttpRequest
from django.utils.safestring import SafeString

from relay import operations
from relay.admin.lists import RelayAdmin, showing
from relay.models import Audit
from relay.queries.reading import cut

__all__ = ["AuditAdminMixin"]

# What no index serves is looked for among this many of the newest rows.
NEWEST: Final = 100_000
_SUBJECTS: Final = (*("job", "queue", "worker", "schedule", "bulk", "token", "mark"),)
_SOURCES: Final = ("dashboard", "admin", "api", "cli", "system")


class _ChoiceFilter(admin.SimpleListFilter):
    """By a column whose values are known; among the newest rows."""

    @abstractmethod
    def choices_of(self) -> tuple[str, ...]:
        """Return what may stand in the column."""

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        return [(value, value.replace("_", " ")) for value in self.choices_of()]

    def queryset(
        self, request: HttpRequest, queryset: models.QuerySet[Audit]
    ) -> models.QuerySet[Audit]:
        value = self.value()
        if value is None:
            return queryset
        if value not in self.choices_of():
            raise IncorrectLookupParameters(f"{value!r} is no {self.title}")
        return queryset.filter(**{str(self.parameter_name): value})


class SubjectFilter(_ChoiceFilter):
    """By what an act was done to."""

    title = parameter_name = "subject"

    def choices_of(self) -> tuple[str, ...]:
        return _SUBJECTS


class OperationFilter(_ChoiceFilter):
    """By the act."""

    title = parameter_name = "operation"

    def choices_of(self) -> tuple[str, ...]:
        return tuple(sorted(operations.all_operations()))


class SourceFilter(_ChoiceFilter):
    """By the surface through which an act was asked for."""

    title = parameter_name = "source"

    def choices_of(self) -> tuple[str, ...]:
        return _SOURCES


class AuditAdminMixin(RelayAdmin):
    """One act on one thing a line, the newest first. Nobody changes any."""

    view_permission = "view_audit"
    large_columns = ("detail",)
    page_annotations = {  # noqa: RUF012 - never written
        "shown_detail": cut(Cast("detail", models.TextField()))
    }
    filter_parameters = ("subject", "operation", "source")

    list_display = (
        "at",
        "operation",
        "subject",
        "target",
        "actor",
        "source",
        "reason",
    )
    list_filter = (SubjectFilter, OperationFilter, SourceFilter)
    search_fields = ("target",)
    search_help_text = (
        "A job's, worker's, bulk operation's or token's id, or a queue's or "
        "schedule's name, all of it. "
        f"The filters alone look among the newest {NEWEST:,} rows."
    )
    fields = (
        "at",
        "operation",
        "subject",
        "target_link",
        "actor",
        "source",
        "reason",
        "request_id",
        "address",
        "detail_text",
    )

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-id",)

    def needs_bitmaps(self, request: HttpRequest) -> bool:
        return bool(request.GET.get("q", "").strip())

    def get_search_results(
        self, request: HttpRequest, queryset: models.QuerySet[Any], search_term: str
    ) -> tuple[models.QuerySet[Any], bool]:
        """Find what was done to the thing of this id or name; nothing else."""
        target = search_term.strip()
        if target:  # relay_audit_target_idx
            subject = request.GET.get("subject")
            subjects = [subject] if subject in _SUBJECTS else _SUBJECTS
            return queryset.filter(subject__in=subjects, target=target), False
        if any(name in request.GET for name in self.filter_parameters):
            newest = Audit.objects.using(self.alias).order_by("-id").values("id")
            edge = models.Subquery(newest[NEWEST : NEWEST + 1])
            first = Coalesce(edge, models.Value(0))
            return queryset.filter(pk__gte=first), False
        return queryset, False

    @admin.display(description="target")
    def target_link(self, act: Audit) -> SafeString | str:
        models_of = {"bulk": "bulkoperation", "token": "apitoken", "schedule": None}
        model = models_of.get(act.subject, act.subject)
        # Of schedules the name is on record, and their pages go by id.
        return act.target if model is None else self.link(model, act.target)

    @admin.display(description="detail")
    def detail_text(self, act: Any) -> SafeString | str:
        return showing(act.shown_detail)

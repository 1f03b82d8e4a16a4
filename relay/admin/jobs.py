"""Jobs in the admin: found by an index, shown with their past, acted on."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.db import connections, models
from django.http import HttpRequest

from relay.admin.acting import row_of_page
from relay.admin.export import JobExport
from relay.admin.job_editing import JobEditing
from relay.admin.job_page import JobPage
from relay.admin.lists import actor_of
from relay.conf import get_settings
from relay.ids import read_id
from relay.models import Job, JobState
from relay.operations import (
    QUALIFIERS,
    FilterError,
    JobFilter,
    from_parameters,
    quoted,
)
from relay.operations.job_filter import NEWEST
from relay.queries.reading import cut, pretty
from relay.tasks import known_queues, listed_tasks

__all__ = ["JobAdminMixin"]

# Names that a filter offers.
MOST_OFFERED: Final = 1_000
_WINDOWS: Final = {
    "1h": "last hour",
    "1d": "last 24 hours",
    "7d": "last 7 days",
    "30d": "last 30 days",
}
# Classes of errors that a filter offers: the most frequent of so many failed jobs.
MOST_CLASSES: Final = 20
# In one statement: a list takes at most six. Index: relay_job_failed_idx, from its end;
# none has the class.
OFFERED: Final = """
(SELECT 'queue', name FROM relay_queue LIMIT %(names)s)
UNION ALL
(SELECT 'error', error_class FROM (
    SELECT error_class FROM relay_job WHERE state = 'failed'
    ORDER BY id DESC LIMIT 1000
 ) AS newest
 WHERE error_class IS NOT NULL
 GROUP BY error_class ORDER BY count(*) DESC, error_class LIMIT %(classes)s)
"""
_LANGUAGE: Final = ("args.", '"', *(f"{name}:" for name in QUALIFIERS))


class _Offered(admin.SimpleListFilter):
    """What a link of the sidebar adds to the address; JobFilter reads it there."""

    def queryset(
        self, request: HttpRequest, queryset: models.QuerySet[Job]
    ) -> models.QuerySet[Job]:
        return queryset


class JobStateFilter(_Offered):
    """By state."""

    title = parameter_name = "state"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        return [(state.value, state.label) for state in JobState]


class QueueFilter(_Offered):
    """By queue; the names come from rows, settings and tasks, never from jobs."""

    title = parameter_name = "queue"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        names = {*_offered(request, "queue"), *known_queues()}
        return [(name, name) for name in sorted(names)]


class TaskFilter(_Offered):
    """By task; the names are those that this process knows, never from jobs."""

    title = parameter_name = "task"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        return [(name, name) for name in listed_tasks()[:MOST_OFFERED]]


class CreatedFilter(_Offered):
    """By when a job was enqueued."""

    title = parameter_name = "created"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        return list(_WINDOWS.items())


class ErrorFilter(_Offered):
    """By class of error: the most frequent among the newest failed jobs."""

    title = "error class"
    parameter_name = "error"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        return [(name, name) for name in _offered(request, "error")]


def _offered(request: HttpRequest, what: str) -> list[str]:
    """Return the names of queues or the classes of errors, read once a request."""
    found: list[tuple[str, str]] | None = getattr(request, "_relay_offered", None)
    if found is None:
        with connections[get_settings().database].cursor() as cursor:
            cursor.execute(OFFERED, {"names": MOST_OFFERED, "classes": MOST_CLASSES})
            found = cursor.fetchall()
        request._relay_offered = found  # type: ignore[attr-defined] # read once
    return [name for kind, name in found if kind == what]


def wanted_of(request: HttpRequest, term: str) -> JobFilter:
    """Return which jobs a list's address and search ask for.

    A search is an id, how a task's name begins, or a filter in the filter language.

    Raises:
        FilterError: something in it is no filter.
    """
    given = {
        name: quoted(request.GET[name])
        for name in ("state", "queue", "task", "error")
        if name in request.GET
    }
    if "created" in request.GET:
        given["age"] = "<" + request.GET["created"]
    if term.startswith(_LANGUAGE):
        given["q"] = term
    elif read_id(term) is not None:
        given["id"] = term
    elif term and "task" in given:  # both have to hold
        given["q"] = f"task:{quoted(f'{term}*')}"
    elif term:
        given["task"] = quoted(f"{term}*")
    return from_parameters(given)


def _term_of(request: HttpRequest) -> str:
    term = request.GET.get("q", "").strip()
    return "" if "\x00" in term else term  # the list says so by itself


class JobAdminMixin(JobEditing, JobExport, JobPage):
    """One job a line. What is done to one is an operation's act."""

    view_permission = "view_job"
    large_columns = (
        "unique_key",
        "error_message",
        "progress",
        "result",
        "tags",
        "meta",
        "args",
    )
    page_annotations = {  # noqa: RUF012 - never written
        "shown_args": pretty("args"),
        "shown_result": pretty("result"),
        "shown_progress": pretty("progress"),
        "shown_meta": pretty("meta"),
        "shown_tags": cut(
            models.Func(
                "tags",
                models.Value(", "),
                function="array_to_string",
                output_field=models.TextField(),
            )
        ),
        "shown_error": cut("error_message"),
    }
    filter_parameters = ("state", "queue", "task", "created", "error")

    list_display = (
        "id",
        "state",
        "task",
        "queue",
        "priority",
        "attempt",
        "created_at",
        "run_at",
        "finished_at",
        "error_class",
        "worker",
    )
    list_filter = (JobStateFilter, CreatedFilter, QueueFilter, TaskFilter, ErrorFilter)
    search_fields = ("id",)
    search_help_text = (
        "A job's id, how the name of its task begins, or a filter such as "
        "tag:import-7 error:ValueError finished:<2h. The states that wait, run or "
        f"failed are searched whole; otherwise the newest {NEWEST:,} jobs are."
    )
    fieldsets = (
        (None, {"fields": ("id", "task", "state", "queue", "priority")}),
        ("Arguments", {"fields": ("arguments_text",)}),
        (
            "Outcome",
            {"fields": ("result_text", "error_class", "error_text", "progress_text")},
        ),
        (
            "Times",
            {
                "fields": (
                    "created_at",
                    "run_at",
                    "started_at",
                    "finished_at",
                    "expires_at",
                    "deadline_at",
                )
            },
        ),
        (
            "Attempts",
            {
                "fields": (
                    "attempt",
                    "max_retries",
                    "failures",
                    "crashes",
                    "losses",
                    "timeout",
                    "worker",
                    "past_attempts",
                    "past_logs",
                    "past_steps",
                    "past_events",
                )
            },
        ),
        (
            "Belongs to",
            {
                "fields": (
                    "schedule",
                    "occurrence_at",
                    "original",
                    "tags_text",
                    "meta_text",
                )
            },
        ),
    )

    def filter_of(self, request: HttpRequest) -> JobFilter:
        return wanted_of(request, _term_of(request))

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        try:
            missing = self.filter_of(request).permissions
            missing -= {each for each in missing if actor_of(request).may(each)}
            if missing:
                raise FilterError(f"that takes the permission {', '.join(missing)}")
            return super().get_changelist_instance(request)
        except FilterError as error:
            self.message_user(request, f"{error}.", messages.ERROR)
            raise IncorrectLookupParameters(str(error)) from error

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        if row_of_page(request) is not None:  # whose address says nothing of a list
            return ("-id",)
        wanted = self.filter_of(request)
        # What an index without an order finds is sorted: by what has no index.
        return ("-created_at",) if wanted.needs_bitmaps else wanted.order

    def needs_bitmaps(self, request: HttpRequest) -> bool:
        return self.filter_of(request).needs_bitmaps

    def get_search_results(
        self, request: HttpRequest, queryset: models.QuerySet[Any], search_term: str
    ) -> tuple[models.QuerySet[Any], bool]:
        """Find what the whole address asks for: filters and search are one filter."""
        wanted = wanted_of(request, search_term.strip())
        return wanted.among(queryset, using=self.alias), False

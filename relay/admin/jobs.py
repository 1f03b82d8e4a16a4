"""Jobs in the admin: found by an index, shown with their past, acted on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.db import models
from django.db.models.functions import Cast, Coalesce
from django.http import HttpRequest
from django.utils.html import format_html

from relay import operations
from relay.admin.job_page import JobPage
from relay.admin.lists import StateFilter, actor_of
from relay.conf import get_settings
from relay.exceptions import ArgumentError, DecodeError, MissingKey, NotAllowed
from relay.models import Job, JobState, Queue
from relay.operations import Actor, ActReport, JobFilter, from_parameters, quoted
from relay.queries.reading import cut, pretty
from relay.tasks import known_queues

__all__ = ["JobAdmin"]

# What no index serves is looked for among this many of the newest jobs. Source:
# docs/reference/admin.md, "What is searched".
NEWEST: Final = 100_000
# Most jobs that one action changes inside the request; more become a bulk operation.
MOST_AT_ONCE: Final = operations.AT_ONCE
# The order each index gives, and no more: with it a list reads no more rows than it
# shows, also where half a million jobs are due at the same instant.
_NEWEST_FIRST: Final = ("-id",)
_ORDERS: Final = {
    "scheduled": ("run_at",),  # relay_job_due_idx
    "retrying": ("run_at",),  # relay_job_retrying_idx
    "queued": ("queue", "-priority", "ready_seq"),  # relay_job_ready_idx
    "running": ("queue", "worker_id"),  # relay_job_held_idx
    "completed": ("-finished_at", "-id"),  # relay_job_final_idx
    "failed": _NEWEST_FIRST,  # relay_job_failed_idx
    "cancelled": _NEWEST_FIRST,
}
# States of which there are so few, or of which an index is so well ordered, that a
# queue or a task is found among all their jobs.
_SEARCHED_WHOLE: Final = frozenset(
    {"scheduled", "retrying", "queued", "running", "failed", "cancelled"}
)


class JobStateFilter(StateFilter):
    """By a job's state, as the partial indexes say it."""

    states = JobState

    def queryset(
        self, request: HttpRequest, queryset: models.QuerySet[Job]
    ) -> models.QuerySet[Job]:
        if self.value() == JobState.QUEUED:
            # The condition of the index that lists them; no job has a key yet.
            queryset = queryset.filter(concurrency_key__isnull=True)
        return super().queryset(request, queryset)


class QueueFilter(admin.SimpleListFilter):
    """By queue; the names come from rows, settings and tasks, never from jobs."""

    title = "queue"
    parameter_name = "queue"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        rows = Queue.objects.using(get_settings().database)
        names = {*rows.values_list("name", flat=True)[:1_000], *known_queues()}
        return [(name, name) for name in sorted(names)]

    def queryset(
        self, request: HttpRequest, queryset: models.QuerySet[Job]
    ) -> models.QuerySet[Job]:
        queue = self.value()
        if queue is None:
            return queryset
        if "\x00" in queue:
            raise IncorrectLookupParameters("no queue's name holds a NUL")
        return queryset.filter(queue=queue)


def _uuid_of(term: str) -> UUID | None:
    try:
        return UUID(term)
    except ValueError:
        return None


def _tag_of(term: str) -> str | None:
    prefix, _, tag = term.partition(":")
    return tag.strip() if prefix == "tag" else None


def _is_windowed(request: HttpRequest, term: str) -> bool:
    """Tell whether no index serves what is asked for."""
    state = request.GET.get("state")
    if term and (_uuid_of(term) or _tag_of(term) is not None):
        return False
    if state == JobState.BLOCKED:
        return True
    is_narrowed = bool(term) or "queue" in request.GET
    return is_narrowed and state not in _SEARCHED_WHOLE


@admin.register(Job)
class JobAdmin(JobPage):
    """One job a line. Nothing is added, edited or deleted by hand."""

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
        "shown_tags": cut(Cast("tags", models.TextField())),
        "shown_error": cut("error_message"),
    }
    filter_parameters = ("state", "queue")

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
    )
    list_filter = (JobStateFilter, QueueFilter)
    search_fields = ("id",)
    search_help_text = (
        "A job's id, how the name of its task begins, or tag: and one of its tags. The "
        "states that wait, run or failed are searched whole; otherwise the newest "
        f"{NEWEST:,} jobs are, by task and by queue."
    )
    actions = ("cancel", "retry", "replay", "run_now")
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
                    "timeout_ms",
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

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        term = request.GET.get("q", "").strip()
        if _tag_of(term) is not None:
            return ("-created_at",)  # what relay_job_tags_idx finds is sorted
        if _is_windowed(request, term) or (term and _uuid_of(term)):
            return _NEWEST_FIRST
        return _ORDERS.get(request.GET.get("state", ""), _NEWEST_FIRST)

    def needs_bitmaps(self, request: HttpRequest) -> bool:
        return _tag_of(request.GET.get("q", "").strip()) is not None

    def get_search_results(
        self, request: HttpRequest, queryset: models.QuerySet[Any], search_term: str
    ) -> tuple[models.QuerySet[Any], bool]:
        """Find the id, the tag, or tasks whose name so begins; nothing else."""
        term = search_term.strip()
        job_id = _uuid_of(term)
        if job_id is not None:
            return queryset.filter(pk=job_id), False
        tag = _tag_of(term)
        if tag is not None:  # relay_job_tags_idx
            return queryset.filter(tags__contains=[tag]), False
        if term:
            queryset = queryset.filter(task__startswith=term)
        if _is_windowed(request, term):
            newest = Job.objects.using(self.alias).order_by("-id").values("id")
            edge = newest[NEWEST : NEWEST + 1]
            queryset = queryset.filter(
                pk__gte=Coalesce(models.Subquery(edge), models.Value(UUID(int=0)))
            )
        return queryset, False

    # --- actions ---------------------------------------------------------------------

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return actor_of(request).may("cancel_job")

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return actor_of(request).may("retry_job")

    @admin.action(description="Cancel selected jobs", permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: models.QuerySet[Job]) -> None:
        self._act(request, queryset, "cancel", operations.cancel_jobs, "cancelled")

    @admin.action(
        description="Retry selected jobs (the same job again)", permissions=["retry"]
    )
    def retry(self, request: HttpRequest, queryset: models.QuerySet[Job]) -> None:
        done = "made ready again"
        self._act(request, queryset, "retry", operations.retry_jobs, done)

    @admin.action(
        description="Replay selected jobs (a new job like it)", permissions=["retry"]
    )
    def replay(self, request: HttpRequest, queryset: models.QuerySet[Job]) -> None:
        self._act(request, queryset, "replay", operations.replay_jobs, "replayed")

    @admin.action(description="Run selected jobs now", permissions=["retry"])
    def run_now(self, request: HttpRequest, queryset: models.QuerySet[Job]) -> None:
        self._act(request, queryset, "run_now", operations.run_jobs_now, "made ready")

    def _act(
        self,
        request: HttpRequest,
        queryset: models.QuerySet[Job],
        action: str,
        act: Callable[[Actor, Iterable[UUID]], ActReport],
        done: str,
    ) -> None:
        if self.is_all_of_more(request, queryset, limit=MOST_AT_ONCE):
            self._start_bulk(request, action)
            return
        ids = self.selected_ids(request, queryset, limit=MOST_AT_ONCE)
        if ids is None:
            return
        try:
            report = act(actor_of(request), ids)
        except (DecodeError, MissingKey) as error:  # of arguments that are encrypted
            self.message_user(request, f"Nothing was done: {error}.", messages.ERROR)
            return
        self._tell(request, report, done)

    def _tell(self, request: HttpRequest, report: ActReport, done: str) -> None:
        message = ""
        for ids_of, what in ((report.done, done), (report.asked, "asked to stop")):
            if ids_of:
                rows = Job.objects.using(self.alias).filter(pk__in=ids_of)
                self.log_acts(request, list(rows.only("id", "task")), f"Job {what}.")
            if ids_of or what == done:
                message += f" {_jobs(len(ids_of))} {what}."
        if report.skipped:
            reasons = Counter(skip.reason for skip in report.skipped)
            listed = ", ".join(_counted(n, why) for why, n in sorted(reasons.items()))
            message += f" {_jobs(len(report.skipped))} skipped: {listed}."
        level = messages.WARNING if report.skipped else messages.SUCCESS
        self.message_user(request, message.strip(), level)

    def _start_bulk(self, request: HttpRequest, action: str) -> None:
        """Act on all jobs of the list, however many, in the background."""
        try:
            bulk = operations.start_bulk(actor_of(request), action, _filter_of(request))
        except (ArgumentError, NotAllowed) as error:
            self.message_user(request, f"Nothing was done: {error}.", messages.ERROR)
            return
        self.log_acts(request, [bulk], "Bulk operation started.")
        message = format_html(
            "A worker does it to all that match, 1,000 at a time: {}.",
            self.link("bulkoperation", bulk.pk),
        )
        self.message_user(request, message, messages.SUCCESS)


def _filter_of(request: HttpRequest) -> JobFilter:
    """Return the list's filter and search in the filter language.

    Raises:
        FilterError: something in it cannot be said there.
    """
    term = request.GET.get("q", "").strip()
    tag = _tag_of(term)
    given = {
        "state": request.GET.get("state"),
        "queue": request.GET.get("queue"),
        "id": term if _uuid_of(term) else None,
        "tag": tag,
        "task": f"{term}*" if term and tag is None and not _uuid_of(term) else None,
    }
    return from_parameters(
        {name: quoted(value) for name, value in given.items() if value}
    )


def _jobs(count: int) -> str:
    return f"{count:,} job" if count == 1 else f"{count:,} jobs"


def _counted(count: int, reason: str) -> str:
    """Say of how many jobs the reason, told of one, is true."""
    verb, _, rest = reason.partition(" ")
    plural = {"is": "are", "has": "have"}.get(verb, verb)
    return f"{count:,} {verb if count == 1 else plural} {rest}"

"""What the admin does to jobs: to those of a list, to one, or to all that match."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, DELETION
from django.db import models
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html

from relay import operations
from relay.admin.lists import RelayAdmin, actor_of
from relay.exceptions import (
    ArgumentError,
    Conflict,
    DecodeError,
    MissingKey,
    NotAllowed,
)
from relay.models import FINAL_STATES, Job, JobState
from relay.operations import Actor, ActReport, JobFilter

__all__ = ["ALL_THERE", "JobActs"]

# What bounds an operation over more than is counted.
ALL_THERE: Final = (
    "All that are there when you answer are meant, and none that is enqueued later."
)

# Most jobs that one action changes inside the request; more become a bulk operation.
MOST_AT_ONCE: Final = operations.AT_ONCE

_WAITING: Final = (JobState.SCHEDULED, JobState.RETRYING)
# In which states a button of a job's page does something.
_STATES: Final[dict[str, tuple[JobState, ...]]] = {
    "cancel": tuple(state for state in JobState if state not in FINAL_STATES),
    "retry": (JobState.FAILED, JobState.CANCELLED),
    "replay": FINAL_STATES,
    "run_now": _WAITING,
}


class JobActs(RelayAdmin):
    """Actions: each on up to 100 jobs at once, beyond that as a bulk operation."""

    actions = (
        *("cancel", "retry", "replay", "run_now", "delete"),
        *("export_jsonl", "export_csv"),
    )
    buttons = {  # noqa: RUF012 - never written
        "cancel": "Cancel",
        "retry": "Retry",
        "replay": "Replay",
        "run_now": "Run now",
    }

    @abstractmethod
    def filter_of(self, request: HttpRequest) -> JobFilter:
        """Return which jobs the list shows."""

    def is_possible(self, action: str, row: Job) -> bool:
        return row.state in _STATES[action]

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return actor_of(request).may("cancel_job")

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return actor_of(request).may("retry_job")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        if obj is not None and obj.state == JobState.RUNNING:
            return False
        return actor_of(request).may("delete_job")

    @admin.action(description="Cancel selected jobs", permissions=["cancel"])
    def cancel(
        self, request: HttpRequest, queryset: models.QuerySet[Job]
    ) -> HttpResponse | None:
        act, done = operations.cancel_jobs, "cancelled"
        return self._act(request, queryset, "cancel", act, done)

    @admin.action(
        description="Retry selected jobs (the same job again)", permissions=["retry"]
    )
    def retry(
        self, request: HttpRequest, queryset: models.QuerySet[Job]
    ) -> HttpResponse | None:
        act, done = operations.retry_jobs, "made ready again"
        return self._act(request, queryset, "retry", act, done)

    @admin.action(
        description="Replay selected jobs (a new job like it)", permissions=["retry"]
    )
    def replay(
        self, request: HttpRequest, queryset: models.QuerySet[Job]
    ) -> HttpResponse | None:
        act, done = operations.replay_jobs, "replayed"
        return self._act(request, queryset, "replay", act, done)

    @admin.action(description="Run selected jobs now", permissions=["retry"])
    def run_now(
        self, request: HttpRequest, queryset: models.QuerySet[Job]
    ) -> HttpResponse | None:
        act, done = operations.run_jobs_now, "made ready"
        return self._act(request, queryset, "run_now", act, done)

    @admin.action(description="Delete selected jobs", permissions=["delete"])
    def delete(
        self, request: HttpRequest, queryset: models.QuerySet[Job]
    ) -> HttpResponse | None:
        act, done = operations.delete_jobs, "deleted"
        return self._act(request, queryset, "delete", act, done)

    def delete_model(self, request: HttpRequest, obj: Job) -> None:
        operations.delete_job(actor_of(request), obj.pk)

    def _act(
        self,
        request: HttpRequest,
        queryset: models.QuerySet[Job],
        action: str,
        act: Callable[[Actor, Iterable[UUID]], ActReport],
        done: str,
    ) -> HttpResponse | None:
        if self.is_all_of_more(request, queryset, limit=MOST_AT_ONCE):
            return self._act_on_all(request, action)
        ids = self.selected_ids(request, queryset, limit=MOST_AT_ONCE)
        if ids is None:
            return None
        if action == "delete" and not self.is_confirmed(request):
            return self._ask_to_delete(request, ids)
        rows = Job.objects.using(self.alias).filter(pk__in=ids).only("id", "task")
        named = {row.pk: row for row in rows}
        try:
            report = act(actor_of(request), ids)
        except (DecodeError, MissingKey) as error:  # of arguments that are encrypted
            self.message_user(request, f"Nothing was done: {error}.", messages.ERROR)
            return None
        self._tell(request, report, done, named)
        return None

    def _ask_to_delete(self, request: HttpRequest, ids: list[UUID]) -> HttpResponse:
        rows = Job.objects.using(self.alias).filter(pk__in=ids).only("id", "task")
        lines = (
            "With their attempts, logs, steps and history these are deleted, but for "
            "those that run:",
            *map(str, rows.order_by("id")),
        )
        button = f"Delete {_jobs(len(ids))}"
        return self.ask(request, title="Delete jobs", lines=lines, button=button)

    def _tell(
        self,
        request: HttpRequest,
        report: ActReport,
        done: str,
        named: dict[UUID, Job],
    ) -> None:
        flag = DELETION if done == "deleted" else CHANGE
        message = ""
        for ids_of, what in ((report.done, done), (report.asked, "asked to stop")):
            rows = [named[job_id] for job_id in ids_of if job_id in named]
            self.log_acts(request, rows, f"Job {what}.", flag=flag)
            if ids_of or what == done:
                message += f" {_jobs(len(ids_of))} {what}."
        if report.skipped:
            reasons = Counter(skip.reason for skip in report.skipped)
            listed = ", ".join(_counted(n, why) for why, n in sorted(reasons.items()))
            message += f" {_jobs(len(report.skipped))} skipped: {listed}."
        level = messages.WARNING if report.skipped else messages.SUCCESS
        self.message_user(request, message.strip(), level)

    # --- all that match --------------------------------------------------------------

    def _act_on_all(self, request: HttpRequest, action: str) -> HttpResponse | None:
        """Act on all jobs of the list, however many, in the background.

        Before that their number is told, and beyond it the operation does not go.
        """
        expected = request.POST.get("expected", "")
        typed = (expected or "all") if action == "delete" else None
        try:
            if not self.is_confirmed(request, typed):
                if request.POST.get("confirmed"):
                    return None
                return self._ask_about_all(request, action)
            bulk = operations.start_bulk(
                actor_of(request),
                action,
                # A form writes line breaks its own way.
                request.POST.get("filter", "").replace("\r\n", "\n"),
                expected=int(expected) if expected.isdecimal() else None,
            )
        except (ArgumentError, Conflict, NotAllowed, ValueError) as error:
            self.message_user(request, f"Nothing was done: {error}.", messages.ERROR)
            return None
        self.log_acts(request, [bulk], "Bulk operation started.")
        message = format_html(
            "A worker does it to all that match, 1,000 at a time: {}.",
            self.link("bulkoperation", bulk.pk),
        )
        self.message_user(request, message, messages.SUCCESS)
        return None

    def _ask_about_all(self, request: HttpRequest, action: str) -> HttpResponse:
        # As text that means the same when it is posted: with instants, not ages.
        wanted = str(self.filter_of(request))
        found = operations.count_bulk(actor_of(request), action, wanted)
        count = f"more than {found.count:,}" if found.is_capped else f"{found.count:,}"
        verb = action.replace("_", " ").capitalize()
        return self.ask(
            request,
            title=f"{verb}: all jobs that match",
            lines=(
                f"{verb}: {count} jobs that match {wanted}",
                "A worker does it in the background; the operation can be cancelled.",
                *([ALL_THERE] if found.is_capped else ()),
            ),
            button=f"{verb} {count} jobs",
            typed=("all" if found.is_capped else str(found.count))
            if action == "delete"
            else None,
            filter=wanted,
            expected="" if found.is_capped else str(found.count),
        )


def _jobs(count: int) -> str:
    return f"{count:,} job" if count == 1 else f"{count:,} jobs"


def _counted(count: int, reason: str) -> str:
    """Say of how many jobs the reason, told of one, is true."""
    verb, _, rest = reason.partition(" ")
    plural = {"is": "are", "has": "have", "needs": "need"}.get(verb, verb)
    return f"{count:,} {verb if count == 1 else plural} {rest}"

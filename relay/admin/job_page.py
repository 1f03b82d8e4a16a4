"""What the page of one job shows besides its columns."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from django.contrib import admin
from django.db import models
from django.db.models.functions import Cast, Coalesce
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from relay.admin.acting import Tool
from relay.admin.lists import NOTHING, RelayAdmin, actor_of, moment, showing
from relay.admin.schedule_form import as_span
from relay.models import Attempt, History, Job, Output, Step, Worker
from relay.queries.reading import clamped, cut, pretty
from relay.redaction import conceal, redact

__all__ = ["JobPage"]

# Of a job's attempts and history so many of the latest are shown.
LATEST: Final = 100


class JobPage(RelayAdmin):
    """Payloads, redacted, and a job's past: attempts, logs, steps, history.

    Without view_payload arguments, results, progress and steps' values are masks.
    """

    def tools(self, request: HttpRequest, row: Any) -> list[Tool]:
        found = super().tools(request, row)
        with suppress(NoReverseMatch):  # a project that serves no dashboard
            url = reverse("relay_dashboard:job", args=[row.pk])
            found.append(Tool(label="On the dashboard", url=url))
        return found

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        job = super().get_object(request, object_id, from_field)
        if job is not None:
            is_shown = actor_of(request).may("view_payload")
            job.of_payload = redact if is_shown else conceal
        return job

    @admin.display(description="arguments")
    def arguments_text(self, job: Any) -> SafeString | str:
        return showing(job.of_payload(job.shown_args))

    @admin.display(description="result")
    def result_text(self, job: Any) -> SafeString | str:
        return showing(job.of_payload(job.shown_result))

    @admin.display(description="error message")
    def error_text(self, job: Any) -> SafeString | str:
        return showing(job.shown_error)

    @admin.display(description="progress")
    def progress_text(self, job: Any) -> SafeString | str:
        return showing(job.of_payload(job.shown_progress))

    @admin.display(description="tags")
    def tags_text(self, job: Any) -> SafeString | str:
        return showing(job.shown_tags or None)

    @admin.display(description="meta")
    def meta_text(self, job: Any) -> SafeString | str:
        return showing(redact(job.shown_meta))

    @admin.display(description="timeout")
    def timeout(self, job: Job) -> str | None:
        return None if job.timeout_ms is None else str(as_span(job.timeout_ms))

    @admin.display(description="worker")
    def worker(self, job: Job) -> SafeString | str:
        return self.link("worker", job.worker_id)

    @admin.display(description="schedule")
    def schedule(self, job: Job) -> SafeString | str:
        return self.link("schedule", job.schedule_id)

    @admin.display(description="replay of")
    def original(self, job: Job) -> SafeString | str:
        return self.link("job", job.replay_of)

    @admin.display(description="attempts that did not succeed")
    def past_attempts(self, job: Job) -> SafeString | str:
        worker = Worker.objects.filter(pk=models.OuterRef("worker_id"))
        rows = (
            Attempt.objects.using(self.alias)
            .filter(job_id=job.pk)
            .order_by("-id")
            .values_list(
                "attempt",
                "outcome",
                clamped("started_at"),
                clamped("ended_at"),
                Coalesce(
                    models.Subquery(worker.values("name")[:1]),
                    Cast("worker_id", models.TextField()),
                ),
                "error_class",
                cut("error_message"),
                cut("traceback"),
            )[:LATEST]
        )
        return _table(
            ("Attempt", "Outcome", "Started", "Ended", "Worker", "Error"),
            (
                (
                    attempt,
                    outcome,
                    moment(started_at),
                    moment(ended_at),
                    worker_name or "",
                    _error(error_class, message, traceback),
                )
                for (
                    attempt,
                    outcome,
                    started_at,
                    ended_at,
                    worker_name,
                    error_class,
                    message,
                    traceback,
                ) in rows
            ),
        )

    @admin.display(description="logs")
    def past_logs(self, job: Job) -> SafeString | str:
        rows = (
            Output.objects.using(self.alias)
            .filter(job_id=job.pk)
            .order_by("-attempt")
            .values_list("attempt", clamped("at"), cut("text"))[:LATEST]
        )
        return _table(
            ("Attempt", "Written", "Log"),
            ((attempt, moment(at), showing(text)) for attempt, at, text in rows),
        )

    @admin.display(description="steps done")
    def past_steps(self, job: Any) -> SafeString | str:
        rows = (
            Step.objects.using(self.alias)
            .filter(job_id=job.pk)
            .order_by("-id")
            .values_list("name", "attempt", clamped("done_at"), pretty("value"))
        )
        return _table(
            ("Step", "Attempt", "Done", "Value"),
            (
                (name, attempt, moment(done_at), showing(job.of_payload(value)))
                for name, attempt, done_at, value in rows[:LATEST]
            ),
        )

    @admin.display(description="history")
    def past_events(self, job: Job) -> SafeString | str:
        rows = (
            History.objects.using(self.alias)
            .filter(job_id=job.pk)
            .order_by("-id")
            .values_list(
                clamped("at"),
                "event",
                "actor",
                "attempt",
                cut(Cast("detail", models.TextField())),
            )[:LATEST]
        )
        return _table(
            ("When", "What", "Who", "Attempt", "Detail"),
            (
                (
                    moment(at),
                    event,
                    actor or "",
                    "" if attempt is None else attempt,
                    showing(detail),
                )
                for at, event, actor, attempt, detail in rows
            ),
        )


def _error(
    error_class: str | None, message: str | None, traceback: str | None
) -> SafeString | str:
    if traceback:
        return format_html(
            "<details><summary>{}</summary>{}</details>",
            error_class or "Traceback",
            showing(traceback),
        )
    if message:
        return format_html("{} {}", error_class or "", showing(message))
    return error_class or ""


def _table(heads: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> SafeString | str:
    lines = format_html_join(
        "",
        "<tr>{}</tr>",
        (
            (format_html_join("", "<td>{}</td>", ((cell,) for cell in row)),)
            for row in rows
        ),
    )
    if not lines:
        return NOTHING
    return format_html(
        "<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>",
        format_html_join("", "<th>{}</th>", ((head,) for head in heads)),
        lines,
    )

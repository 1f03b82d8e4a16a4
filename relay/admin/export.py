"""Jobs of a list as a file: JSON lines or CSV, sent while they are read."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from django.contrib import admin, messages
from django.db import models
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.utils import timezone

from relay.admin.job_acts import MOST_AT_ONCE, JobActs
from relay.admin.lists import actor_of
from relay.exceptions import RelayError
from relay.models import Job
from relay.operations import Actor, JobFilter, from_parameters
from relay.queries import jobs
from relay.queries.documents import JobDocument, JobPage
from relay.spreadsheets import never_a_formula

__all__ = ["JobExport"]

# Most jobs in one file; the command line has no such limit.
MOST_EXPORTED: Final = 10_000
PAGE: Final = 500


class JobExport(JobActs):
    """Two actions: the jobs of a list as JSON lines, or as CSV."""

    @admin.action(description="Export selected jobs (JSONL)", permissions=["view"])
    def export_jsonl(
        self, request: HttpRequest, queryset: models.QuerySet[Job]
    ) -> HttpResponseBase | None:
        kind = "application/jsonl"
        return self._export(request, queryset, "jsonl", kind, _as_jsonl)

    @admin.action(description="Export selected jobs (CSV)", permissions=["view"])
    def export_csv(
        self, request: HttpRequest, queryset: models.QuerySet[Job]
    ) -> HttpResponseBase | None:
        return self._export(request, queryset, "csv", "text/csv", _as_csv)

    def _export(
        self,
        request: HttpRequest,
        queryset: models.QuerySet[Job],
        ending: str,
        content_type: str,
        written: Callable[[Iterable[JobDocument]], Iterator[str]],
    ) -> HttpResponseBase | None:
        """Send the jobs of the list, or those ticked; payloads as pages show them."""
        if request.POST.get("select_across") == "1":
            wanted = self.filter_of(request)
        else:
            ids = self.selected_ids(request, queryset, limit=MOST_AT_ONCE)
            if ids is None:
                return None
            wanted = from_parameters({"id": ",".join(map(str, ids))})
        actor = actor_of(request)
        try:
            first = jobs.list_jobs(actor, wanted, limit=PAGE)
        except RelayError as error:
            self.message_user(request, f"Nothing was sent: {error}.", messages.ERROR)
            return None
        if self.is_all_of_more(request, queryset, limit=MOST_EXPORTED):
            text = f"Only the first {MOST_EXPORTED:,} jobs are in the file."
            self.message_user(request, text, messages.WARNING)
        found = _documents(actor, wanted, first)
        response = StreamingHttpResponse(
            written(found), content_type=f"{content_type}; charset=utf-8"
        )
        name = f"jobs-{timezone.now():%Y%m%dT%H%M%SZ}.{ending}"
        response["Content-Disposition"] = f'attachment; filename="{name}"'
        return response


def _documents(actor: Actor, wanted: JobFilter, page: JobPage) -> Iterator[JobDocument]:
    """Give up to MOST_EXPORTED jobs, page by page: no snapshot is held meanwhile."""
    left = MOST_EXPORTED
    while True:
        yield from page["results"][:left]
        left -= len(page["results"])
        cursor = page["next"]
        if cursor is None or left <= 0:
            return
        page = jobs.list_jobs(actor, wanted, limit=min(PAGE, left), cursor=cursor)


def _as_jsonl(found: Iterable[JobDocument]) -> Iterator[str]:
    for document in found:
        yield json.dumps(document, ensure_ascii=False) + "\n"


def _as_csv(found: Iterable[JobDocument]) -> Iterator[str]:
    line = io.StringIO()
    writer = csv.DictWriter(line, list(JobDocument.__annotations__))
    writer.writeheader()
    for document in found:
        writer.writerow(_cells(document))
        yield line.getvalue()
        line.seek(0)
        line.truncate()
    yield line.getvalue()


def _cells(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _cell(value) for name, value in document.items()}


def _cell(value: Any) -> Any:
    """Return a value as one cell, and never as a formula."""
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False)
    return never_a_formula(value) if isinstance(value, str) else value

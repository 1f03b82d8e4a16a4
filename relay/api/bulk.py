"""Acts over all jobs that match a filter, and over some at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypedDict
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from relay import operations
from relay.api.base import ApiView, address
from relay.api.bodies import BulkBody, EmptyBody, ExpectedBody
from relay.api.endpoints import CURSOR, LIMIT, Parameter, endpoint, flag, text
from relay.api.looks import BULK
from relay.api.once import once
from relay.api.problems import ProblemError, invalid
from relay.operations import Actor, parse
from relay.queries import bulk, failures
from relay.queries.documents import (
    BulkDetail,
    BulkPage,
    CountDocument,
    FailurePage,
)

__all__ = [
    "BulkCancelView",
    "BulkListView",
    "BulkView",
    "FailureReplayView",
    "FailureRetryView",
    "FailuresView",
    "JobsBulkView",
    "bulk_answer",
]


class SkippedDocument(TypedDict):
    """One job that was left as it was, and why."""

    id: str
    reason: str


class ReportDocument(TypedDict):
    """What an act on some jobs came to: done, asked to stop, or left."""

    done: list[str]
    asked: list[str]
    skipped: list[SkippedDocument]


_AT_ONCE: Final[Mapping[str, Callable[[Actor, list[UUID]], operations.ActReport]]] = {
    "cancel": operations.cancel_jobs,
    "retry": operations.retry_jobs,
    "replay": operations.replay_jobs,
    "run_now": operations.run_jobs_now,
    "delete": operations.delete_jobs,
}


def bulk_answer(view: ApiView, bulk_id: UUID) -> Response:
    """Answer with a bulk operation that was just asked for."""
    document = bulk.get_bulk(view.who.seeing(), bulk_id)
    headers = {"Location": address(view.request, "bulk-operation", bulk_id)}
    return Response(document, status=202, headers=headers)


class JobsBulkView(ApiView):
    """/v1/jobs/bulk."""

    @endpoint(
        "bulk_job",
        {202: BulkDetail, 200: ReportDocument | CountDocument},
        body=BulkBody,
        query={"dry_run": flag("Count what a filter matches, and change nothing.")},
        codes=("conflict", "invalid_filter"),
        is_once=True,
    )
    def post(self, request: Request) -> Response:
        """Do something to all jobs that match a filter, in the background.

        With ids instead of a filter it is done at once, to 100 at most.
        """
        values = self.read(request)
        if "ids" in values:
            self._check_no_count()
            return once(request, self.who, lambda: self._at_once(values))
        wanted = parse(values["filter"])
        if self.query.get("dry_run"):
            found = operations.count_bulk(self.actor, values["action"], wanted)
            return Response(CountDocument(count=found.count, capped=found.is_capped))

        def act() -> Response:
            made = operations.start_bulk(
                self.actor,
                values["action"],
                wanted,
                expected=values.get("expected"),
            )
            return bulk_answer(self, made.pk)

        return once(request, self.who, act, look=BULK)

    def _check_no_count(self) -> None:
        """Refuse to count what is listed: an act must not be taken for a count."""
        if self.query.get("dry_run"):
            detail = "dry_run: counts what a filter matches: leave it out with ids"
            problem = invalid("dry_run", "invalid", detail)
            raise ProblemError(problem.code, problem.detail, errors=problem.errors)

    def _at_once(self, values: Mapping[str, Any]) -> Response:
        report = _AT_ONCE[values["action"]](self.actor, values["ids"])
        return Response(
            ReportDocument(
                done=[str(job_id) for job_id in report.done],
                asked=[str(job_id) for job_id in report.asked],
                skipped=[
                    SkippedDocument(id=str(each.job_id), reason=each.reason)
                    for each in report.skipped
                ],
            )
        )


class BulkListView(ApiView):
    """/v1/bulk."""

    @endpoint(
        "view_bulkoperation",
        {200: BulkPage},
        query={"limit": LIMIT, "cursor": CURSOR},
    )
    def get(self, request: Request) -> Response:
        """List bulk operations, the newest first."""
        return self.page(request, bulk.list_bulk(self.actor, **self.query))


class BulkView(ApiView):
    """/v1/bulk/{id}."""

    @endpoint("view_bulkoperation", {200: BulkDetail}, codes=("not_found",))
    def get(self, request: Request, bulk_id: str) -> Response:
        """Return one bulk operation, and how far it has come."""
        return Response(bulk.get_bulk(self.actor, self.job_id(bulk_id)))


class BulkCancelView(ApiView):
    """/v1/bulk/{id}/cancel."""

    @endpoint(
        "bulk_job",
        {200: BulkDetail},
        body=EmptyBody,
        codes=("not_found", "conflict"),
    )
    def post(self, request: Request, bulk_id: str) -> Response:
        """Let a bulk operation go no further than the chunk it is at."""
        self.read(request)
        found = self.job_id(bulk_id)
        operations.cancel_bulk(self.actor, found)
        return Response(bulk.get_bulk(self.who.seeing(), found))


OF_FAILURES: Final[Mapping[str, Parameter]] = {
    "task": text("Of this task only."),
    "queue": text("In this queue only."),
    "error_class": text("With this class of error only."),
}


class FailuresView(ApiView):
    """/v1/failures."""

    @endpoint("view_job", {200: FailurePage}, query=OF_FAILURES)
    def get(self, request: Request) -> Response:
        """List groups of failed jobs: of one task, with one error."""
        return Response(failures.list_failures(self.actor, **self.query))


class FailureReplayView(ApiView):
    """/v1/failures/{group}/replay."""

    @endpoint(
        "bulk_job",
        {202: BulkDetail},
        body=ExpectedBody,
        codes=("not_found", "conflict"),
        is_once=True,
    )
    def post(self, request: Request, group: str) -> Response:
        """Enqueue a new job like each of a group, in the background."""
        return act_on_group(self, request, group, "replay")


class FailureRetryView(ApiView):
    """/v1/failures/{group}/retry."""

    @endpoint(
        "bulk_job",
        {202: BulkDetail},
        body=ExpectedBody,
        codes=("not_found", "conflict"),
        is_once=True,
    )
    def post(self, request: Request, group: str) -> Response:
        """Run all failed jobs of a group again, in the background."""
        return act_on_group(self, request, group, "retry")


def act_on_group(view: ApiView, request: Request, group: str, action: str) -> Response:
    """Start a bulk operation over the failed jobs of a group."""
    expected = view.read(request).get("expected")

    def act() -> Response:
        found = failures.get_failure(view.who.seeing(), group)
        made = operations.start_bulk(
            view.actor, action, found["filter"], expected=expected
        )
        return bulk_answer(view, made.pk)

    return once(request, view.who, act, look=BULK)

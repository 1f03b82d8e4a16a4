"""What is done to one job: cancel, retry, run now, replay."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from relay import operations
from relay.api.bodies import EmptyBody, ReplayBody
from relay.api.endpoints import endpoint
from relay.api.jobs import OneJobView
from relay.api.looks import JOB
from relay.api.once import once
from relay.queries.documents import JobDetail

__all__ = ["CancelView", "ReplayView", "RetryView", "RunNowView"]


class CancelView(OneJobView):
    """/v1/jobs/{id}/cancel."""

    @endpoint(
        "cancel_job",
        {200: JobDetail, 202: JobDetail},
        body=EmptyBody,
        codes=("not_found", "conflict"),
        is_for_some=True,
    )
    def post(self, request: Request, job_id: str) -> Response:
        """Cancel a job; 202 where it runs, and its worker was asked to stop it."""
        self.read(request)
        found = self.checked(job_id)
        is_done = operations.cancel_job(self.actor, found)
        return self.shown(found, 200 if is_done else 202)


class RetryView(OneJobView):
    """/v1/jobs/{id}/retry."""

    @endpoint(
        "retry_job",
        {200: JobDetail},
        body=EmptyBody,
        codes=("not_found", "conflict"),
        is_for_some=True,
    )
    def post(self, request: Request, job_id: str) -> Response:
        """Run a failed or cancelled job again, with its whole retry budget."""
        self.read(request)
        found = self.checked(job_id)
        operations.retry_job(self.actor, found)
        return self.shown(found)


class RunNowView(OneJobView):
    """/v1/jobs/{id}/run-now."""

    @endpoint(
        "retry_job",
        {200: JobDetail},
        body=EmptyBody,
        codes=("not_found", "conflict"),
        is_for_some=True,
    )
    def post(self, request: Request, job_id: str) -> Response:
        """Make a scheduled or retrying job ready at once."""
        self.read(request)
        found = self.checked(job_id)
        operations.run_job_now(self.actor, found)
        return self.shown(found)


class ReplayView(OneJobView):
    """/v1/jobs/{id}/replay."""

    @endpoint(
        "retry_job",
        {201: JobDetail},
        body=ReplayBody,
        codes=("not_found", "conflict"),
        is_for_some=True,
        is_once=True,
    )
    def post(self, request: Request, job_id: str) -> Response:
        """Enqueue a new job like an ended one, also with other arguments."""
        values = self.read(request)
        found = self.checked(job_id)

        def act() -> Response:
            return self.shown(operations.replay_job(self.actor, found, **values), 201)

        return once(request, self.who, act, look=JOB)

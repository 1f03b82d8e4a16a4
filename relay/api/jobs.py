"""Jobs: enqueued, listed, counted; and one of them with all of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypedDict
from uuid import UUID

from django.db import transaction
from rest_framework.request import Request
from rest_framework.response import Response

from relay import operations
from relay.api.auth import Who
from relay.api.base import ApiView, address
from relay.api.bodies import (
    BatchBody,
    EditBody,
    EnqueueBody,
    call_of,
    queue_of,
)
from relay.api.endpoints import (
    CURSOR,
    INCLUDE,
    LIMIT,
    Parameter,
    choice,
    endpoint,
    one_of,
    span,
    whole,
)
from relay.api.etags import etag_of, names_tag
from relay.api.looks import JOB
from relay.api.once import once
from relay.api.problems import ProblemError, problem_of
from relay.api.throttle import allow_submit
from relay.conf import get_settings
from relay.exceptions import JobNotFound, ResultTimeout
from relay.handles import JobHandle
from relay.models import Job
from relay.operations import JobCall
from relay.operations.job_filter import ORDERS
from relay.queries import jobs, why
from relay.queries.documents import (
    AttemptDocument,
    Cause,
    CountDocument,
    HistoryDocument,
    JobDetail,
    JobDocument,
    JobPage,
    LogDocument,
)
from relay.sensitive import MASK

__all__ = [
    "AttemptsView",
    "BatchView",
    "CountView",
    "HistoryView",
    "JobView",
    "JobsView",
    "LogsView",
    "OneJobView",
    "StatesView",
    "WhyView",
]

# Longest that an answer is put off: each one holds a thread of the server's.
LONGEST_WAIT: Final = timedelta(seconds=60)
# Of a job that was there before, what who enqueues may not look at.
_VEILED: Final = (
    *("args", "kwargs", "payload", "result", "progress", "meta"),
    *("error_class", "error"),
)
ORDER: Final = one_of(
    "How they are ordered: of these what the index gives that the filter leads to.",
    *ORDERS,
)


def fields_of(kind: type[Any]) -> Parameter:
    """Return a parameter that names which fields of a document are to be sent."""
    names = sorted(kind.__required_keys__)
    return choice("Which of a job's fields to send; all unless given.", *names)


def picked(document: Mapping[str, Any], names: Collection[str] | None) -> Any:
    """Return what was asked for of a document; all of it for None."""
    if names is None:
        return document
    return {name: each for name, each in document.items() if name in names}


class OneJobView(ApiView):
    """What the views of one job share."""

    def checked(self, text: str) -> UUID:
        """Return the id of an address, if that job is the caller's to deal with.

        Raises:
            ProblemError, JobNotFound: it is none, or not theirs.
        """
        job_id = self.job_id(text)
        if self.who.is_limited:
            rows = Job.objects.using(get_settings().database).filter(pk=job_id)
            queue = rows.values_list("queue", flat=True).first()
            if queue is None or not self.who.sees_queue(queue):
                raise JobNotFound(job_id)
        return job_id

    def shown(
        self, job_id: UUID, status: int = 200, *, is_theirs: bool = True
    ) -> Response:
        """Answer with a job that the caller has done something to.

        Args:
            is_theirs: False of one that was there before: of that who may not look at
                jobs learns no more than where it stands, and gets no ETag.
        """
        job: Mapping[str, Any] = jobs.get_job(self.who.seeing(), job_id)
        headers: dict[str, str] = {}
        if is_theirs or self.actor.may("view_job"):
            headers["ETag"] = etag_of(job)
        else:
            job = {
                **job,
                **{n: MASK for n in _VEILED if job[n] is not None},
                "tags": [],
            }
        if status == 201:
            headers["Location"] = address(self.request, "job", job_id)
        return Response(job, status=status, headers=headers)


class JobsView(OneJobView):
    """/v1/jobs."""

    @endpoint(
        "view_job",
        {200: JobPage},
        query={
            "limit": LIMIT,
            "cursor": CURSOR,
            "order": ORDER,
            "fields": fields_of(JobDocument),
        },
        has_filter=True,
        is_for_some=True,
    )
    def get(self, request: Request) -> Response:
        """List jobs."""
        query = dict(self.query)
        names = query.pop("fields", None)
        found = jobs.list_jobs(self.actor, self.wanted, **query)
        results = [picked(job, names) for job in found["results"]]
        return self.page(request, {**found, "results": results})

    @endpoint(
        "enqueue_job",
        {201: JobDetail, 200: JobDetail},
        body=EnqueueBody,
        codes=("commands_disabled", "duplicate_job", "too_many_requests"),
        is_for_some=True,
        is_once=True,
    )
    def post(self, request: Request) -> Response:
        """Enqueue a job; 200 with the one that is there, where a unique key is held."""
        allow_submit(self.who.key, 1)
        values = self.read(request)
        refuse_command(values)
        key = values.get("idempotency_key")
        return once(request, self.who, partial(self._made, values), look=JOB, key=key)

    def _made(self, values: Mapping[str, Any]) -> Response:
        call = call_of(values)
        self.who.require_queue(queue_of(call))
        with transaction.atomic(using=get_settings().database):
            made = operations.enqueue_job(
                self.actor, call.task, call.args, call.kwargs, **call.options
            )
            require_own(self.who, [made.id])
        if made.is_duplicate:
            return self.shown(made.id, is_theirs=False)
        return self.shown(made.id, 201)


def require_own(who: Who, job_ids: Sequence[UUID]) -> None:
    """Let it go on if jobs that an enqueue came to are the caller's to deal with.

    By an id or a unique key they may have been there before, in any queue.

    Raises:
        ProblemError: they are not; the transaction is to be rolled back.
    """
    if who.queues is None:
        return
    rows = Job.objects.using(get_settings().database).filter(pk__in=job_ids)
    if rows.exclude(queue__in=who.queues).exists():
        raise ProblemError(
            "not_allowed",
            f"A job of a queue that {who.actor.name} is not for has the same id, or "
            "holds the unique key.",
        )


def refuse_command(values: Mapping[str, Any]) -> None:
    """Refuse command jobs, and what is neither a command nor a task.

    Raises:
        ProblemError: it is.
    """
    kind = values.get("type")
    if kind == "command" or (kind is None and "payload" in values):
        raise ProblemError(
            "commands_disabled", "Jobs that run a command are off: enqueue a task."
        )
    if kind is not None and (kind != values.get("task") or "payload" in values):
        detail = f"type {kind!r} is none: leave it out, and give task"
        fault = {"pointer": "/type", "code": "invalid", "detail": detail}
        raise ProblemError("invalid_request", f"/type: {detail}", errors=[fault])


class MadeDocument(TypedDict):
    """One job of a batch; a duplicate was there, and holds the unique key."""

    id: str
    task: str
    duplicate: bool


class BatchView(ApiView):
    """/v1/jobs/batch."""

    @endpoint(
        "enqueue_job",
        {201: list[MadeDocument]},
        body=BatchBody,
        codes=("commands_disabled", "conflict", "duplicate_job", "too_many_requests"),
        is_for_some=True,
        is_once=True,
    )
    def post(self, request: Request) -> Response:
        """Enqueue up to 1,000 jobs, all or none."""
        wanted = self.read(request)["jobs"]
        allow_submit(self.who.key, len(wanted))
        return once(request, self.who, lambda: self._made(wanted))

    def _made(self, wanted: list[Mapping[str, Any]]) -> Response:
        at: list[int] = []

        def calls() -> Iterator[JobCall]:
            for place, values in enumerate(wanted):
                at[:] = [place]
                refuse_command(values)
                call = call_of(values)
                self.who.require_queue(queue_of(call))
                yield call
            at.clear()

        try:
            with transaction.atomic(using=get_settings().database):
                made = operations.enqueue_jobs(self.actor, calls())
                require_own(self.who, [handle.id for handle in made])
        except Exception as error:
            problem = problem_of(error)
            if not at or problem.status >= 500:
                raise
            raise placed(problem, f"/jobs/{at[0]}") from None
        document = [
            MadeDocument(
                id=str(handle.id), task=handle.task, duplicate=handle.is_duplicate
            )
            for handle in made
        ]
        return Response(document, status=201)


def placed(problem: Any, prefix: str) -> ProblemError:
    """Return a problem with one part of a body, by its place in the whole."""
    errors = [
        {**fault, "pointer": prefix + fault["pointer"]} for fault in problem.errors
    ]
    if not errors:
        errors = [{"pointer": prefix, "code": problem.code, "detail": problem.detail}]
    return ProblemError(
        problem.code, f"{prefix}: {problem.detail}", errors=errors, more=problem.more
    )


class CountView(ApiView):
    """/v1/jobs/count."""

    @endpoint("view_job", {200: CountDocument}, has_filter=True, is_for_some=True)
    def get(self, request: Request) -> Response:
        """Count jobs, up to 10,000."""
        return Response(jobs.count_jobs(self.actor, self.wanted))


class StatesView(ApiView):
    """/v1/jobs/states."""

    @endpoint("view_job", {200: dict[str, CountDocument]})
    def get(self, request: Request) -> Response:
        """Count the jobs of each state, up to 10,000."""
        return Response(jobs.states(self.actor))


class JobView(OneJobView):
    """/v1/jobs/{id}."""

    @endpoint(
        "view_job",
        {200: JobDetail, 304: None},
        query={
            "fields": fields_of(JobDetail),
            "include": INCLUDE,
            "wait": span("How long to wait for its end, such as 30s.", LONGEST_WAIT),
        },
        codes=("not_found",),
        is_for_some=True,
    )
    def get(self, request: Request, job_id: str) -> Response:
        """Return one job; with wait, once it has ended or the time is over."""
        found = self.checked(job_id)
        if (patience := self.query.get("wait")) is not None:
            self._wait(found, patience)
            found = self.checked(job_id)  # it may have been moved meanwhile
        include = self.query.get("include", ())
        job = jobs.get_job(self.actor, found, include=include)
        tag = etag_of(job)
        if not include and names_tag(request.headers.get("If-None-Match"), tag):
            return Response(None, status=304, headers={"ETag": tag})
        names = self.query.get("fields")
        shown = picked(job, names and {*names, *include})
        return Response(shown, headers={"ETag": tag})

    def _wait(self, job_id: UUID, patience: timedelta) -> None:
        handle: JobHandle[Any] = JobHandle(job_id, "", using=get_settings().database)
        with suppress(ResultTimeout):  # its state says so
            handle.wait(timeout=patience.total_seconds())

    @endpoint(
        "edit_job",
        {200: JobDetail},
        body=EditBody,
        codes=("not_found", "conflict", "precondition_failed"),
        is_for_some=True,
    )
    def patch(self, request: Request, job_id: str) -> Response:
        """Change a job that waits; with If-Match, only as it was read."""
        values = self.read(request)
        found = self.checked(job_id)
        if "queue" in values:
            self.who.require_queue(values["queue"])
        with transaction.atomic(using=get_settings().database):
            self._match(request, found)
            operations.edit_job(self.actor, found, **values)
        return self.shown(found)

    @endpoint(
        "delete_job",
        {204: None},
        codes=("not_found", "conflict", "precondition_failed"),
        is_for_some=True,
    )
    def delete(self, request: Request, job_id: str) -> Response:
        """Delete a job that does not run; with If-Match, only as it was read."""
        found = self.checked(job_id)
        with transaction.atomic(using=get_settings().database):
            self._match(request, found)
            operations.delete_job(self.actor, found)
        return Response(None, status=204)

    def _match(self, request: Request, job_id: UUID) -> None:
        """Let it go on if the job is as the header If-Match says, and keep it so."""
        wanted = request.headers.get("If-Match")
        if wanted is None:
            return
        rows = Job.objects.using(get_settings().database).filter(pk=job_id)
        # Held to the end of the transaction, against claims too: they skip it.
        list(rows.select_for_update(no_key=True).values_list("pk"))
        tag = etag_of(jobs.get_job(self.who.seeing(), job_id))
        if not names_tag(wanted, tag):
            raise ProblemError(
                "precondition_failed",
                f"Job {job_id} has changed: its ETag is {tag} now.",
                headers={"ETag": tag},
            )


class HistoryView(OneJobView):
    """/v1/jobs/{id}/history."""

    @endpoint(
        "view_job", {200: list[HistoryDocument]}, codes=("not_found",), is_for_some=True
    )
    def get(self, request: Request, job_id: str) -> Response:
        """List what happened to a job, the oldest first."""
        return Response(jobs.list_history(self.actor, self.checked(job_id)))


class AttemptsView(OneJobView):
    """/v1/jobs/{id}/attempts."""

    @endpoint(
        "view_job", {200: list[AttemptDocument]}, codes=("not_found",), is_for_some=True
    )
    def get(self, request: Request, job_id: str) -> Response:
        """List the attempts of a job that are on record."""
        return Response(jobs.list_attempts(self.actor, self.checked(job_id)))


class LogsView(OneJobView):
    """/v1/jobs/{id}/logs."""

    @endpoint(
        "view_job",
        {200: list[LogDocument]},
        query={"after": whole("Only those of later attempts.", 0, 999_999_999)},
        codes=("not_found",),
        is_for_some=True,
    )
    def get(self, request: Request, job_id: str) -> Response:
        """List what the attempts of a job have logged, where that is kept."""
        found = self.checked(job_id)
        return Response(jobs.list_logs(self.actor, found, **self.query))


class WhyView(OneJobView):
    """/v1/jobs/{id}/why."""

    @endpoint("view_job", {200: Cause}, codes=("not_found",), is_for_some=True)
    def get(self, request: Request, job_id: str) -> Response:
        """Say why a job does not run, and what to do."""
        return Response(why.why_not_running(self.actor, self.checked(job_id)))

"""Queues and workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypedDict
from uuid import UUID

from django.db import transaction
from rest_framework.request import Request
from rest_framework.response import Response

from relay import operations
from relay.api.base import ApiView
from relay.api.bodies import EmptyBody, ExpectedBody, PauseBody, QueueBody
from relay.api.bulk import bulk_answer
from relay.api.endpoints import CURSOR, LIMIT, endpoint, text
from relay.api.looks import BULK
from relay.api.once import once
from relay.api.problems import ProblemError
from relay.conf import get_settings
from relay.queries import queues, workers
from relay.queries.documents import (
    BulkDetail,
    QueueDocument,
    WorkerDetail,
    WorkerPage,
)

__all__ = [
    "PauseView",
    "PurgeView",
    "QueueView",
    "QueuesView",
    "ResumeView",
    "WorkerQuietView",
    "WorkerResumeView",
    "WorkerStopView",
    "WorkerView",
    "WorkersView",
]


# Of workers.
STATE: Final = text("running, quiet, draining, stopped or lost.")


class QueueList(TypedDict):
    """All queues."""

    results: list[QueueDocument]


class QueuesView(ApiView):
    """/v1/queues."""

    @endpoint("view_queue", {200: QueueList}, is_for_some=True)
    def get(self, request: Request) -> Response:
        """List the queues, with what waits and runs in each."""
        found = queues.list_queues(self.actor)
        seen = [each for each in found if self.who.sees_queue(each["name"])]
        return Response({"results": seen})


class OneQueueView(ApiView):
    """What the views of one queue share."""

    def checked(self, queue: str) -> str:
        """Return the name of an address, if that queue is the caller's to deal with.

        Raises:
            ProblemError: it is not.
        """
        if not self.who.sees_queue(queue):
            raise ProblemError("not_found", f"queue {queue!r} does not exist")
        return queue

    def shown(self, queue: str) -> Response:
        """Answer with a queue that the caller has changed."""
        return Response(queues.get_queue(self.who.seeing(), queue))


class QueueView(OneQueueView):
    """/v1/queues/{name}."""

    @endpoint(
        "view_queue", {200: QueueDocument}, codes=("not_found",), is_for_some=True
    )
    def get(self, request: Request, queue: str) -> Response:
        """Return one queue."""
        return Response(queues.get_queue(self.actor, self.checked(queue)))

    @endpoint(
        "manage_queue",
        {200: QueueDocument},
        body=QueueBody,
        codes=("not_found",),
        is_for_some=True,
    )
    def patch(self, request: Request, queue: str) -> Response:
        """Order a queue's jobs by priority or as they come, and weigh it."""
        values, name = self.read(request), self.checked(queue)
        with transaction.atomic(using=get_settings().database):
            if "policy" in values:
                operations.order_queue(self.actor, name, values["policy"])
            if "weight" in values:
                operations.weigh_queue(self.actor, name, values["weight"])
        return self.shown(queue)


class PauseView(OneQueueView):
    """/v1/queues/{name}/pause."""

    @endpoint(
        "manage_queue",
        {200: QueueDocument},
        body=PauseBody,
        codes=("not_found",),
        is_for_some=True,
    )
    def post(self, request: Request, queue: str) -> Response:
        """Start no more jobs of a queue; what runs goes on."""
        until = self.read(request).get("until")
        operations.pause_queue(self.actor, self.checked(queue), until=until)
        return self.shown(queue)


class ResumeView(OneQueueView):
    """/v1/queues/{name}/resume."""

    @endpoint(
        "manage_queue",
        {200: QueueDocument},
        body=EmptyBody,
        codes=("not_found",),
        is_for_some=True,
    )
    def post(self, request: Request, queue: str) -> Response:
        """Let a queue's jobs start again."""
        self.read(request)
        operations.resume_queue(self.actor, self.checked(queue))
        return self.shown(queue)


class PurgeView(OneQueueView):
    """/v1/queues/{name}/purge."""

    @endpoint(
        "manage_queue",
        {202: BulkDetail},
        body=ExpectedBody,
        codes=("not_found", "conflict"),
        is_for_some=True,
        is_once=True,
    )
    def post(self, request: Request, queue: str) -> Response:
        """Delete all jobs of a queue that wait, in the background."""
        expected = self.read(request).get("expected")
        name = self.checked(queue)

        def act() -> Response:
            made = operations.purge_queue(self.actor, name, expected=expected)
            return bulk_answer(self, made.pk)

        return once(request, self.who, act, look=BULK)


class WorkersView(ApiView):
    """/v1/workers."""

    @endpoint(
        "view_worker",
        {200: WorkerPage},
        query={"limit": LIMIT, "cursor": CURSOR, "state": STATE},
    )
    def get(self, request: Request) -> Response:
        """List the workers, the newest first."""
        return self.page(request, workers.list_workers(self.actor, **self.query))


class WorkerView(ApiView):
    """/v1/workers/{id}."""

    @endpoint("view_worker", {200: WorkerDetail}, codes=("not_found",))
    def get(self, request: Request, worker_id: str) -> Response:
        """Return one worker, by its id or name, and what it runs."""
        return Response(workers.get_worker(self.actor, worker_id))

    @endpoint("manage_worker", {204: None}, codes=("not_found", "conflict"))
    def delete(self, request: Request, worker_id: str) -> Response:
        """Delete the row of a worker that has stopped or is lost."""
        found = workers.get_worker(self.who.seeing(), worker_id)
        operations.delete_worker(self.actor, UUID(found["id"]))
        return Response(None, status=204)


class WorkerActView(ApiView):
    """What is asked of a worker, and of all the children of its process."""

    def ask(
        self,
        request: Request,
        worker_id: str,
        act: Callable[[operations.Actor, UUID], object],
    ) -> Response:
        """Ask it, and answer with the worker; it does so within two seconds."""
        self.read(request)
        found = UUID(workers.get_worker(self.who.seeing(), worker_id)["id"])
        act(self.actor, found)
        return Response(workers.get_worker(self.who.seeing(), found), status=202)


class WorkerQuietView(WorkerActView):
    """/v1/workers/{id}/quiet."""

    @endpoint(
        "manage_worker",
        {202: WorkerDetail},
        body=EmptyBody,
        codes=("not_found", "conflict"),
    )
    def post(self, request: Request, worker_id: str) -> Response:
        """Have a worker claim nothing more; what runs goes on."""
        return self.ask(request, worker_id, operations.quiet_worker)


class WorkerResumeView(WorkerActView):
    """/v1/workers/{id}/resume."""

    @endpoint(
        "manage_worker",
        {202: WorkerDetail},
        body=EmptyBody,
        codes=("not_found", "conflict"),
    )
    def post(self, request: Request, worker_id: str) -> Response:
        """Let a quiet worker claim again."""
        return self.ask(request, worker_id, operations.resume_worker)


class WorkerStopView(WorkerActView):
    """/v1/workers/{id}/shutdown."""

    @endpoint(
        "manage_worker",
        {202: WorkerDetail},
        body=EmptyBody,
        codes=("not_found", "conflict"),
    )
    def post(self, request: Request, worker_id: str) -> Response:
        """Have a worker drain and end, as SIGTERM does."""
        return self.ask(request, worker_id, operations.stop_worker)

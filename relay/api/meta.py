"""Figures, tasks, the record, and what the API says of itself."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NoReturn, TypedDict

import django
from django.http import HttpResponse
from django.template import Context, Engine, Template
from rest_framework.request import Request
from rest_framework.response import Response

import relay
from relay import operations
from relay.api.base import ApiView, address
from relay.api.bodies import MarkBody
from relay.api.endpoints import CURSOR, LIMIT, Parameter, endpoint, span, text
from relay.api.once import once
from relay.api.problems import PROBLEMS, ProblemError
from relay.api.schema import document
from relay.exceptions import UnknownTask
from relay.queries import audit, marks, stats, system, tasks
from relay.queries.documents import (
    AuditPage,
    MarkDocument,
    MarkList,
    SeriesDocument,
    StatsDocument,
    SystemDocument,
    TaskDocument,
)

__all__ = [
    "AuditView",
    "DocsView",
    "MarksView",
    "OpenApiView",
    "OpenApiYamlView",
    "SeriesView",
    "StatsView",
    "SystemView",
    "TaskView",
    "TasksView",
    "TotalsView",
    "UnknownView",
    "VersionView",
    "WhoAmIView",
]


# Hours of statistics are kept for 90 days.
_LONGEST: Final = timedelta(days=90)
OF_STATS: Final[Mapping[str, Parameter]] = {
    "span": span("How far back, such as 24h; 1h unless given.", _LONGEST),
    "queue": text("Of this queue only."),
    "task": text("Of this task only."),
}


class VersionDocument(TypedDict):
    """Which versions run here."""

    version: str
    django: str
    python: str


class WhoAmIDocument(TypedDict):
    """Who calls, and what they may do; queues are the only ones they may deal with.

    tasks are the only ones that they may have run.
    """

    name: str
    permissions: list[str]
    queues: list[str] | None
    tasks: list[str] | None


class TaskList(TypedDict):
    """All tasks that are registered in this process."""

    results: list[TaskDocument]


class StatsView(ApiView):
    """/v1/stats."""

    @endpoint("view_metrics", {200: StatsDocument})
    def get(self, request: Request) -> Response:
        """Return figures of queues and workers, and of the last hour and day."""
        return Response(stats.get_stats(self.actor))


class SeriesView(ApiView):
    """/v1/stats/series."""

    @endpoint(
        "view_metrics",
        {200: SeriesDocument},
        query={**OF_STATS, "step": span("Of one result; 1m unless given.", _LONGEST)},
    )
    def get(self, request: Request) -> Response:
        """Return what became of jobs, one result a step."""
        return Response(stats.get_series(self.actor, **self.query))


class TotalsView(ApiView):
    """/v1/stats/totals."""

    @endpoint("view_metrics", {200: SeriesDocument}, query=OF_STATS)
    def get(self, request: Request) -> Response:
        """Return what became of jobs, one result a queue and task."""
        return Response(stats.get_totals(self.actor, **self.query))


class SystemView(ApiView):
    """/v1/system."""

    @endpoint("view_metrics", {200: SystemDocument})
    def get(self, request: Request) -> Response:
        """Return what runs here, with which settings, and what checks find."""
        return Response(system.get_system(self.actor))


class MarksView(ApiView):
    """/v1/marks."""

    @endpoint("view_metrics", {200: MarkList}, query={"span": OF_STATS["span"]})
    def get(self, request: Request) -> Response:
        """List the moments that were marked, such as deploys, the latest first."""
        return Response(marks.list_marks(self.actor, **self.query))

    @endpoint("add_audit", {201: MarkDocument}, body=MarkBody, is_once=True)
    def post(self, request: Request) -> Response:
        """Mark this moment on the charts."""
        values = self.read(request)

        def act() -> Response:
            label = operations.mark(self.actor, values["label"])
            latest = marks.list_marks(self.who.seeing())["results"]
            made = next(each for each in latest if each["label"] == label)
            return Response(made, status=201)

        return once(request, self.who, act)


class AuditView(ApiView):
    """/v1/audit."""

    @endpoint(
        "view_audit",
        {200: AuditPage},
        query={
            "limit": LIMIT,
            "cursor": CURSOR,
            "subject": text("What they did it to, such as job."),
            "target": text("Its id or name."),
        },
    )
    def get(self, request: Request) -> Response:
        """List what people and clients did, the latest first."""
        return self.page(request, audit.list_audit(self.actor, **self.query))


class TasksView(ApiView):
    """/v1/tasks."""

    @endpoint("view_job", {200: TaskList})
    def get(self, request: Request) -> Response:
        """List the tasks, each with a JSON Schema of its arguments."""
        return Response({"results": tasks.list_tasks(self.actor)})


class TaskView(ApiView):
    """/v1/tasks/{name}."""

    @endpoint("view_job", {200: TaskDocument}, codes=("not_found",))
    def get(self, request: Request, name: str) -> Response:
        """Return one task, with a JSON Schema of its arguments."""
        try:
            return Response(tasks.get_task(self.actor, name))
        except UnknownTask as error:  # of an address, not of a body
            raise ProblemError("not_found", str(error)) from None


class WhoAmIView(ApiView):
    """/v1/whoami."""

    @endpoint(None, {200: WhoAmIDocument}, is_for_some=True)
    def get(self, request: Request) -> Response:
        """Return who calls, and what they may do."""
        queues, tasks = self.who.queues, self.actor.rights.tasks
        permissions = self.actor.permissions or frozenset[str]()
        return Response(
            WhoAmIDocument(
                name=self.actor.name,
                permissions=sorted(
                    each for each in permissions if self.actor.may(each)
                ),
                queues=None if queues is None else sorted(queues),
                tasks=None if tasks is None else sorted(tasks),
            )
        )


class VersionView(ApiView):
    """/v1/version."""

    @endpoint(None, {200: VersionDocument}, is_for_some=True)
    def get(self, request: Request) -> Response:
        """Return which versions run here."""
        return Response(
            VersionDocument(
                version=metadata.version("django-relay"),
                django=django.get_version(),
                python=platform.python_version(),
            )
        )


class OpenApiView(ApiView):
    """/v1/openapi.json."""

    media_type = "application/vnd.oai.openapi+json"

    @endpoint(None, {200: dict[str, Any]}, is_for_some=True)
    def get(self, request: Request) -> HttpResponse:
        """Return this API as an OpenAPI 3.1 document."""
        prefix = address(request, "version").removesuffix("/v1/version")
        found = {**document(), "servers": [{"url": prefix or "/"}]}
        return HttpResponse(json.dumps(found, indent=2), content_type=self.media_type)


class OpenApiYamlView(OpenApiView):
    """/v1/openapi.yaml: the same; what is JSON is YAML 1.2 too."""

    media_type = "application/vnd.oai.openapi"


class DocsView(ApiView):
    """/v1/docs."""

    @endpoint(None, {200: str}, is_for_some=True)
    def get(self, request: Request) -> HttpResponse:
        """Return this page: all addresses, offline."""
        found = document()
        context = {
            "version": found["info"]["version"],
            "prefix": address(request, "version").removesuffix("/v1/version"),
            "operations": list(operations_of(found)),
            "problems": PROBLEMS,
        }
        return HttpResponse(page().render(Context(context)))


@cache
def page() -> Template:
    """Return the template of the docs, whatever the host's TEMPLATES find."""
    folder = Path(relay.__file__).parent / "templates"
    return Engine(dirs=[str(folder)]).get_template("relay/api/docs.html")


def operations_of(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what the page shows of each method of each address."""
    for path, methods in whole["paths"].items():
        for method, about in methods.items():
            body = about.get("requestBody", {}).get("content", {})
            yield {
                "method": method.upper(),
                "path": path,
                "summary": about.get("summary", ""),
                "permission": about.get("x-permission"),
                "parameters": about.get("parameters", []),
                "body": json.dumps(
                    _resolved(whole, body.get("application/json", {}).get("schema")),
                    indent=2,
                )
                if body
                else "",
                "answers": {
                    status: each.get("description", "")
                    for status, each in about["responses"].items()
                },
            }


def _resolved(whole: dict[str, Any], schema: dict[str, Any] | None) -> Any:
    name = (schema or {}).get("$ref", "").rpartition("/")[2]
    return whole["components"]["schemas"].get(name, schema)


class UnknownView(ApiView):
    """Whatever else is asked for under /v1."""

    def http_method_not_allowed(
        self, request: Any, *args: Any, **kwargs: Any
    ) -> NoReturn:
        raise ProblemError("not_found", f"There is nothing at {request.path}.")

    get = post = put = patch = delete = options = http_method_not_allowed

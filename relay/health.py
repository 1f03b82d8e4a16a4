"""What the web process says of itself: /healthz, /readyz and /metrics.

Plain views: they need neither Django REST framework nor, but for /metrics, an extra.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, cast

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from relay import metrics
from relay.atomic_requests import never_atomic
from relay.operations import Actor, caller_of_token
from relay.queries import system

__all__ = ["api_missing", "healthz", "metrics_page", "readyz"]

P = ParamSpec("P")
_View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def _answer(status: int, document: object) -> HttpResponse:
    return HttpResponse(
        json.dumps(document), status=status, content_type="application/json"
    )


def _plain(view: _View[P]) -> _View[P]:
    """Answer GET and HEAD; outside of ATOMIC_REQUESTS, kept by nobody on the way."""

    @functools.wraps(view)
    def run(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        response = view(request, *args, **kwargs)
        response["Cache-Control"] = "no-store"
        response["X-Content-Type-Options"] = "nosniff"
        return response

    return cast("_View[P]", never_atomic(require_safe(run)))


def actor_of(request: HttpRequest) -> Actor | None:
    """Return who asks, by a token or the host's session; None if nobody is known."""
    kind, _, secret = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() == "bearer":
        caller = caller_of_token(secret.strip())
        if caller is None:
            return None
        return Actor(
            name=caller.name,
            source="api",
            permissions=caller.permissions,
            rights=caller.rights,
        )
    user: Any = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return None
    return Actor.of_request(request, source="api")


def _refusal(request: HttpRequest, permission: str | None) -> HttpResponse | None:
    """Return what who asks is refused with; None if they may know."""
    try:
        actor = actor_of(request)
    except (OperationalError, InterfaceError):
        reasons = ["the database does not answer"]
        return _answer(503, {"status": "unavailable", "reasons": reasons})
    if actor is None:
        refused = _answer(401, {"detail": "Send a token, or log in."})
        refused["WWW-Authenticate"] = 'Bearer realm="relay"'
        return refused
    if permission is None:
        is_allowed = actor.permissions is None or bool(actor.permissions)
    else:
        is_allowed = actor.may(permission)
        if is_allowed and actor.rights.queues is not None:
            detail = f"{actor.name} is for the jobs of some queues only"
            return _answer(403, {"detail": detail})
    if is_allowed:
        return None
    return _answer(
        403, {"detail": f"{actor.name} lacks {permission or 'any permission'}"}
    )


@_plain
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer that this process is up. The database is not asked, and nobody refused."""
    return _answer(200, system.health())


@_plain
def readyz(request: HttpRequest) -> HttpResponse:
    """Answer 200 if the database answers and fits, else 503 with the reasons."""
    refused = _refusal(request, None)
    if refused is not None:
        return refused
    found = system.readiness()
    return _answer(200 if found["status"] == "ok" else 503, found)


@_plain
def metrics_page(request: HttpRequest) -> HttpResponse:
    """Answer with metrics for Prometheus: of these processes, and of the database.

    404 where the extra metrics is not installed.
    """
    if not metrics.is_available():
        detail = "Metrics need prometheus_client: pip install 'django-relay[metrics]'"
        return _answer(404, {"detail": detail})
    refused = _refusal(request, "view_metrics")
    if refused is not None:
        return refused
    from relay.metrics.exposition import render  # here: it needs prometheus_client

    body, content_type = render(request.headers.get("Accept", ""), _collector())
    return HttpResponse(body, content_type=content_type)


@functools.cache
def _collector() -> Any:
    from relay.metrics.collector import Collector  # here: as above

    return Collector()


@_plain
def api_missing(request: HttpRequest) -> HttpResponse:
    """Say what the REST API needs, where it is not installed."""
    detail = "The REST API needs Django REST framework: pip install 'django-relay[api]'"
    return _answer(404, {"detail": detail})

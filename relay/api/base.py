"""The view that all of the API's views are: who calls, what they may, how it answers.

Nothing here is left to the host's REST_FRAMEWORK, whatever that opens.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from typing import Any, Final, NoReturn
from uuid import UUID

from django.core.signals import got_request_exception
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse
from rest_framework.exceptions import NotAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from relay import counts, traces
from relay.api.auth import Who, who_asks
from relay.api.endpoints import Endpoint, endpoint_of, read_query
from relay.api.fields import Body
from relay.api.problems import PROBLEMS, Problem, ProblemError, problem_of
from relay.api.wire import JsonOnly, JsonParser, JsonRenderer, check_size
from relay.atomic_requests import never_atomic
from relay.ids import read_id, uuid7
from relay.operations import Actor, JobFilter, from_parameters

__all__ = ["ApiView", "address"]

logger = logging.getLogger("relay.api")

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "Vary": "Authorization, Cookie",
    "X-Content-Type-Options": "nosniff",
}


def address(request: HttpRequest | Request, name: str, *args: object) -> str:
    """Return the path of one of the API's addresses, wherever the host has put it."""
    match = request.resolver_match
    place = match.namespace if match is not None else ""
    return reverse(f"{place}:{name}" if place else name, args=args)


class ApiView(APIView):
    """One address of the API. Closed to all whom relay allows nothing."""

    renderer_classes = (JsonRenderer,)
    parser_classes = (JsonParser,)
    authentication_classes = ()
    permission_classes = ()
    throttle_classes = ()
    content_negotiation_class = JsonOnly
    metadata_class = None
    versioning_class = None
    schema = None  # of relay's own document, not of the host's

    # Set for each request.
    who: Who
    about: Endpoint
    query: Mapping[str, Any]
    request_id: str

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        """Return the view; never in the host's ATOMIC_REQUESTS: acts have their own."""
        return never_atomic(super().as_view(**initkwargs))

    @property
    def actor(self) -> Actor:
        """Who asks, for relay.operations and relay.queries."""
        return self.who.actor

    # --- the way in ------------------------------------------------------------------

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if (tracer := traces.tracer()) is None:
            return super().dispatch(request, *args, **kwargs)
        with tracer.under(request.headers):
            return super().dispatch(request, *args, **kwargs)

    def initialize_request(
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> Request:
        given = request.headers.get("X-Request-ID", "")
        self.request_id = given if _REQUEST_ID.fullmatch(given) else uuid7().hex
        self._begun_at = time.monotonic()
        return super().initialize_request(request, *args, **kwargs)

    def get_format_suffix(self, **kwargs: Any) -> None:
        return None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        request.accepted_renderer = JsonRenderer()
        request.accepted_media_type = JsonRenderer.media_type
        check_size(_content_length(request))
        who = who_asks(request, self.request_id)
        if who is None:
            raise NotAuthenticated(
                "Send a token, as Authorization: Bearer rly_..., or log in."
            )
        self.who = who
        self._check_known()
        about = endpoint_of(self, request.method or "")
        if about is None:
            return  # which http_method_not_allowed answers
        self.about = about
        self._check_allowed(about)
        for value in kwargs.values():
            if "\x00" in value:
                raise ProblemError("not_found", "There is nothing at this address.")
        self.query, filters = read_query(about, request.query_params)
        self.wanted = self._filter(filters) if about.has_filter else JobFilter(())

    def _check_known(self) -> None:
        if self.actor.permissions is not None and not self.actor.permissions:
            raise ProblemError(
                "not_allowed", f"{self.actor.name} has no permission of relay's"
            )

    def _check_allowed(self, about: Endpoint) -> None:
        if about.permission is not None:
            self.actor.require(about.permission, _act_of(about))
        if self.who.is_limited and not about.is_for_some:
            raise ProblemError(
                "not_allowed",
                f"{self.actor.name} is for the jobs of some queues only: this needs a "
                "token without such a limit",
            )

    def _filter(self, given: Mapping[str, str]) -> JobFilter:
        wanted = from_parameters(given)
        for permission in sorted(wanted.permissions):
            self.actor.require(permission, "ask for arguments")
        return self.who.narrowed(wanted)

    def read(self, request: Request, body: type[Body] | None = None) -> dict[str, Any]:
        """Return what the body says.

        Args:
            body: by which it is read; that of the endpoint unless given.

        Raises:
            ProblemError, ValidationError: it cannot be taken.
        """
        made = (body or self.about.body or Body)(data=request.data or {})
        made.is_valid(raise_exception=True)
        return dict(made.validated_data)

    def job_id(self, text: str) -> UUID:
        """Return an id of an address.

        Raises:
            ProblemError: it can be none.
        """
        found = read_id(text)
        if found is None:
            raise ProblemError("not_found", f"{text!r} is no id: give all of it")
        return found

    # --- the way out -----------------------------------------------------------------

    def page(self, request: Request, found: Mapping[str, Any]) -> Response:
        """Answer with a page, its cursors as addresses."""
        document = dict(found)
        for name in ("next", "previous"):
            if document[name] is not None:
                query = request.query_params.copy()
                query["cursor"] = document[name]
                document[name] = f"{request.path}?{query.urlencode()}"
        return Response(document)

    def options(self, request: Any, *args: Any, **kwargs: Any) -> Response:
        return Response(None, status=204)

    def http_method_not_allowed(
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> NoReturn:
        raise ProblemError(
            "method_not_allowed", f"{request.method} is not for this address."
        )

    def handle_exception(self, exc: Exception) -> Response:
        problem = problem_of(exc)
        if problem.status == 500:
            logger.error(
                "request failed",
                exc_info=exc,
                extra={"event": "api.error", "request_id": self.request_id},
            )
            # As Django tells those who report errors, and its test client.
            got_request_exception.send(sender=type(self), request=self.request)
        response = Response(
            self._document(problem),
            status=problem.status,
            content_type="application/problem+json",
            headers=dict(problem.headers),
        )
        if problem.status == 401:
            response["WWW-Authenticate"] = 'Bearer realm="relay"'
        response.exception = True
        return response

    def _document(self, problem: Problem) -> dict[str, Any]:
        kind = PROBLEMS[problem.code]
        return {
            "type": f"{address(self.request, 'docs')}#{problem.code}",
            "title": kind.title,
            "status": kind.status,
            "detail": problem.detail,
            "instance": self.request.path,
            "code": problem.code,
            "request_id": self.request_id,
            "errors": list(problem.errors),
            **problem.more,
        }

    def finalize_response(
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> Response:
        done = super().finalize_response(request, response, *args, **kwargs)
        for name, value in _HEADERS.items():
            done[name] = value
        done["X-Request-ID"] = self.request_id
        self._note(done)
        return done

    def _note(self, response: HttpResponseBase) -> None:
        match = self.request.resolver_match
        route = (match.url_name if match is not None else None) or "unknown"
        seconds = time.monotonic() - self._begun_at
        method = str(self.request.method) if self._is_known() else "other"
        who = getattr(self, "who", None)
        self._count(route, response.status_code, seconds)
        logger.info(
            "request answered",
            extra={
                "event": "api.request",
                "method": method,
                "route": route,
                "status": response.status_code,
                "duration_s": round(seconds, 6),
                "request_id": self.request_id,
                "actor": None if who is None else who.actor.name,
                "token": None if who is None else who.token,
            },
        )

    def _count(self, route: str, status: int, seconds: float) -> None:
        """Count the answer. What strangers send makes no series of its own."""
        method = str(self.request.method)
        if endpoint_of(self, method) is None:
            method = "other"
        elif method == "HEAD":
            method = "GET"
        name = "relay_api_requests_total"
        counts.add(name, route, method, f"{status // 100}xx")
        if hasattr(self, "about"):
            name = "relay_api_request_duration_seconds"
            counts.add_time(name, route, method, seconds=seconds)

    def _is_known(self) -> bool:
        return str(self.request.method).lower() in self.http_method_names


def _act_of(about: Endpoint) -> str:
    """Return what an endpoint does, as a part of "they may not …"."""
    text = re.split("[;,]", about.summary, maxsplit=1)[0].rstrip(".")
    return text[:1].lower() + text[1:]


def _content_length(request: Request) -> int:
    text = request.META.get("CONTENT_LENGTH") or "0"
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0

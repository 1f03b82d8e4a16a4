"""Who calls: the holder of a token, a user with a session, or whom the host knows."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Final

from django.http import HttpRequest
from django.utils.module_loading import import_string
from rest_framework import authentication
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from relay.api.problems import ProblemError
from relay.conf import get_settings
from relay.exceptions import SettingsError
from relay.operations import Actor, JobFilter, caller_of_token
from relay.operations.job_filter import Term
from relay.operations.tokens import TOKEN_PREFIX

__all__ = [
    "SessionAuthentication",
    "Who",
    "who_asks",
]

# Why an act is asked for, in the words of who asks, as the record has it.
REASON_HEADER: Final = "Relay-Reason"
_OF_WHAT_THEY_CHANGED: Final = frozenset(
    {
        *("view_job", "view_queue", "view_worker", "view_schedule"),
        *("view_bulkoperation", "view_apitoken"),
        "view_metrics",  # where marks are seen
    }
)


class SessionAuthentication(authentication.SessionAuthentication):
    """The session of the host's login; what changes something needs its CSRF token."""


class Who:
    """Who sent a request, and what of relay they may see and do.

    Attributes:
        actor: for relay.operations and relay.queries.
        queues: the only ones whose jobs they may deal with; None for all.
        key: of this caller and nobody else, for what is counted or kept by caller.
        token: the id of their token; None of who has logged in otherwise.
    """

    def __init__(
        self,
        actor: Actor,
        *,
        key: str,
        queues: frozenset[str] | None = None,
        token: str | None = None,
    ) -> None:
        self.actor = actor
        self.token = token
        self.key = key
        self.queues = queues

    @property
    def is_limited(self) -> bool:
        """Whether a token is for the jobs of some queues only."""
        return self.queues is not None

    def sees_queue(self, queue: str) -> bool:
        """Tell whether jobs of the queue are theirs to deal with."""
        return self.queues is None or queue in self.queues

    def require_queue(self, queue: str) -> None:
        """Let it go on if jobs of the queue are theirs.

        Raises:
            ProblemError: they are not.
        """
        if not self.sees_queue(queue):
            raise ProblemError(
                "not_allowed",
                f"{self.actor.name} is not for the queue {queue!r}, but for "
                f"{', '.join(sorted(self.queues or ()))}",
            )

    def narrowed(self, wanted: JobFilter) -> JobFilter:
        """Return a filter for those of the jobs that are theirs to deal with."""
        if self.queues is None:
            return wanted
        term = Term("queue", tuple(sorted(self.queues)))
        return JobFilter((*wanted.terms, term), wanted.words)

    def seeing(self) -> Actor:
        """Return the actor for a look at what they have just changed themselves."""
        permissions = self.actor.permissions
        if permissions is None:
            return self.actor
        return replace(self.actor, permissions=permissions | _OF_WHAT_THEY_CHANGED)


@cache
def _classes(paths: tuple[str, ...]) -> list[type[BaseAuthentication]]:
    try:
        return [import_string(path) for path in paths]
    except ImportError as error:
        raise SettingsError(
            f"RELAY['API']['AUTHENTICATION_CLASSES']: {error}; give dotted paths of "
            "authentication classes of Django REST framework"
        ) from error


def _reason(request: Request) -> str | None:
    """Return why it is asked for: in UTF-8, or else as HTTP has it, in Latin-1."""
    text: str | None = request.headers.get(REASON_HEADER)
    if text is None:
        return None
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text


def who_asks(request: Request, request_id: str) -> Who | None:
    """Return who sent a request: the holder of its token, or whom a class knows.

    Raises:
        AuthenticationFailed: the token is none of relay's, expired or revoked.
        PermissionDenied: a session comes without its CSRF token.
        SettingsError: a class in RELAY["API"] cannot be imported.
    """
    reason = _reason(request)
    http: HttpRequest = request._request
    kind, _, secret = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() == "bearer" and secret.strip().startswith(TOKEN_PREFIX):
        caller = caller_of_token(secret.strip())
        if caller is None:
            raise AuthenticationFailed("The token is none, expired or revoked.")
        actor = Actor(
            name=caller.name,
            source="api",
            permissions=caller.permissions,
            rights=caller.rights,
            reason=reason,
            request_id=request_id,
            address=http.META.get("REMOTE_ADDR") or None,
        )
        token = str(caller.token_id)
        return Who(actor, key=f"token {token}", queues=caller.queues, token=token)
    for known_by in _classes(get_settings().api.authentication_classes):
        found = known_by().authenticate(request)
        if found is not None and found[0] is not None and found[0].is_authenticated:
            http.user = found[0]
            actor = Actor.of_request(
                http, source="api", reason=reason, request_id=request_id
            )
            return Who(actor, key=f"user {found[0].pk or actor.name}")
    if kind.lower() == "bearer":
        raise AuthenticationFailed("The token is none, expired or revoked.")
    return None

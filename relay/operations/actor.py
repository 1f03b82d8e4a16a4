"""Who asks for an act, from where and why; and what they may do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from django.http import HttpRequest
from django.utils.module_loading import import_string

from relay.conf import get_settings
from relay.exceptions import NotAllowed, SettingsError

__all__ = ["PERMISSIONS", "Actor", "Source"]

Source = Literal["dashboard", "admin", "api", "cli", "system"]

# Each is a permission of Django's, relay.<name>, on the model it speaks of.
PERMISSIONS: Final = frozenset(
    {
        "view_job",
        "view_payload",
        "enqueue_job",
        "cancel_job",
        "retry_job",
        "edit_job",
        "delete_job",
        "bulk_job",
        "view_queue",
        "manage_queue",
        "view_worker",
        "manage_worker",
        "view_schedule",
        "manage_schedule",
        "run_schedule",
        "view_metrics",
        "view_audit",
        "view_bulkoperation",
        "view_apitoken",
        "manage_token",
    }
)

# Longest that a reason, a name or a request's id is written.
_LONGEST: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who asks for an act, and through which surface.

    Attributes:
        name: as it is written to the audit and to a job's history.
        permissions: what they may do, of PERMISSIONS; None is everything.
        reason: why, in their words.
        request_id: of the request that carried it.
        address: where it came from.
    """

    name: str
    source: Source
    permissions: frozenset[str] | None = field(default=None, repr=False)
    reason: str | None = None
    request_id: str | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        for name in ("name", "reason", "request_id", "address"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _plain(value))
        if not self.name:
            raise ValueError("an actor needs a name: an act without one is nobody's")

    @classmethod
    def of_request(
        cls,
        request: HttpRequest,
        *,
        source: Source,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> Actor:
        """Return who sent a request, with what RELAY["ACCESS"] or Django allows them.

        Args:
            request_id: the header X-Request-ID unless given.
        """
        user = getattr(request, "user", None)
        return cls(
            name=_name_of(user),
            source=source,
            permissions=_allowed(request, user),
            reason=reason or None,
            request_id=request_id or request.headers.get("X-Request-ID"),
            address=request.META.get("REMOTE_ADDR") or None,
        )

    def may(self, permission: str) -> bool:
        """Tell whether they have the permission; with READ_ONLY only to look."""
        if permission not in PERMISSIONS:
            raise ValueError(f"{permission!r} is no permission of relay's")
        if get_settings().read_only and not permission.startswith("view_"):
            return False
        return self.permissions is None or permission in self.permissions

    def require(self, permission: str, operation: str) -> None:
        """Let the act go on if they may do it.

        Raises:
            NotAllowed: they may not.
        """
        if self.may(permission):
            return
        is_closed = get_settings().read_only and not permission.startswith("view_")
        remedy = (
            "is given to nobody while RELAY['READ_ONLY'] is True"
            if is_closed
            else "is missing"
        )
        raise NotAllowed(self.name, operation.replace("_", " "), permission, remedy)


def _name_of(user: Any) -> str:
    if user is None or not user.is_authenticated:
        return "anonymous"
    return str(user.get_username()) or f"user {user.pk}"


def _allowed(request: HttpRequest, user: Any) -> frozenset[str]:
    path = get_settings().access
    if path is not None:
        given = _callable(path)(request)
        if given is not None:
            return frozenset(given) & PERMISSIONS
    if user is None or not user.is_authenticated:
        return frozenset()
    return frozenset(each for each in PERMISSIONS if user.has_perm(f"relay.{each}"))


def _callable(path: str) -> Any:
    try:
        return import_string(path)
    except ImportError as error:
        raise SettingsError(
            f"RELAY['ACCESS'] is {path!r}, which cannot be imported ({error}): give "
            "the dotted path of a callable that takes a request"
        ) from error


def _plain(text: str) -> str:
    """Return a text on one line that no reader of a log takes for two.

    Control characters, NUL and lone surrogates are written as escapes.
    """
    shown = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in text.strip()
    )
    return shown[:_LONGEST]

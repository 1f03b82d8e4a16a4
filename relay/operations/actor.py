"""Who asks for an act, from where and why; and what they may do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn

from django.http import HttpRequest
from django.utils.module_loading import import_string

from relay.conf import get_settings
from relay.exceptions import NotAllowed, SettingsError
from relay.operations.rights import Rights, asked_permissions, permission_of_task

__all__ = ["PERMISSIONS", "Actor", "Source", "why_of"]

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
        "add_audit",
        "view_bulkoperation",
        "view_apitoken",
        "manage_token",
    }
)

# Longest that a reason, a name or a request's id is written.
_LONGEST: Final = 500
# The same in the history of each job.
_SHORT: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who asks for an act, and through which surface.

    Attributes:
        name: as it is written to the audit and to a job's history.
        permissions: what they may do, of PERMISSIONS; None is everything.
        rights: which tasks they may have run, and in which queues; all of them where
            permissions is None.
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
    rights: Rights = field(default=Rights(), repr=False)

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
        held = _held(request, user)
        own = frozenset(f"relay.{each}" for each in held & PERMISSIONS)
        return cls(
            name=_name_of(user),
            source=source,
            permissions=held & PERMISSIONS,
            rights=Rights(permissions=held | own),
            reason=reason or None,
            request_id=request_id or request.headers.get("X-Request-ID"),
            address=request.META.get("REMOTE_ADDR") or None,
        )

    @property
    def why(self) -> dict[str, str]:
        """What is told of an act in the histories of its jobs, besides the name."""
        return why_of(self.source, self.reason, self.request_id)

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

    @property
    def limits(self) -> Rights | None:
        """What they may have run, and where; None for everything."""
        return None if self.permissions is None else self.rights

    def may_call(self, task: str) -> bool:
        """Tell whether they may have the task run, as far as the task is concerned."""
        return self.limits is None or self.limits.has_task(task)

    def may_fill(self, queue: str) -> bool:
        """Tell whether they may put a job into the queue, as far as that asks."""
        return self.limits is None or self.limits.has_queue(queue)

    def require_call(self, task: str, operation: str) -> None:
        """Let the act go on if they may have the task run.

        Raises:
            NotAllowed: they may not.
        """
        if not self.may_call(task):
            self.refuse_call(task, operation)

    def refuse_call(self, task: str, operation: str) -> NoReturn:
        """Say why they may not have a task, or those that a pattern means, run.

        Raises:
            NotAllowed: always.
        """
        asked = permission_of_task(task)
        self._refuse(operation, f"the task {task!r}", asked, self.rights.tasks)

    def require_fill(self, queue: str, operation: str) -> None:
        """Let the act go on if they may put a job into the queue.

        Raises:
            NotAllowed: they may not.
        """
        if not self.may_fill(queue):
            asked = get_settings().queue_permissions.get(queue)
            self._refuse(operation, f"the queue {queue!r}", asked, self.rights.queues)

    def _refuse(
        self,
        operation: str,
        what: str,
        asked: str | None,
        named: Collection[str] | None,
    ) -> NoReturn:
        if asked is None:
            listed = ", ".join(sorted(named or ()))
            asked, remedy = "enqueue_job", f"is for {listed} alone, not for {what}"
        elif self.rights.permissions is None:
            remedy = f"is that of tokens which name {what} in full: make one that does"
        else:
            remedy = f"is missing, for which {what} asks"
        raise NotAllowed(self.name, operation.replace("_", " "), asked, remedy)


def why_of(source: str, reason: str | None, request_id: str | None) -> dict[str, str]:
    """Return what the histories of an act's jobs tell, without what is not known.

    It is short, as each job of a bulk operation has it; the record has it whole.
    """
    known = {"source": source, "reason": reason, "request_id": request_id}
    return {name: text[:_SHORT] for name, text in known.items() if text}


def _name_of(user: Any) -> str:
    if user is None or not user.is_authenticated:
        return "anonymous"
    return str(user.get_username()) or f"user {user.pk}"


def _held(request: HttpRequest, user: Any) -> frozenset[str]:
    """Return relay's permissions by their names, and those of the host's."""
    path = get_settings().access
    if path is not None:
        given = _callable(path)(request)
        if given is not None:
            return frozenset(given)
    if user is None or not user.is_authenticated:
        return frozenset()
    own = frozenset(each for each in PERMISSIONS if user.has_perm(f"relay.{each}"))
    return own | {each for each in asked_permissions() if user.has_perm(each)}


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

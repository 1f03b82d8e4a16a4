"""What was made, as it may be seen now: for answers that are given once more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from relay.api.auth import Who
from relay.exceptions import NotFound
from relay.operations import PERMISSIONS, Actor
from relay.queries import bulk, jobs, schedules

__all__ = ["BULK", "JOB", "SCHEDULE", "Look"]

_PAYLOAD: Final = "view_payload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How an answer's document is read again.

    Attributes:
        permission: what who looks at it by its address needs.
        read: returns it as an actor sees it.
    """

    permission: str
    read: Callable[[Actor, Mapping[str, Any]], Mapping[str, Any]]

    def without_payload(self, who: Who, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the document with what only view_payload shows as nobody sees it."""
        return self._shown(who, document, shown=False)

    def as_seen(self, who: Who, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a document that was kept, with the payload if they may see it now.

        It is that of the row as it stands; of one that is gone, or in a queue that is
        not theirs, it stays away.
        """
        shown = who.actor.may(_PAYLOAD) and who.actor.may(self.permission)
        try:
            return self._shown(who, document, shown=shown)
        except NotFound:
            return dict(document)

    def _shown(
        self, who: Who, document: Mapping[str, Any], *, shown: bool
    ) -> dict[str, Any]:
        actor = who.seeing()
        held = PERMISSIONS if actor.permissions is None else actor.permissions
        full, bare = (
            self.read(replace(actor, permissions=each), document)
            for each in (held | {_PAYLOAD}, held - {_PAYLOAD})
        )
        hidden = {name for name, value in full.items() if value != bare[name]}
        queue = full.get("queue")
        is_theirs = not isinstance(queue, str) or who.sees_queue(queue)
        found = full if shown and is_theirs else bare
        return {
            name: found[name] if name in hidden and value is not None else value
            for name, value in document.items()
        }


JOB: Final = Look(
    permission="view_job", read=lambda actor, job: jobs.get_job(actor, job["id"])
)
SCHEDULE: Final = Look(
    permission="view_schedule",
    read=lambda actor, each: schedules.get_schedule(actor, each["name"]),
)
BULK: Final = Look(
    permission="view_bulkoperation",
    read=lambda actor, each: bulk.get_bulk(actor, each["id"]),
)

"""What spans call things: relay's own names, and beside them those of messaging.

OpenTelemetry's conventions for messaging are in development: their names may change, so
spans have them only where OTEL_SEMCONV_STABILITY_OPT_IN asks for it.
Source: docs/reference/spans.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from relay.tracing.edge import opted_in

__all__ = ["Attributes", "Names"]

Attributes = dict[str, str | int | float]

STABILITY: Final = "OTEL_SEMCONV_STABILITY_OPT_IN"
_ASKING: Final = frozenset({"messaging", "messaging/dup"})

JOB: Final = "relay.job.id"
_MESSAGING: Final[Mapping[str, tuple[str, ...]]] = {
    "relay.operation": ("messaging.operation.name", "messaging.operation.type"),
    "relay.queue": ("messaging.destination.name",),
    "relay.jobs": ("messaging.batch.message_count",),
    "relay.worker.id": ("messaging.client.id",),
    JOB: ("messaging.message.id",),
}


class Names:
    """Names attributes, as the project's environment asks for when this is made."""

    def __init__(self) -> None:
        self._has_messaging = not _ASKING.isdisjoint(opted_in(STABILITY))

    def of(self, operation: str, queue: str, more: Attributes) -> Attributes:
        """Return the attributes of a span, from those under relay's own names."""
        own: Attributes = {"relay.operation": operation, "relay.queue": queue, **more}
        if not self._has_messaging:
            return own
        return {"messaging.system": "relay", **own, **_translated(own)}

    def of_job(self, job_id: object) -> Attributes:
        """Return those that a span gets once its job has an id."""
        own: Attributes = {JOB: str(job_id)}
        return own | _translated(own) if self._has_messaging else own


def _translated(own: Attributes) -> Attributes:
    return {
        name: value for key, value in own.items() for name in _MESSAGING.get(key, ())
    }

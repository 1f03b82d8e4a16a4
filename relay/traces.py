"""Where traces hook in: relay.tracing, where OpenTelemetry is there and set up.

Without a tracer nothing here costs more than a look at one name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol
from uuid import UUID

__all__ = ["META_NAME", "Tracer", "current_ids", "install", "tracer", "with_carrier"]

# Under this name a job's meta holds the context in which it was enqueued.
META_NAME: Final = "otel"


class Traced(Protocol):
    """What a tracer sees of an attempt: a ClaimedJob."""

    @property
    def id(self) -> UUID: ...
    @property
    def task(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def args(self) -> Any: ...
    @property
    def wait_s(self) -> float: ...
    @property
    def trace(self) -> str | None: ...


class Tracer(Protocol):
    """What makes spans. Any thread and any coroutine may call it."""

    @property
    def is_on(self) -> bool:
        """Whether spans go anywhere."""

    def send(
        self, queue: str, task: str, jobs: int
    ) -> AbstractContextManager[Mapping[str, str] | None]:
        """Surround an enqueue; give what its jobs are to carry, if anything."""

    def process(self, job: Traced, worker_id: UUID) -> AbstractContextManager[object]:
        """Surround a handler, whose job carries what send() gave."""

    def under(self, headers: Mapping[str, str]) -> AbstractContextManager[object]:
        """Surround what a request asks for, whose headers may name a trace."""

    def ids(self) -> tuple[str, str] | None:
        """Return the ids of the trace and the span that are current, if any are."""


_tracer: Tracer | None = None


def install(one: Tracer | None) -> None:
    """Have every enqueue and handler surrounded by this one; None for nobody."""
    global _tracer
    _tracer = one


def tracer() -> Tracer | None:
    """Return who makes spans; None if nobody does."""
    return None if _tracer is None or not _tracer.is_on else _tracer


def current_ids() -> tuple[str, str] | None:
    """Return the ids of the trace and the span that are current, if any are."""
    return None if _tracer is None else _tracer.ids()


def with_carrier(meta: str | None, carrier: Mapping[str, str]) -> str:
    """Return a job's meta, as JSON, with what send() gave."""
    return json.dumps({**json.loads(meta or "{}"), META_NAME: dict(carrier)})

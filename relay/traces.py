"""Where traces hook in: relay.tracing, where OpenTelemetry is there and set up.

Without a tracer nothing here costs more than a look at one name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol
from uuid import UUID

__all__ = [
    "META_NAME",
    "Fired",
    "Tracer",
    "current_ids",
    "flush",
    "install",
    "tracer",
    "with_carrier",
]

# Under this name a job's meta holds the context in which it was enqueued, the id of the
# request that asked for it, and the span of its last attempt that is to be followed by
# another.
META_NAME: Final = "otel"


class Sendable(Protocol):
    """What a tracer sees of a job that is to be enqueued: a JobRequest."""

    @property
    def task(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def priority(self) -> int: ...


class Made(Sendable, Protocol):
    """What a tracer sees of a job that a schedule makes: a NewJob."""

    @property
    def id(self) -> UUID: ...


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


class Sent(Protocol):
    """An enqueue that is under way."""

    @property
    def carriers(self) -> Sequence[Mapping[str, str]]:
        """What each of its jobs is to carry, in their order; empty is nothing."""

    def made(self, ids: Sequence[UUID]) -> None:
        """Take in the ids of the jobs that there are now, in the same order."""


class Fired(Protocol):
    """An occurrence of a schedule whose job is being enqueued."""

    @property
    def carrier(self) -> Mapping[str, str]:
        """What its job is to carry; empty is nothing."""

    def end(self, error: BaseException | None = None) -> None:
        """Take it that the job is there, or why it is not."""


class Tracer(Protocol):
    """What makes spans. Any thread and any coroutine may call it."""

    @property
    def is_on(self) -> bool:
        """Whether spans go anywhere."""

    def send(self, jobs: Sequence[Sendable]) -> AbstractContextManager[Sent]:
        """Surround an enqueue of one job or more."""

    def fire(self, schedule: str, due_at: str, job: Made) -> Fired:
        """Begin to enqueue the job of a schedule for an instant; end() must follow."""

    def receive(self, jobs: Sequence[Traced], worker_id: UUID, seconds: float) -> None:
        """Take in jobs that a claim, which took so long, has brought just now."""

    def process(self, job: Traced, worker_id: UUID) -> AbstractContextManager[object]:
        """Surround a handler, whose job carries what send() gave."""

    def ran(self, job_id: UUID, attempt: int) -> str | None:
        """Return the span of an attempt that has ended here; None if it has none."""

    def note_ran(self, job_id: UUID, attempt: int, span: str) -> None:
        """Take in the span of an attempt that ran in a process apart, as ran() says."""

    def settle(
        self,
        ends: Sequence[tuple[Traced, str | None]],
        worker_id: UUID,
        seconds: float,
    ) -> None:
        """Take in that a worker wrote attempts' ends just now, which took so long.

        Args:
            ends: each with the state of its job now, or None where the handler's own
                transaction has written it. ran() knows nothing of them any more.
        """

    def under(self, headers: Mapping[str, str]) -> AbstractContextManager[object]:
        """Surround what a request asks for, whose headers may name a trace."""

    def ids(self) -> tuple[str, str] | None:
        """Return the ids of the trace and the span that are current, if any are."""

    def flush(self) -> None:
        """Send on what was made, as this process ends; give up after a moment."""


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


def flush() -> None:
    """Send on the spans that were made, as this process ends."""
    if (one := tracer()) is not None:
        one.flush()


def with_carrier(meta: str | None, carrier: Mapping[str, str]) -> str:
    """Return a job's meta, as JSON, with what send() gave beside what it carries."""
    values = json.loads(meta or "{}")
    return json.dumps({**values, META_NAME: {**values.get(META_NAME, {}), **carrier}})

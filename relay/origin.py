"""What an enqueue comes from, for logs: the surface it was asked by, and the request.

A request's id goes with its jobs, and with theirs, so that one query finds the lines of
all of them. Where none is set nothing is carried.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from relay.packing import clean_text

__all__ = ["REQUEST_ID", "asked_by", "current_job", "request_id", "source", "take_over"]

# Under this name it stands in what a job carries, beside its trace: see relay.traces.
REQUEST_ID: Final = "request_id"
_LONGEST: Final = 128

# The facts of the job that is running here, as relay.context has them.
current_job: Final[ContextVar[Any]] = ContextVar("relay_current_job")
_source: Final[ContextVar[str | None]] = ContextVar("relay_source", default=None)
_request_id: Final[ContextVar[str | None]] = ContextVar(
    "relay_request_id", default=None
)


def source() -> str:
    """Return what an enqueue here comes from.

    The surface by which somebody asks for it, "job" in a handler, or "code".
    """
    if (found := _source.get()) is not None:
        return found
    return "code" if current_job.get(None) is None else "job"


def request_id() -> str | None:
    """Return the id of the request, or of the one that the running job comes of."""
    return _request_id.get()


@contextmanager
def asked_by(surface: str | None, request: str | None) -> Iterator[None]:
    """Let what is enqueued inside come from here; None leaves what holds outside."""
    before = _source.get(), _request_id.get()
    if surface is not None:
        _source.set(surface)
    if request:
        _request_id.set(clean_text(request, limit=_LONGEST))
    try:
        yield
    finally:
        _source.set(before[0])
        _request_id.set(before[1])


def take_over(carried: str) -> None:
    """Go on, for the rest of this context, with the request that a job comes of.

    Args:
        carried: what the job carries, as JSON; most of it carries a trace alone.
    """
    if REQUEST_ID not in carried:
        return
    try:
        found = json.loads(carried).get(REQUEST_ID)
    except (ValueError, AttributeError):  # written by hand
        return
    if isinstance(found, str):
        _request_id.set(clean_text(found, limit=_LONGEST))

"""Handlers inside a span. Here, as no frame of this folder shows in tracebacks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from relay.engine.claim import ClaimedJob
from relay.traces import Tracer

__all__ = ["traced", "traced_coroutine"]


def traced(
    tracer: Tracer, function: Callable[..., Any], job: ClaimedJob, worker_id: UUID
) -> Callable[..., Any]:
    """Return a function to call in place of a handler."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with tracer.process(job, worker_id):
            return function(*args, **kwargs)

    return call


def traced_coroutine(
    tracer: Tracer,
    function: Callable[..., Awaitable[Any]],
    job: ClaimedJob,
    worker_id: UUID,
) -> Callable[..., Awaitable[Any]]:
    """Return a coroutine function to call in place of a handler."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        with tracer.process(job, worker_id):
            return await function(*args, **kwargs)

    return call

"""Spans of enqueues and of attempts, named as OpenTelemetry names messaging."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from typing import Final
from uuid import UUID

from opentelemetry import context, trace
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from relay.conf import get_settings
from relay.exceptions import Cancel, Cancelled, Snooze
from relay.sensitive import has_sealed
from relay.traces import Traced

__all__ = ["OpenTelemetryTracer"]

LOOK_SECONDS: Final = 1.0
# W3C trace context alone: what else a request carries, as baggage, is not the job's.
_PROPAGATOR: Final = TraceContextTextMapPropagator()
# How handlers steer; none of them is an error.
_STEERING: Final = (Snooze, Cancel, Cancelled)


class OpenTelemetryTracer:
    """Makes spans by OpenTelemetry's API.

    Args:
        provider: the global one unless given.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        version = metadata.version("django-relay")
        self._is_on = provider is not None
        self._look_at = 0.0
        self._tracer = trace.get_tracer("relay", version, provider)

    @property
    def is_on(self) -> bool:
        """Whether somebody has set a provider: without one, spans go nowhere.

        Looked for once a second: the look takes a tenth of what a short job does.
        """
        if not self._is_on and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_SECONDS
            provider = trace.get_tracer_provider()
            self._is_on = not isinstance(provider, trace.ProxyTracerProvider)
        return self._is_on

    @contextmanager
    def send(
        self, queue: str, task: str, jobs: int
    ) -> Iterator[Mapping[str, str] | None]:
        """Surround an enqueue; give the context for its jobs to carry."""
        attributes: dict[str, str | int] = {
            **_messaging(queue, "send"),
            "relay.task": task,
        }
        if jobs != 1:
            attributes["messaging.batch.message_count"] = jobs
        with self._tracer.start_as_current_span(
            f"send {queue}", kind=SpanKind.PRODUCER, attributes=attributes
        ):
            carrier: dict[str, str] = {}
            _PROPAGATOR.inject(carrier)
            yield carrier or None

    @contextmanager
    def process(self, job: Traced, worker_id: UUID) -> Iterator[Span]:
        """Surround a handler: a child of the enqueue, or a new trace with a link to it.

        An error's message may quote what the job was given: where some of that is
        sensitive, the span has its class alone.
        """
        sent = _extract(job.trace)
        creation = trace.get_current_span(sent).get_span_context()
        is_child = get_settings().trace_parent
        with self._tracer.start_as_current_span(
            f"process {job.queue}",
            context=sent if is_child else context.Context(),
            kind=SpanKind.CONSUMER,
            links=[Link(creation)] if creation.is_valid and not is_child else None,
            attributes={
                **_messaging(job.queue, "process"),
                "messaging.message.id": str(job.id),
                "messaging.client.id": str(worker_id),
                "relay.task": job.task,
                "relay.attempt": job.attempt,
                "relay.worker.id": str(worker_id),
                "relay.wait_s": job.wait_s,
            },
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except _STEERING:
                raise
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                if not has_sealed(job.args):
                    span.record_exception(error)
                raise

    @contextmanager
    def under(self, headers: Mapping[str, str]) -> Iterator[None]:
        """Go on with the trace that a request names, unless one is current already."""
        if trace.get_current_span().get_span_context().is_valid:
            yield
            return
        named = {name.lower(): value for name, value in headers.items()}
        token = context.attach(_PROPAGATOR.extract(named))
        try:
            yield
        finally:
            context.detach(token)

    def ids(self) -> tuple[str, str] | None:
        """Return the ids of the trace and the span that are current, if any are."""
        found = trace.get_current_span().get_span_context()
        if not found.is_valid:
            return None
        return trace.format_trace_id(found.trace_id), trace.format_span_id(
            found.span_id
        )


def _messaging(queue: str, operation: str) -> dict[str, str | int]:
    return {
        "messaging.system": "relay",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
    }


def _extract(carried: str | None) -> context.Context:
    """Return the context in which a job was enqueued; an empty one of none."""
    try:
        carrier = json.loads(carried or "{}")
        return _PROPAGATOR.extract(carrier, context=context.Context())
    except (ValueError, TypeError, AttributeError):  # written by hand
        return context.Context()

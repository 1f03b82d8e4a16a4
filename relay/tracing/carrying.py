"""What a job carries from one process to the next, and what is read of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from opentelemetry import context, trace
from opentelemetry.trace import Link, Span, SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

__all__ = ["carrier_of", "from_headers", "links_to", "read", "text_of", "under"]

# W3C trace context alone: what else a request carries, as baggage, is not the job's.
_PROPAGATOR: Final = TraceContextTextMapPropagator()
# Beside the context of the enqueue: the span of the attempt before. As engine/trace.py
# writes it.
_PREVIOUS: Final = "previous"


def carrier_of(span: Span) -> Mapping[str, str]:
    """Return what a job carries that is enqueued inside of a span."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, context=trace.set_span_in_context(span))
    return carrier


def read(carried: str | None) -> tuple[context.Context, SpanContext, SpanContext]:
    """Return where a job was enqueued, as a context and its span; and its last run.

    Each is empty, or of no span, where it is not known.
    """
    try:
        carrier = json.loads(carried or "{}")
        sent = _extract(carrier)
        previous = _extract({"traceparent": carrier.get(_PREVIOUS, "")})
    except (ValueError, TypeError, AttributeError):  # written by hand
        sent = previous = context.Context()
    return sent, _span_of(sent), _span_of(previous)


def under(text: str) -> context.Context:
    """Return the context in which a span, as text_of() gave it, is the current one."""
    return _extract({"traceparent": text})


def text_of(span: Span) -> str | None:
    """Return a span's ids as one text, a traceparent; None of one that has none."""
    return carrier_of(span).get("traceparent")


def _span_of(one: context.Context) -> SpanContext:
    """Return the span that is current in a context; an invalid one if none is."""
    return trace.get_current_span(one).get_span_context()


def links_to(*spans: SpanContext) -> list[Link]:
    """Return links to those that are spans."""
    return [Link(span) for span in spans if span.is_valid]


def from_headers(headers: Mapping[str, str]) -> context.Context:
    """Return the context that a request's headers name."""
    return _PROPAGATOR.extract({name.lower(): text for name, text in headers.items()})


def _extract(carrier: Mapping[str, Any]) -> context.Context:
    return _PROPAGATOR.extract(carrier, context=context.Context())

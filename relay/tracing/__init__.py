"""Spans by OpenTelemetry: from a request to its jobs, and to theirs.

They are made where its API is there (extra tracing) and a project sets a tracer
provider. Source: docs/howto/trace.md.
"""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["install", "is_available"]


def is_available() -> bool:
    """Tell whether OpenTelemetry's API is installed."""
    has_any = find_spec("opentelemetry") is not None  # others share the name
    return has_any and find_spec("opentelemetry.trace") is not None


def install() -> None:
    """Make spans from now on, once a tracer provider is set."""
    from relay import traces  # here: is_available() must cost nothing
    from relay.tracing.spans import OpenTelemetryTracer

    traces.install(OpenTelemetryTracer())

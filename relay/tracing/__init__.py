"""Spans and metrics by OpenTelemetry: from a request to its jobs, and to theirs.

They are made where its API is there (extra tracing) and a project sets a provider.
Source: docs/howto/trace.md.
"""

from __future__ import annotations

import logging
from importlib import metadata
from importlib.util import find_spec
from typing import Final

__all__ = ["install", "is_available"]

logger = logging.getLogger("relay.tracing")

# As the extra tracing has it: the first whose loggers take what relay gives them.
LEAST: Final = (1, 40)


def is_available() -> bool:
    """Tell whether OpenTelemetry's API is installed."""
    has_any = find_spec("opentelemetry") is not None  # others share the name
    return has_any and find_spec("opentelemetry.trace") is not None


def install() -> None:
    """Make spans and metrics from now on, once a provider is set."""
    found = metadata.version("opentelemetry-api")
    if tuple(map(int, found.split(".")[:2])) < LEAST:
        # The project's own, not the extra's: it must start all the same.
        logger.warning(
            "OpenTelemetry's API is too old: no spans and no metrics are made; install "
            "'django-relay[tracing]'",
            extra={"event": "trace.too_old", "version": found},
        )
        return
    from relay import traces  # here: is_available() must cost nothing
    from relay.tracing.spans import OpenTelemetryTracer

    traces.install(OpenTelemetryTracer())

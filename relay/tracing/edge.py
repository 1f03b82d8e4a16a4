"""Where the project's telemetry is called: what it raises changes nothing."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from relay.exceptions import SoftTimeout

__all__ = ["edge", "is_proxy", "opted_in", "version"]

logger = logging.getLogger("relay.tracing")


@contextmanager
def edge() -> Iterator[None]:
    """Let no processor and no exporter break an enqueue, a job, a claim or a finish."""
    try:
        yield
    except SoftTimeout:  # the handler's, which comes between any two lines
        raise
    except Exception:  # an edge: the project's code, and what another process told
        logger.exception("OpenTelemetry failed", extra={"event": "trace.failed"})


def version() -> str:
    """Return what is installed of relay, as the scope of all it tells."""
    return metadata.version("django-relay")


def is_proxy(provider: object) -> bool:
    """Tell whether a provider is one of the API's own, which send nothing anywhere."""
    package = type(provider).__module__.split(".")[:2]
    return package[0] == "opentelemetry" and package[1:] != ["sdk"]


def opted_in(variable: str) -> set[str]:
    """Return what a variable asks for of the conventions that are in transition."""
    return {each.strip() for each in os.environ.get(variable, "").split(",")}

"""Prometheus metrics, where prometheus_client is there (extra metrics).

Counters and histograms say what this process, or this worker, has done; Collector says
what the database holds. Names and labels: docs/reference/metrics.md.
"""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["install", "is_available"]


def is_available() -> bool:
    """Tell whether prometheus_client is installed."""
    return find_spec("prometheus_client") is not None


def install() -> None:
    """Count from now on, in this process and those forked from it; once is enough."""
    from relay import counts, probes  # here: is_available() must cost nothing
    from relay.metrics.exposition import render
    from relay.metrics.meters import PrometheusMeter

    if counts.is_on():
        return
    counts.install(PrometheusMeter())
    probes.register("/metrics", render)

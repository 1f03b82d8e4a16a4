"""The sums in this process, as objects of prometheus_client."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import cached_property
from importlib import metadata
from typing import Any, Final

import django
import prometheus_client
from prometheus_client import REGISTRY, CollectorRegistry

from relay.buckets import coarse
from relay.conf import get_settings
from relay.counts import Names
from relay.metrics.exposition import forget_process
from relay.metrics.names import COUNTERS, HISTOGRAMS, RUNNING

__all__ = ["PrometheusMeter"]

# Queues and schedules that are told apart.
_MOST: Final = 200


class PrometheusMeter:
    """Counts with prometheus_client's objects: also across processes, as it does.

    Args:
        registry: where they are shown; the one of the process unless given.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        # Without it each series would have another one that says when it began.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call] # untyped
        self._counters = {
            name: prometheus_client.Counter(name, text, labels, registry=registry)
            for name, (text, labels) in COUNTERS.items()
        }
        self._histograms = {
            name: prometheus_client.Histogram(
                name, each.text, each.labels, registry=registry, buckets=each.bounds
            )
            for name, each in HISTOGRAMS.items()
        }
        self._running = prometheus_client.Gauge(
            RUNNING,
            "Jobs that workers hold now.",
            ("queue",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        build = prometheus_client.Gauge(
            "relay_build_info",
            "1; the labels say what runs.",
            ("version", "django", "python"),
            registry=registry,
            multiprocess_mode="livemax",
        )
        build.labels(
            metadata.version("django-relay"),
            django.get_version(),
            platform.python_version(),
        ).set(1)

    def add(self, name: str, labels: Sequence[str], amount: float) -> None:
        """Add to a counter."""
        self._child(self._counters[name], COUNTERS[name][1], labels).inc(amount)

    def add_times(
        self, name: str, labels: Sequence[str], counts: Sequence[int], seconds: float
    ) -> None:
        """Add to a histogram: counts by buckets.FINE, and the sum of the seconds."""
        if not any(counts):
            return
        about = HISTOGRAMS[name]
        child = self._child(self._histograms[name], about.labels, labels)
        # Past observe(), which takes one at a time.
        child._sum.inc(seconds)
        for bucket, count in zip(
            child._buckets, coarse(counts, about.bounds), strict=True
        ):
            if count:
                bucket.inc(count)

    def put(self, name: str, labels: Sequence[str], value: float) -> None:
        """Set a gauge."""
        self._child(self._running, ("queue",), labels).set(value)

    def forget_process(self, pid: int) -> None:
        """Take it that a process is gone, and its gauges with it."""
        forget_process(pid)

    @cached_property
    def _names(self) -> dict[str, Names]:
        # Not before the first use: settings that cannot be used are for checks to tell.
        limit = get_settings().metrics_max_tasks
        return {"task": Names(limit), "queue": Names(_MOST), "schedule": Names(_MOST)}

    def _child(self, metric: Any, names: Sequence[str], labels: Sequence[str]) -> Any:
        if not names:
            return metric
        values = [
            self._names[name].fold(value) if name in self._names else value
            for name, value in zip(names, labels, strict=True)
        ]
        return metric.labels(*values)

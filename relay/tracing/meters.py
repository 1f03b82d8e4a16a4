"""Metrics by the names of OpenTelemetry's conventions for messaging.

They are in development; relay's own, which do not change, are those for Prometheus.
Source: docs/reference/metrics.md, "By OpenTelemetry".
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Final

from opentelemetry import metrics
from opentelemetry.metrics import MeterProvider

from relay.conf import get_settings
from relay.counts import Names
from relay.traces import Sendable, Traced
from relay.tracing.edge import edge, is_proxy, version

__all__ = ["Meters"]

# In seconds, as the conventions say.
BOUNDS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    10.0,
)
# Queues that are told apart, as by relay.metrics.
_MOST: Final = 200


class Meters:
    """Measures what this process does, once a meter provider is set.

    Args:
        provider: the global one unless given.

    Attributes:
        is_on: whether measurements go anywhere, as look() has found.
    """

    def __init__(self, provider: MeterProvider | None = None) -> None:
        self._provider = provider
        self.is_on = provider is not None
        meter = metrics.get_meter("relay", version(), provider)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Jobs that were enqueued."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Jobs claimed."
        )
        self._operation = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "How long enqueues, claims and writes of ends took.",
            explicit_bucket_boundaries_advisory=BOUNDS,
        )
        self._process = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "How long attempts ran.",
            explicit_bucket_boundaries_advisory=BOUNDS,
        )

    @property
    def provider(self) -> MeterProvider:
        """Where measurements go."""
        return self._provider or metrics.get_meter_provider()

    def look(self) -> None:
        """Take it in if a provider has been set."""
        self.is_on = self.is_on or not is_proxy(self.provider)

    @contextmanager
    def sending(self, jobs: Sequence[Sendable]) -> Iterator[None]:
        """Measure an enqueue."""
        begun_at = time.perf_counter()
        try:
            yield
        except BaseException as error:
            self.sent(jobs, time.perf_counter() - begun_at, error)
            raise
        self.sent(jobs, time.perf_counter() - begun_at)

    def sent(
        self,
        jobs: Sequence[Sendable],
        seconds: float,
        error: BaseException | None = None,
    ) -> None:
        """Take in an enqueue, or why there was none."""
        if not self.is_on:
            return
        with edge():
            for queue, count in Counter(job.queue for job in jobs).items():
                self._sent.add(count, self._about("send", queue, error))
            about = self._about("send", jobs[0].queue, error, has_type=True)
            self._operation.record(seconds, about)

    def received(self, queue: str, jobs: int, seconds: float) -> None:
        """Take in what a claim has brought of a queue."""
        if not self.is_on:
            return
        with edge():
            self._consumed.add(jobs, self._about("receive", queue))
            about = self._about("receive", queue, has_type=True)
            self._operation.record(seconds, about)

    def settled(self, queues: Iterable[str], seconds: float) -> None:
        """Take in that ends of jobs of these queues were written."""
        if not self.is_on:
            return
        with edge():
            for queue in set(queues):
                about = self._about("settle", queue, has_type=True)
                self._operation.record(seconds, about)

    def processed(
        self, job: Traced, seconds: float, error: BaseException | None
    ) -> None:
        """Take in an attempt."""
        if not self.is_on:
            return
        with edge():
            about = self._about("process", job.queue, error)
            about["relay.task"] = self._tasks.fold(job.task)
            self._process.record(seconds, about)

    @cached_property
    def _tasks(self) -> Names:
        # Not before the first use: settings that cannot be used are for checks to tell.
        return Names(get_settings().metrics_max_tasks)

    @cached_property
    def _queues(self) -> Names:
        return Names(_MOST)

    def _about(
        self,
        operation: str,
        queue: str,
        error: BaseException | None = None,
        *,
        has_type: bool = False,
    ) -> dict[str, str]:
        about = {
            "messaging.system": "relay",
            "messaging.operation.name": operation,
            "messaging.destination.name": self._queues.fold(queue),
        }
        if has_type:
            about["messaging.operation.type"] = operation
        if error is not None:
            about["error.type"] = type(error).__name__
        return about

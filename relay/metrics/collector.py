"""What the database holds, as gauges: for one process to show, not for each."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Final

import psycopg
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector as PrometheusCollector

from relay.conf import get_settings
from relay.engine.connection import connect
from relay.engine.gauges import Reading, read_gauges
from relay.metrics.names import DATABASE

__all__ = ["Collector"]

logger = logging.getLogger("relay.metrics")

CACHE_SECONDS: Final = 5.0


class Collector(PrometheusCollector):
    """The gauges of relay's database; read at most every five seconds.

    Each reading has a connection of its own and is given up after two seconds: then
    relay_collector_success is 0 and the gauges are absent, for alerts to see.
    Register it in one process of a deployment: others would show the same again.

    Args:
        using: alias in DATABASES; RELAY["DATABASE"] unless given.
    """

    def __init__(self, using: str | None = None) -> None:
        self._using = using
        self._lock = threading.Lock()
        self._families: list[GaugeMetricFamily] = []
        self._read_at = float("-inf")

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the names without asking the database, for a registry."""
        return _families().values()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return the gauges, read anew if they are old."""
        with self._lock:
            if time.monotonic() - self._read_at >= CACHE_SECONDS:
                self._families = self._read()
                self._read_at = time.monotonic()
            yield from self._families

    def _read(self) -> list[GaugeMetricFamily]:
        begun_at = time.monotonic()
        families = _families()
        readings: list[Reading] = []
        try:
            with connect(
                self._using or get_settings().database, role="duty", name="metrics"
            ) as connection:
                readings = read_gauges(connection)
        except psycopg.Error as error:
            logger.warning(
                "the gauges of the database could not be read",
                extra={"event": "metrics.collect_failed", "error": str(error)},
            )
        for name, labels, value in readings:
            families[name].add_metric(labels, value)
        seconds = time.monotonic() - begun_at
        families["relay_collector_duration_seconds"].add_metric([], seconds)
        families["relay_collector_success"].add_metric([], float(bool(readings)))
        return list(families.values())


def _families() -> dict[str, GaugeMetricFamily]:
    return {
        name: GaugeMetricFamily(name, text, labels=labels)
        for name, (text, labels) in DATABASE.items()
    }

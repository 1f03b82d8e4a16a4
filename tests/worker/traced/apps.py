"""Spans and metrics of all processes, in two files: sent on as a process ends."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SpanExporter,
    SpanExportResult,
)

HOUR_MS = 3_600_000


class FileExporter(SpanExporter):
    """Appends a line of JSON for each span: one write, so that none is torn."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        lines = [f"{span.to_json(indent=None)}\n" for span in spans]
        os.write(self._file, "".join(lines).encode())
        return SpanExportResult.SUCCESS


class MetricFileExporter(MetricExporter):
    """Appends a line of JSON for each export: one write, so that none is torn."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 0, **kwargs: Any
    ) -> MetricExportResult:
        line = {"pid": os.getpid(), **json.loads(metrics_data.to_json(indent=None))}
        os.write(self._file, f"{json.dumps(line)}\n".encode())
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **kwargs: Any) -> None:
        pass


class TracedConfig(AppConfig):
    name = "tests.worker.traced"

    def ready(self) -> None:
        path = os.environ["WORKER_TESTS_SPANS"]
        reader = PeriodicExportingMetricReader(
            MetricFileExporter(f"{path}.metrics"), export_interval_millis=HOUR_MS
        )
        metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
        exporter = FileExporter(path)
        provider = TracerProvider()
        provider.add_span_processor(
            BatchSpanProcessor(exporter, schedule_delay_millis=HOUR_MS)
        )
        trace.set_tracer_provider(provider)

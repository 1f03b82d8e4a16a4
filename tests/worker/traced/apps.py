"""Spans of all processes, in one file: sent on as a process ends, and not before."""

from __future__ import annotations

import os
from collections.abc import Sequence

from django.apps import AppConfig
from opentelemetry import trace
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


class TracedConfig(AppConfig):
    name = "tests.worker.traced"

    def ready(self) -> None:
        exporter = FileExporter(os.environ["WORKER_TESTS_SPANS"])
        provider = TracerProvider()
        provider.add_span_processor(
            BatchSpanProcessor(exporter, schedule_delay_millis=HOUR_MS)
        )
        trace.set_tracer_provider(provider)

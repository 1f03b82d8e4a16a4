"""Spans of claims and finishes; and one trace from a web request to a job's own job."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path
from opentelemetry import trace
from opentelemetry.propagate import extract
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from psycopg.types.json import Jsonb

from relay import enqueue, traces
from relay.engine.claim import ClaimedJob
from relay.engine.connection import EngineConnection
from relay.engine.finish import Settled, Written
from relay.tracing.spans import OpenTelemetryTracer
from tests.engine import rows
from tests.waiting import until
from tests.worker.harness import Database, Workers
from tests.worker.test_loop import Child, completed

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
RAN = f"00-{TRACE}-00f067aa0ba902b8-01"


class Spans:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self._meters = MeterProvider(metric_readers=[self._reader])
        self.tracer = OpenTelemetryTracer(self.provider, self._meters)

    def named(self, start: str) -> list[ReadableSpan]:
        found = self._exporter.get_finished_spans()
        return [span for span in found if span.name.startswith(start)]

    def measured(self, name: str) -> dict[str, float]:
        """Return a metric's sums, or how often it was measured, by operation."""
        data = self._reader.get_metrics_data()
        assert data is not None
        return sums([json.loads(data.to_json())], name)

    def shutdown(self) -> None:
        self.provider.shutdown()
        self._meters.shutdown()


def sums(exports: list[dict[str, Any]], name: str) -> dict[str, float]:
    """Return the sums of a metric, or how often it was measured, by operation."""
    found: Counter[str] = Counter()
    for export in exports:
        for resource in export["resource_metrics"]:
            for scope in resource["scope_metrics"]:
                for metric in scope["metrics"]:
                    for point in metric["data"]["data_points"]:
                        if metric["name"] == name:
                            operation = point["attributes"]["messaging.operation.name"]
                            found[operation] += point.get("count") or point["value"]
    return found


@pytest.fixture
def spans() -> Iterator[Spans]:
    made, before = Spans(), traces._tracer
    traces.install(made.tracer)
    yield made
    traces.install(before)
    made.shutdown()


@pytest.fixture
def child(duty: EngineConnection, monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    with override_settings(RELAY={"POLL_INTERVAL": timedelta(milliseconds=20)}):
        made = Child(duty, monkeypatch)
        yield made
        made.close()


def linked(span: ReadableSpan) -> list[str]:
    return [trace.format_span_id(link.context.span_id) for link in span.links]


def about(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_claim_that_brings_jobs_is_a_span_that_links_to_their_enqueues(
    child: Child,
    duty: EngineConnection,
    spans: Spans,
) -> None:
    child.loop._step()
    rows.add_jobs(duty, 2, meta=Jsonb({"otel": {"traceparent": PARENT}}))
    rows.add_jobs(duty, 1)

    child.claim(3)

    received = spans.named("receive")
    assert {span.name for span in received} == {"receive default"}
    assert {span.kind for span in received} == {SpanKind.CLIENT}
    assert [link for span in received for link in linked(span)] == [PARENT[36:52]] * 2
    counts = [about(span)["relay.jobs"] for span in received]
    assert sum(counts) == 3
    assert {span.parent for span in received} == {None}
    assert spans.measured("messaging.client.consumed.messages") == {"receive": 3}
    times = spans.measured("messaging.client.operation.duration")
    assert times == {"receive": len(received)}


def ends(
    child: Child,
    job: ClaimedJob,
    verb: str,
) -> None:
    outcome: Any
    if verb == "complete":
        outcome = completed(job)
    elif verb == "written":
        outcome = Written(job.id, job.attempt, "null")
    else:
        outcome = Settled(
            id=job.id,
            attempt=job.attempt,
            verb=verb,  # type: ignore[arg-type] # one of its verbs
            delay_seconds=60,
            error_class="ValueError",
            error_message="of the test",
        )
    child.end(job, outcome)
    child.step_until(lambda: not child.loop._hands.held)


@pytest.mark.parametrize(
    ("verb", "state"),
    [("complete", "completed"), ("retry", "retrying"), ("fail", "failed")],
)
def test_the_write_of_an_end_is_a_span_below_that_of_its_attempt(
    verb: str,
    state: str,
    child: Child,
    duty: EngineConnection,
    spans: Spans,
) -> None:
    rows.add_jobs(duty, 1)
    (job,) = child.claim(1)
    spans.tracer.note_ran(job.id, 1, RAN)

    ends(child, job, verb)

    [settled] = spans.named("settle default")
    assert about(settled)["relay.worker.id"] == str(child.worker_id)
    assert (settled.kind, about(settled)["relay.outcome"]) == (SpanKind.CLIENT, state)
    assert settled.parent is not None
    assert trace.format_span_id(settled.parent.span_id) == RAN[36:52]
    assert spans.tracer.ran(job.id, 1) is None
    times = spans.measured("messaging.client.operation.duration")
    assert times["settle"] == 1
    # For the next attempt to link to; a result is followed by none.
    meta = rows.job_row(duty, job.id)["meta"]
    assert meta == (None if verb == "complete" else {"otel": {"previous": RAN}})


def test_an_end_that_the_handler_s_transaction_wrote_is_no_span_of_its_own(
    child: Child,
    duty: EngineConnection,
    spans: Spans,
) -> None:
    rows.add_jobs(duty, 1)
    (job,) = child.claim(1)
    spans.tracer.note_ran(job.id, 1, RAN)

    ends(child, job, "written")

    assert spans.named("settle") == []
    assert spans.tracer.ran(job.id, 1) is None


def test_the_span_of_an_attempt_is_kept_beside_what_else_a_job_carries(
    child: Child,
    duty: EngineConnection,
    spans: Spans,
) -> None:
    carried = {"tenant": 7, "otel": {"traceparent": PARENT}}
    rows.add_jobs(duty, 1, meta=Jsonb(carried))
    (job,) = child.claim(1)
    spans.tracer.note_ran(job.id, 1, RAN)

    ends(child, job, "retry")

    meta = rows.job_row(duty, job.id)["meta"]
    assert meta == {"tenant": 7, "otel": {"traceparent": PARENT, "previous": RAN}}


def test_a_tracer_that_fails_stops_no_loop(
    child: Child,
    duty: EngineConnection,
    spans: Spans,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.delattr(spans.tracer, "_tracer")
    rows.add_jobs(duty, 1)
    (job,) = child.claim(1)
    spans.tracer.note_ran(job.id, 1, RAN)

    ends(child, job, "complete")

    assert rows.job_row(duty, job.id)["state"] == "completed"
    told = [one for one in caplog.records if one.name == "relay.tracing"]
    assert [vars(one)["event"] for one in told] == ["trace.failed"] * 2


# --- from a request to a job to its job, through a worker's processes ----------------


def buy(request: HttpRequest) -> HttpResponse:
    """Enqueue in a span of the request's, as instrumented Django has one."""
    tracer = trace.get_tracer("web", tracer_provider=request.META["tests.provider"])
    context = extract({"traceparent": request.headers["traceparent"]})
    with tracer.start_as_current_span("GET /buy", context=context):
        return HttpResponse(str(enqueue("tests.worker.traced.tasks.parent").id))


urlpatterns = [path("buy", buy)]


@pytest.mark.slow
@pytest.mark.urls(__name__)
def test_a_request_its_job_and_the_job_of_that_are_one_trace(
    database: Database, workers: Workers, spans: Spans, tmp_path: Path
) -> None:
    file = tmp_path / "spans.jsonl"
    environment = {
        "WORKER_TESTS_APP": "tests.worker.traced",
        "WORKER_TESTS_SPANS": str(file),
    }
    worker = workers.start(environment=environment)

    Client().get(
        "/buy",
        headers={"traceparent": PARENT},
        **{"tests.provider": spans.provider},
    )
    until(lambda: database.states() == {"completed": 2}, what="both jobs completed")
    assert worker.stop() == 0

    made = [json.loads(line) for line in file.read_text().splitlines()]
    told = {each["context"]["span_id"]: each for each in made}
    [sent] = spans.named("send default")
    assert sent.context is not None
    sent_id = f"0x{trace.format_span_id(sent.context.span_id)}"
    assert sent.parent is not None

    def all_named(name: str) -> list[dict[str, Any]]:
        return [each for each in made if each["name"] == name]

    first, second, apart = sorted(
        all_named("process default"), key=lambda each: str(each["start_time"])
    )
    [sent_on] = all_named("send default")
    # The request's own trace goes through all of them.
    of_the_trace = [first, second, apart, sent_on, *all_named("settle default")]
    assert {each["context"]["trace_id"] for each in of_the_trace} == {f"0x{TRACE}"}
    assert first["parent_id"] == second["parent_id"] == sent_id
    assert sent_on["parent_id"] == second["context"]["span_id"]
    assert apart["parent_id"] == sent_on["context"]["span_id"]
    # The second attempt is told of the first; the end of each is told of.
    assert first["status"]["status_code"] == StatusCode.ERROR.name
    links = [link["context"]["span_id"] for link in second["links"]]
    assert links == [sent_id, first["context"]["span_id"]]
    settled = {
        told[each["parent_id"]]["context"]["span_id"]: each["attributes"]
        for each in all_named("settle default")
    }
    outcomes = [
        settled[each["context"]["span_id"]]["relay.outcome"]
        for each in (first, second, apart)
    ]
    assert outcomes == ["retrying", "completed", "completed"]
    assert len(all_named("receive default")) >= 3
    # Each process has told its part: the child, and the one that ran a job apart.
    lines = file.with_name(f"{file.name}.metrics").read_text().splitlines()
    exports = [json.loads(line) for line in lines]
    exports = list({each["pid"]: each for each in exports}.values())
    assert sums(exports, "messaging.process.duration") == {"process": 3}
    assert sums(exports, "messaging.client.consumed.messages") == {"receive": 3}
    assert sums(exports, "messaging.client.sent.messages") == {"send": 1}

"""Spans from a request to its jobs, and to theirs."""

from __future__ import annotations

import base64
import io
import json
import logging
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.test import override_settings
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from relay import Snooze, current_job, enqueue_many, task, traces
from relay.logging import JSONFormatter
from relay.models import Job
from relay.testing import drain
from relay.tracing.spans import OpenTelemetryTracer

pytestmark = pytest.mark.django_db

logger = logging.getLogger("shop.tasks")


@task(name="tests.traces.child")
def child() -> None:
    logger.warning("here")


@task(name="tests.traces.parent")
def parent() -> None:
    child.enqueue()


@task(name="tests.traces.acoroutine")
async def acoroutine() -> None:
    logger.warning("here")


@task(name="tests.traces.fails", max_retries=0)
def fails() -> None:
    raise ValueError("of the test")


@task(name="tests.traces.secret", max_retries=0, sensitive=("card",))
def secret(card: str) -> None:
    raise ValueError(f"no money on {card}")


@task(name="tests.traces.later")
def later() -> None:
    raise Snooze(timedelta(days=1))


class Spans:
    """What was exported, and the provider that made it."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [one for one in self._exporter.get_finished_spans() if one.name == name]

    def one(self, name: str) -> ReadableSpan:
        [found] = self.named(name)
        return found


@pytest.fixture
def spans() -> Iterator[Spans]:
    made, before = Spans(), traces._tracer
    traces.install(OpenTelemetryTracer(made.provider))
    yield made
    traces.install(before)
    made.provider.shutdown()


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def test_a_request_its_job_and_the_jobs_of_that_are_one_trace(spans: Spans) -> None:
    with spans.provider.get_tracer("web").start_as_current_span("GET /buy") as request:
        parent.using(queue="first").enqueue()

    drain()

    sent, processed = spans.one("send first"), spans.one("process first")
    sent_on, processed_on = spans.one("send default"), spans.one("process default")
    made = [sent, processed, sent_on, processed_on]
    assert {trace_of(one) for one in made} == {request.get_span_context().trace_id}
    assert [parent_of(one) for one in made] == [
        request.get_span_context().span_id,
        id_of(sent),
        id_of(processed),
        id_of(sent_on),
    ]
    assert [one.kind for one in made] == [SpanKind.PRODUCER, SpanKind.CONSUMER] * 2


def test_a_job_may_be_a_trace_of_its_own_that_links_to_its_enqueue(
    spans: Spans,
) -> None:
    child.enqueue()

    with override_settings(RELAY={"TRACE_PARENT": False}):
        drain()

    sent, processed = spans.one("send default"), spans.one("process default")
    assert processed.parent is None
    assert trace_of(processed) != trace_of(sent)
    [link] = processed.links
    assert link.context.span_id == id_of(sent)


def test_a_span_says_which_job_and_attempt_it_is_of(spans: Spans) -> None:
    job = acoroutine.enqueue()

    drain()

    attributes = dict(spans.one("process default").attributes or {})
    assert attributes["messaging.message.id"] == str(job.id)
    assert attributes["relay.task"] == "tests.traces.acoroutine"
    assert attributes["relay.attempt"] == 1
    assert attributes["messaging.system"] == "relay"
    assert attributes["messaging.operation.name"] == "process"
    assert isinstance(attributes["relay.wait_s"], float)


def test_many_at_once_are_one_span_and_share_its_context(spans: Spans) -> None:
    enqueue_many([child.job(), parent.job(), child.job()])

    drain()

    sent = spans.named("send default")[0]
    assert (sent.attributes or {})["messaging.batch.message_count"] == 3
    processed = spans.named("process default")
    assert [parent_of(one) for one in processed].count(id_of(sent)) == 3


def test_an_error_marks_the_span(spans: Spans) -> None:
    fails.enqueue()

    drain()

    span = spans.one("process default")
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "ValueError"
    [event] = span.events
    assert (event.attributes or {})["exception.message"] == "of the test"


def test_an_error_over_sensitive_arguments_is_not_quoted(spans: Spans) -> None:
    key = base64.b64encode(bytes(32)).decode()
    with override_settings(RELAY={"ENCRYPTION_KEYS": {"a": key}}):
        secret.enqueue("4111")

        drain()

    span = spans.one("process default")
    assert (span.attributes or {})["error.type"] == "ValueError"
    assert "4111" not in span.to_json()


def test_a_job_that_is_put_off_is_no_error(spans: Spans) -> None:
    later.enqueue()

    drain()

    assert spans.one("process default").status.status_code is StatusCode.UNSET


def test_the_context_is_not_among_the_metadata_of_a_job(spans: Spans) -> None:
    found: list[dict[str, object]] = []

    @task(name="tests.traces.tells")
    def tells() -> None:
        found.append(current_job().meta())

    tells.using(meta={"tenant": 7}).enqueue()

    drain()

    assert found == [{"tenant": 7}]


@pytest.mark.parametrize("carried", ['"x"', '{"traceparent": 7}', "[]", "null"])
def test_a_context_that_cannot_be_read_stops_no_job(spans: Spans, carried: str) -> None:
    job = child.enqueue()
    Job.objects.filter(pk=job.id).update(meta={"otel": json.loads(carried)})

    drain()

    assert job.state == "completed"
    assert spans.one("process default").parent is None


@pytest.mark.parametrize("made", [child, acoroutine])
def test_lines_of_a_log_name_the_trace(spans: Spans, made: object) -> None:
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(JSONFormatter())
    logger.addHandler(handler)
    (child if made is child else acoroutine).enqueue()

    drain()
    logger.removeHandler(handler)

    line = json.loads(text.getvalue())
    assert int(line["trace_id"], 16) == trace_of(spans.one("send default"))
    assert int(line["span_id"], 16) == id_of(spans.one("process default"))


def test_without_a_provider_nothing_is_made_or_carried() -> None:
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)

    job = child.enqueue()

    assert traces.tracer() is None
    assert Job.objects.get(pk=job.id).meta is None


def test_a_provider_that_is_set_later_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = OpenTelemetryTracer()
    before = made.is_on
    provider = TracerProvider()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)

    at_once = made.is_on
    monkeypatch.setattr(made, "_look_at", 0.0)

    assert (before, at_once, made.is_on) == (False, False, True)
    provider.shutdown()

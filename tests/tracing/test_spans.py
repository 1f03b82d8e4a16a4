"""Spans from a request to its jobs, and to theirs."""

from __future__ import annotations

import base64
import io
import json
import logging
import threading
from collections.abc import Iterator
from datetime import timedelta
from importlib import metadata

import pytest
from django.db import IntegrityError, transaction
from django.test import override_settings
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from relay import Snooze, Unique, current_job, enqueue_many, task, traces, tracing
from relay.ids import uuid7
from relay.logging import JSONFormatter
from relay.models import Job
from relay.testing import drain
from relay.tracing import spans as spans_module
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

    with override_settings(RELAY={"OTEL": {"PARENT": False}}):
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
    assert attributes["relay.job.id"] == str(job.id)
    assert attributes["relay.task"] == "tests.traces.acoroutine"
    assert attributes["relay.attempt"] == 1
    assert attributes["relay.operation"] == "process"
    assert attributes["relay.queue"] == "default"
    assert isinstance(attributes["relay.wait_s"], float)
    assert not any(name.startswith("messaging.") for name in attributes)


@pytest.mark.parametrize("asked", ["messaging", "http, messaging/dup"])
def test_it_has_the_names_of_messaging_where_they_are_asked_for(
    asked: str, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", asked)
    traces.install(OpenTelemetryTracer(spans.provider))
    job = child.enqueue()

    drain()

    sent = dict(spans.one("send default").attributes or {})
    processed = dict(spans.one("process default").attributes or {})
    for operation, attributes in (("send", sent), ("process", processed)):
        assert attributes["messaging.system"] == "relay"
        assert attributes["messaging.operation.name"] == operation
        assert attributes["messaging.operation.type"] == operation
        assert attributes["messaging.destination.name"] == "default"
        assert attributes["messaging.message.id"] == str(job.id)
        assert attributes["relay.job.id"] == str(job.id)
    assert processed["messaging.client.id"] == processed["relay.worker.id"]


def test_the_names_of_messaging_tell_how_many_there_are(
    spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "messaging")
    traces.install(OpenTelemetryTracer(spans.provider))

    enqueue_many([child.job()] * 2)

    attributes = spans.one("send default").attributes or {}
    assert attributes["messaging.batch.message_count"] == 2


def test_many_at_once_have_a_span_each_below_one(spans: Spans) -> None:
    jobs = enqueue_many([child.job(), child.using(queue="first", priority=3).job()])

    drain()

    sent = spans.one("send default")
    assert sent.kind is SpanKind.CLIENT
    assert (sent.attributes or {})["relay.jobs"] == 2
    created = [spans.one("create default"), spans.one("create first")]
    assert {one.kind for one in created} == {SpanKind.PRODUCER}
    assert {parent_of(one) for one in created} == {id_of(sent)}
    attributes = [dict(one.attributes or {}) for one in created]
    assert [each["relay.job.id"] for each in attributes] == [
        str(job.id) for job in jobs
    ]
    assert [each["relay.priority"] for each in attributes] == [0, 3]
    processed = [spans.one("process default"), spans.one("process first")]
    assert [parent_of(one) for one in processed] == [id_of(one) for one in created]


@override_settings(RELAY={"OTEL": {"CREATE_LIMIT": 2}})
def test_more_at_once_are_one_span_and_share_its_context(spans: Spans) -> None:
    enqueue_many([child.job(), parent.job(), child.job()])

    drain()

    sent = spans.named("send default")[0]
    assert sent.kind is SpanKind.PRODUCER
    assert spans.named("create default") == []
    assert (sent.attributes or {})["relay.jobs"] == 3
    processed = spans.named("process default")
    assert [parent_of(one) for one in processed].count(id_of(sent)) == 3


def test_jobs_that_are_not_enqueued_are_no_success(spans: Spans) -> None:
    twice = uuid7()

    with pytest.raises(IntegrityError), transaction.atomic():
        enqueue_many([child.using(id=twice).job(), child.using(id=twice).job()])

    made = [spans.one("send default"), *spans.named("create default")]
    assert {one.status.status_code for one in made} == {StatusCode.ERROR}


def test_a_send_names_the_job_that_it_made_or_found(spans: Spans) -> None:
    unique = child.using(unique=Unique())

    first, second = unique.enqueue(), unique.enqueue()

    named = [(one.attributes or {}) for one in spans.named("send default")]
    assert [one["relay.job.id"] for one in named] == [str(first.id)] * 2
    assert second.is_duplicate


def test_an_attempt_links_to_its_enqueue_and_to_the_attempt_before(
    spans: Spans,
) -> None:
    job = child.enqueue()
    row = Job.objects.get(pk=job.id)
    assert row.meta is not None
    row.meta["otel"]["previous"] = f"00-{1:032x}-{2:016x}-01"
    row.save(update_fields=["meta"])

    drain()

    linked = [link.context.span_id for link in spans.one("process default").links]
    assert linked == [id_of(spans.one("send default")), 2]


def test_the_spans_of_attempts_are_forgotten_past_a_limit(
    spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans_module, "_MOST_RUNS", 2)
    tracer = OpenTelemetryTracer(spans.provider)
    ids = [uuid7() for _ in range(3)]

    for number, job_id in enumerate(ids):
        tracer.note_ran(job_id, 1, str(number))

    assert [tracer.ran(job_id, 1) for job_id in ids] == [None, "1", "2"]


class Raising(SpanProcessor):
    """One of a project's that has a fault."""

    def __init__(self, when: str) -> None:
        self._when = when

    def on_start(self, span: object, parent_context: object = None) -> None:
        self._fail_at("start")

    def on_end(self, span: object) -> None:
        self._fail_at("end")

    def _fail_at(self, moment: str) -> None:
        if moment == self._when:
            raise RuntimeError("of the test")


@pytest.mark.parametrize("when", ["start", "end"])
def test_a_processor_that_raises_changes_no_enqueue_and_no_job(
    when: str, spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    spans.provider.add_span_processor(Raising(when))

    jobs = [parent.enqueue(), acoroutine.enqueue(), *enqueue_many([child.job()] * 2)]
    drained = drain()

    assert drained.errors == []
    assert {job.state for job in jobs} == {"completed"}
    assert Job.objects.count() == drained.ran == 5
    told = [one for one in caplog.records if one.name == "relay.tracing"]
    assert {vars(one)["event"] for one in told} == {"trace.failed"}


def test_a_process_that_ends_waits_for_no_exporter_that_hangs(
    spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans_module, "FLUSH_SECONDS", 0.01)
    never = threading.Event()
    monkeypatch.setattr(spans.provider, "force_flush", never.wait)

    traces.flush()

    never.set()


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
        secret.enqueue("of nobody else")

        drain()

    span = spans.one("process default")
    assert (span.attributes or {})["error.type"] == "ValueError"
    assert "of nobody else" not in span.to_json()


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
    monkeypatch.setattr(spans_module, "LOOK_SECONDS", 600.0)
    made = OpenTelemetryTracer()
    before = made.is_on
    provider = TracerProvider()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)

    at_once = made.is_on
    monkeypatch.setattr(made, "_look_at", 0.0)

    assert (before, at_once, made.is_on) == (False, False, True)
    provider.shutdown()


def test_a_project_with_an_older_api_starts_without_spans(
    spans: Spans, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "1.9.1")
    before = traces._tracer

    tracing.install()

    assert traces._tracer is before
    [record] = caplog.records
    assert vars(record)["event"] == "trace.too_old"

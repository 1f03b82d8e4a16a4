"""Spans of schedules: an occurrence, the enqueue of its job and its attempt."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, timedelta

import psycopg
import pytest
from django.db import connection
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from relay import operations, task, traces
from relay.logging import of_request
from relay.models import Job
from relay.operations import Actor
from relay.testing import drain
from relay.tracing.spans import OpenTelemetryTracer
from tests.scheduler.factory import make, set_back, tick
from tests.tracing.test_spans import Spans, id_of, parent_of, trace_of

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = timedelta(minutes=1)


@task(name="tests.traces.report")
def report() -> None: ...


@pytest.fixture
def spans() -> Iterator[Spans]:
    made, before = Spans(), traces._tracer
    traces.install(OpenTelemetryTracer(made.provider))
    yield made
    traces.install(before)
    made.provider.shutdown()


def about(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_an_occurrence_its_job_and_its_attempt_are_one_trace(spans: Spans) -> None:
    schedule = make("* * * * *", name="nightly", task="tests.traces.report")
    tick()
    set_back(schedule, MINUTE)

    tick()
    drain()

    fired, sent = spans.one("schedule nightly"), spans.one("send default")
    processed = spans.one("process default")
    job = Job.objects.get()
    assert job.occurrence_at is not None
    due_at = job.occurrence_at.astimezone(UTC).isoformat()
    assert (fired.kind, fired.parent) == (SpanKind.INTERNAL, None)
    assert about(fired) == {"relay.schedule": "nightly", "relay.occurrence": due_at}
    assert (sent.kind, parent_of(sent)) == (SpanKind.PRODUCER, id_of(fired))
    assert about(sent)["relay.job.id"] == str(job.id)
    assert parent_of(processed) == id_of(sent)
    assert len({trace_of(each) for each in (fired, sent, processed)}) == 1


def test_an_occurrence_that_is_rolled_back_is_no_success(spans: Spans) -> None:
    schedule = make("* * * * *", name="nightly")
    tick()
    set_back(schedule, MINUTE)
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE relay_job ADD CONSTRAINT no CHECK (false) NOT VALID"
        )
    try:
        tick()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE relay_job DROP CONSTRAINT no")

    for span in (spans.one("schedule nightly"), spans.one("send default")):
        assert span.status.status_code is StatusCode.ERROR
        name = psycopg.errors.CheckViolation.__name__
        assert about(span)["error.type"] == name


def test_what_a_person_starts_goes_on_with_their_request(spans: Spans) -> None:
    schedule = make("0 0 1 1 *", name="nightly", task="tests.traces.report")
    web = spans.provider.get_tracer("web")

    with of_request("r-1"), web.start_as_current_span("POST /run") as request:
        operations.run_schedule(Actor(name="ada", source="api"), schedule.pk)
    drain()

    job = Job.objects.get()
    assert job.meta is not None
    assert job.meta["otel"]["request_id"] == "r-1"
    sent, processed = spans.one("send default"), spans.one("process default")
    assert parent_of(sent) == request.get_span_context().span_id
    assert parent_of(processed) == id_of(sent)
    assert about(sent)["relay.job.id"] == str(job.id)
    assert spans.named("schedule nightly") == []


def test_without_a_tracer_a_schedules_job_carries_nothing() -> None:
    schedule = make("* * * * *")
    tick()
    set_back(schedule, MINUTE)

    tick()

    assert Job.objects.get().meta is None

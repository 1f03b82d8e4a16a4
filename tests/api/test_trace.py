"""A request that names a trace is part of it, and so are the jobs that it enqueues."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from relay import traces
from relay.models import Job
from relay.tracing.spans import OpenTelemetryTracer
from tests.api.factory import api

pytestmark = pytest.mark.django_db
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
BODY = {"task": "testproject.tasks.echo", "args": [1]}


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    made, before = TracerProvider(), traces.tracer()
    traces.install(OpenTelemetryTracer(made))
    yield made
    traces.install(before)


def carried() -> str:
    job = Job.objects.get()
    assert job.meta is not None
    return str(job.meta["otel"]["traceparent"].split("-")[1])


def test_the_job_of_a_request_is_of_the_trace_that_it_names(
    provider: TracerProvider,
) -> None:
    response = api().post("/v1/jobs", BODY, Traceparent=PARENT)

    assert response.status_code == 201
    assert carried() == TRACE
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_trace_that_is_current_already_goes_before(provider: TracerProvider) -> None:
    tracer = trace.get_tracer("tests", tracer_provider=provider)
    with tracer.start_as_current_span("GET") as span:
        api().post("/v1/jobs", BODY, Traceparent=PARENT)

    assert carried() == trace.format_trace_id(span.get_span_context().trace_id)


@pytest.mark.parametrize("header", ["", "x", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_header_that_names_none_is_no_harm(
    provider: TracerProvider, header: str
) -> None:
    response = api().post("/v1/jobs", BODY, Traceparent=header)

    assert response.status_code == 201
    assert len(carried()) == 32

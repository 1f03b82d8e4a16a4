"""Errors as events of spans, as logs, or as both."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import override_settings
from opentelemetry._logs import SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import (
    InMemoryLogRecordExporter,
    SimpleLogRecordProcessor,
)

from relay import enqueue_many, task, traces
from relay.ids import uuid7
from relay.testing import drain
from relay.tracing.spans import OpenTelemetryTracer
from tests.tracing.test_spans import Spans, id_of, trace_of

pytestmark = pytest.mark.django_db


class NoMoney(Exception):
    pass


@task(name="tests.errors.fails", max_retries=0)
def fails() -> None:
    raise NoMoney("of the test")


@task(name="tests.errors.secret", max_retries=0, sensitive=("card",))
def secret(card: str) -> None:
    raise ValueError(f"no money on {card}")


class Told(Spans):
    """What was exported, spans and logs."""

    def __init__(self) -> None:
        super().__init__()
        self._logs = InMemoryLogRecordExporter()
        self.loggers = LoggerProvider()
        self.loggers.add_log_record_processor(SimpleLogRecordProcessor(self._logs))

    @property
    def logs(self) -> list[Any]:
        return [one.log_record for one in self._logs.get_finished_logs()]


@pytest.fixture
def told_by(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Told]]:
    made, before = Told(), traces._tracer

    def begin(asked: str) -> Told:
        monkeypatch.setenv("OTEL_SEMCONV_EXCEPTION_SIGNAL_OPT_IN", asked)
        traces.install(OpenTelemetryTracer(made.provider, loggers=made.loggers))
        return made

    yield begin
    traces.install(before)
    made.provider.shutdown()
    made.loggers.shutdown()


@pytest.mark.parametrize(
    ("asked", "events", "logs"), [("", 1, 0), ("logs", 0, 1), ("logs/dup", 1, 1)]
)
def test_an_error_is_told_as_the_environment_asks(
    asked: str, events: int, logs: int, told_by: Callable[[str], Told]
) -> None:
    told = told_by(asked)
    fails.enqueue()

    drain()

    span = told.one("process default")
    assert (span.attributes or {})["error.type"] == "NoMoney"
    assert [one.name for one in span.events] == ["exception"] * events
    assert len(told.logs) == logs


def test_a_log_names_its_span_and_says_what_was_raised(
    told_by: Callable[[str], Told],
) -> None:
    told = told_by("logs")
    fails.enqueue()

    drain()

    span = told.one("process default")
    [record] = told.logs
    assert (record.trace_id, record.span_id) == (trace_of(span), id_of(span))
    assert record.event_name == "messaging.process.exception"
    assert record.severity_number is SeverityNumber.ERROR
    assert record.attributes["exception.type"] == f"{__name__}.NoMoney"
    assert record.attributes["exception.message"] == "of the test"
    assert "in fails" in record.attributes["exception.stacktrace"]


def test_over_sensitive_arguments_a_log_has_the_class_alone(
    told_by: Callable[[str], Told],
) -> None:
    told = told_by("logs/dup")
    key = base64.b64encode(bytes(32)).decode()
    with override_settings(RELAY={"ENCRYPTION_KEYS": {"a": key}}):
        secret.enqueue("of nobody else")

        drain()

    [record] = told.logs
    assert dict(record.attributes) == {"exception.type": "ValueError"}
    assert told.one("process default").events == ()


def test_an_enqueue_that_fails_is_a_warning(told_by: Callable[[str], Told]) -> None:
    told = told_by("logs")
    twice = uuid7()

    with pytest.raises(IntegrityError), transaction.atomic():
        enqueue_many([fails.using(id=twice).job(), fails.using(id=twice).job()])

    [record] = told.logs
    assert record.event_name == "messaging.send.exception"
    assert record.severity_number is SeverityNumber.WARN
    assert told.one("send default").events == ()


def test_without_a_provider_of_logs_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, told_by: Callable[[str], Told]
) -> None:
    told = told_by("logs")
    traces.install(OpenTelemetryTracer(told.provider))
    fails.enqueue()

    drained = drain()

    assert [type(error) for error in drained.errors] == [NoMoney]
    assert told.logs == []

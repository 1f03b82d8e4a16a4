"""Metrics by OpenTelemetry's names for messaging, once a meter provider is set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import override_settings
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from relay import Snooze, enqueue_many, task, traces
from relay.ids import uuid7
from relay.models import Job
from relay.testing import drain
from relay.tracing.spans import OpenTelemetryTracer
from tests.scheduler.factory import make, set_back, tick

pytestmark = pytest.mark.django_db

SENT = "messaging.client.sent.messages"
OPERATION = "messaging.client.operation.duration"
PROCESS = "messaging.process.duration"


@task(name="tests.meters.child")
def child() -> None: ...


@task(name="tests.meters.acoroutine", max_retries=0)
async def acoroutine() -> None:
    raise ValueError("of the test")


@task(name="tests.meters.later")
def later() -> None:
    raise Snooze(timedelta(days=1))


class Measured:
    """What was measured, and the provider that did it."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider(metric_readers=[self._reader])
        self.tracer = OpenTelemetryTracer(meters=self.provider)

    def read(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        """Return the points of a metric: their attributes and themselves."""
        data = self._reader.get_metrics_data()
        return [
            (dict(point.attributes or {}), point)
            for each in (data.resource_metrics if data else ())
            for scope in each.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def sums(self, name: str) -> Mapping[str, float]:
        """Return the sums of a counter by queue."""
        points = self.read(name)
        return {each["messaging.destination.name"]: one.value for each, one in points}


@pytest.fixture
def measured() -> Iterator[Measured]:
    made, before = Measured(), traces._tracer
    traces.install(made.tracer)
    yield made
    traces.install(before)
    made.provider.shutdown()


def test_enqueues_are_counted_and_timed(measured: Measured) -> None:
    child.enqueue()
    enqueue_many([child.job(), child.job(), child.using(queue="first").job()])

    assert measured.sums(SENT) == {"default": 3, "first": 1}
    [(about, point)] = measured.read(OPERATION)
    assert about == {
        "messaging.system": "relay",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "default",
    }
    assert point.count == 2
    assert point.explicit_bounds[0] == 0.005
    assert point.sum > 0


def test_an_enqueue_that_fails_says_why(measured: Measured) -> None:
    twice = uuid7()

    with pytest.raises(IntegrityError), transaction.atomic():
        enqueue_many([child.using(id=twice).job()] * 2)

    for name in (SENT, OPERATION):
        [(about, _)] = measured.read(name)
        assert about["error.type"] == "IntegrityError"


def test_attempts_are_timed_by_task_and_error(measured: Measured) -> None:
    child.enqueue()
    acoroutine.enqueue()
    later.enqueue()

    drain()

    found = {about["relay.task"]: (about, one) for about, one in measured.read(PROCESS)}
    assert {task: one.count for task, (_, one) in found.items()} == {
        "tests.meters.child": 1,
        "tests.meters.acoroutine": 1,
        "tests.meters.later": 1,
    }
    errors = {task: about.get("error.type") for task, (about, _) in found.items()}
    assert errors == {
        "tests.meters.child": None,
        "tests.meters.acoroutine": "ValueError",
        "tests.meters.later": None,
    }
    about, _ = found["tests.meters.child"]
    assert about["messaging.operation.name"] == "process"


@override_settings(RELAY={"METRICS_MAX_TASKS": 0})
def test_tasks_past_a_limit_are_one(measured: Measured) -> None:
    child.enqueue()

    drain()

    [(about, _)] = measured.read(PROCESS)
    assert about["relay.task"] == "other"


def test_without_a_tracer_provider_a_job_carries_nothing(measured: Measured) -> None:
    child.enqueue()

    assert Job.objects.get().meta is None
    drain()
    assert len(measured.read(PROCESS)) == 1


@pytest.mark.django_db(transaction=True)
def test_what_a_schedule_enqueues_is_counted(measured: Measured) -> None:
    schedule = make("* * * * *", queue="nights")
    tick()
    set_back(schedule, timedelta(minutes=1))

    tick()

    assert measured.sums(SENT) == {"nights": 1}


def test_a_provider_that_is_set_later_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = OpenTelemetryTracer()
    before = made.is_on
    provider = MeterProvider()
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: provider)
    monkeypatch.setattr(made, "_look_at", 0.0)

    assert (before, made.is_on) == (False, True)
    provider.shutdown()


def test_a_meter_that_fails_changes_no_enqueue_and_no_job(
    measured: Measured, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    for name in ("_sent", "_process"):
        monkeypatch.delattr(measured.tracer._meters, name)

    job = child.enqueue()
    drained = drain()

    assert (job.state, drained.errors) == ("completed", [])
    told = [vars(one)["event"] for one in caplog.records if one.name == "relay.tracing"]
    assert told == ["trace.failed"] * 2

"""What is counted of requests, and how many series that makes."""

from __future__ import annotations

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry, generate_latest
from rest_framework.views import APIView

from relay.api.endpoints import endpoint_of
from relay.api.urls import ADDRESSES
from relay.metrics.meters import PrometheusMeter
from tests.api.factory import Api, api
from tests.meters import Sums
from tests.metrics.test_meters import fine

pytestmark = pytest.mark.django_db

REQUESTS = "relay_api_requests_total"
DURATION = "relay_api_request_duration_seconds"


def test_answers_are_counted_by_address_method_and_class(sums: Sums) -> None:
    client = api()

    client.get("/v1/jobs")
    client.send("HEAD", "/v1/jobs")
    client.get("/v1/jobs?state=nonsense")
    client.get("/v1/queues/")

    assert sums.of(REQUESTS) == {
        ("jobs", "GET", "2xx"): 2,
        ("jobs", "GET", "4xx"): 1,
        ("queues", "GET", "2xx"): 1,
    }
    took = sums.of(DURATION)
    assert set(took) == {("jobs", "GET"), ("queues", "GET")}
    assert all(seconds > 0 for seconds in took.values())


def test_what_a_stranger_sends_makes_no_series_of_its_own(sums: Sums) -> None:
    stranger = Api(None)

    for method in ("PURGE", "TRACE", "DELETE", "X"):
        stranger.send(method, "/v1/jobs")
    for number in range(3):
        stranger.get(f"/v1/nothing/{number}")
        stranger.get(f"/v1/jobs/{number}")

    counted = sums.of(REQUESTS)
    assert set(counted) == {
        ("jobs", "other", "4xx"),
        ("unknown", "other", "4xx"),
        ("job", "GET", "4xx"),
    }
    assert sum(counted.values()) == 10
    # Only requests of those that were let in tell how long answers take.
    assert sums.of(DURATION) == {}


def test_a_web_process_that_serves_all_of_it_has_fewer_than_a_thousand_series() -> None:
    registry = CollectorRegistry()
    meter = PrometheusMeter(registry)
    for number in range(40):
        labels = (f"q{number % 4}", f"shop.tasks.t{number}")
        meter.add("relay_jobs_enqueued_total", labels, 1)
        meter.add("relay_jobs_deduplicated_total", labels, 1)
    for _, view, route in ADDRESSES:
        meter.add(REQUESTS, (route, "other", "4xx"), 1)
        for method in set(APIView.http_method_names) - {"head"}:  # is counted as get
            if endpoint_of(view, method.upper()) is None:
                continue
            for answer in ("2xx", "4xx"):
                meter.add(REQUESTS, (route, method.upper(), answer), 1)
            times = (fine(0.2), 0.2)
            meter.add_times(DURATION, (route, method.upper()), *times)

    lines = generate_latest(registry).decode().splitlines()

    assert len([line for line in lines if not line.startswith("#")]) <= 1_000

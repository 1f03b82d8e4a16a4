"""Figures and the system."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import InterfaceError, OperationalError, connection
from django.db.models import F
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from relay import queries
from relay.buckets import STAT_BOUNDS
from relay.exceptions import ArgumentError
from relay.models import Stat
from relay.queries import documents
from relay.queries import system as module
from relay.stats import read_last
from tests.operations.factory import actor, make_job
from tests.queries.documents import check
from tests.queries.factory import make_worker

pytestmark = pytest.mark.django_db

ME = actor("view_metrics")
KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


def add(minutes_ago: int, *, count: int = 1, **values: Any) -> None:
    """Add what a worker would have: attempts of about a second."""
    now = timezone.now().replace(second=0, microsecond=0)
    at = now - timedelta(minutes=minutes_ago)
    add_at([at], seconds=60, count=count, **values)
    # Of two in one hour the second would be added to the first.
    hour = {"at": at.replace(minute=0), "seconds": 3_600}
    given = {"queue": "mail", "task": "app.send", "outcome": "completed"} | values
    if not Stat.objects.filter(**hour, **given).update(count=F("count") + count):
        add_at([hour["at"]], seconds=3_600, count=count, **values)


def add_at(at: list[datetime], *, seconds: int, count: int, **values: Any) -> None:
    buckets = [0] * (len(STAT_BOUNDS) + 1)
    buckets[10] = count
    given = {"queue": "mail", "task": "app.send", "outcome": "completed"}
    Stat.objects.bulk_create(
        Stat(
            at=each,
            seconds=seconds,
            count=count,
            run_seconds=count * 0.9,
            wait_seconds=count * 0.9,
            run_buckets=buckets,
            wait_buckets=buckets,
            **given | values,
        )
        for each in at
    )


def test_stats_tell_of_queues_workers_and_rates() -> None:
    make_worker(concurrency=4)
    make_worker(state="quiet")
    make_job("scheduled")
    make_job("retrying")
    make_job()
    make_job("running")
    make_job("failed")
    add(2, count=3)
    add(3, outcome="failed")
    add(120, count=5)

    found = queries.get_stats(ME)

    check(found, documents.StatsDocument)
    assert {name: each["count"] for name, each in found["status"].items()} == {
        "queued": 3,
        "running": 1,
        "completed": 0,
        "failed": 1,
        "cancelled": 0,
    }
    assert found["jobs"]["retrying"] == {"count": 1, "capped": False}
    assert found["workers"] == {
        "running": 1,
        "quiet": 1,
        "draining": 0,
        "lost": 0,
        "slots": 4,
        "busy": 1,
    }
    assert (found["last_hour"]["completed"], found["last_hour"]["failed"]) == (3, 1)
    assert found["last_day"]["completed"] == 8
    assert found["last_day"]["run"]["mean"] == pytest.approx(0.9)
    assert "default" in [queue["name"] for queue in found["queues"]]


def test_the_last_day_is_read_by_whole_hours_and_the_minutes_at_its_ends() -> None:
    """Of each minute and each hour that may count there is one attempt."""
    until = datetime(2026, 1, 2, 10, 20, 30, tzinfo=UTC)
    for seconds, step in ((60, timedelta(minutes=1)), (3_600, timedelta(hours=1))):
        first = datetime(2026, 1, 1, 8, tzinfo=UTC)
        count = seconds // 60
        at = [first + step * place for place in range(28 * 60 // count)]
        add_at(at, seconds=seconds, count=count)

    with CaptureQueriesContext(connection) as captured:
        day, hour = read_last(
            using="default", until=until, spans=(timedelta(days=1), timedelta(hours=1))
        )

    assert (day.counts["completed"], hour.counts["completed"]) == (24 * 60, 60)
    [statement] = [each["sql"] for each in captured]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
        [[plan]] = cursor.fetchall()
    text = plan if isinstance(plan, str) else json.dumps(plan)
    rows = [float(found) for found in re.findall(r'"Actual Rows": ([0-9.]+)', text)]
    assert max(rows) < 200


def test_a_series_has_a_point_for_every_step() -> None:
    add(2, count=3)
    add(2, queue="web", count=4)

    whole = queries.get_series(ME, span=timedelta(minutes=30))
    part = queries.get_series(ME, span=timedelta(minutes=30), queue="web")

    check(whole, documents.SeriesDocument)
    assert (len(whole["results"]), whole["step"]) == (30, 60.0)
    assert sum(point["completed"] for point in whole["results"]) == 7
    assert sum(point["completed"] for point in part["results"]) == 4
    assert whole["results"][0]["at"] == whole["since"]
    assert whole["results"][0]["run"]["p95"] is None


def test_a_series_ends_where_it_is_told_to() -> None:
    until = datetime(2026, 1, 1, 10, 7, 30, tzinfo=UTC)

    found = queries.get_series(
        ME, until=until, span=timedelta(hours=3), step=timedelta(hours=1)
    )

    assert (found["since"], found["until"]) == (
        "2026-01-01T08:00:00Z",
        "2026-01-01T11:00:00Z",
    )


@pytest.mark.parametrize(
    "given",
    [
        {"step": timedelta(0)},
        {"step": timedelta(seconds=90)},
        {"span": -timedelta(hours=1)},
        {"span": timedelta(days=90)},
        {"span": timedelta.max, "step": timedelta(hours=1)},
        {"step": timedelta.max},
        {"until": datetime(1, 1, 1, tzinfo=UTC)},
    ],
)
def test_a_series_that_no_chart_can_show_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        queries.get_series(ME, **given)


def test_totals_are_by_queue_and_task() -> None:
    add(2, count=3)
    add(2, task="app.other", outcome="failed")

    found = queries.get_totals(ME)

    check(found, documents.SeriesDocument)
    rows = {row["task"]: row for row in found["results"]}
    assert (rows["app.send"]["completed"], rows["app.other"]["failed"]) == (3, 1)
    assert len(queries.get_totals(ME, task="app.send")["results"]) == 1
    with pytest.raises(ArgumentError, match="up to 90 days"):
        queries.get_totals(ME, span=timedelta(days=91))


def test_the_system_tells_versions_settings_checks_and_tables() -> None:
    add(5)

    found = queries.get_system(ME)

    check(found, documents.SystemDocument)
    assert found["settings"]["LEASE"] == 30.0
    assert found["settings"]["DATABASE"] == "default"
    assert found["migrations"]["missing"] == []
    assert "0001_initial" in found["migrations"]["applied"]
    assert "relay_job" in [table["name"] for table in found["tables"]]
    assert found["statistics_lag"] is not None
    assert found["statistics_lag"] > 240


@override_settings(RELAY={"ENCRYPTION_KEYS": {"k1": KEY}})
def test_no_key_is_told_and_what_checks_find_is() -> None:
    with override_settings(USE_TZ=False):
        found = queries.get_system(ME)

    assert found["settings"]["ENCRYPTION_KEYS"] == ["k1"]
    assert KEY not in str(found)
    assert "relay.W006" in [each["id"] for each in found["checks"]]
    check(found["checks"][0], documents.CheckDocument)


@pytest.mark.parametrize(("debug", "is_told"), [(False, True), (True, False)])
def test_checks_of_a_deployment_are_told_where_there_may_be_one(
    debug: bool, is_told: bool
) -> None:
    relay = {"API": {"SUBMIT_RATE": 1}}  # counted by each process: W018

    with override_settings(RELAY=relay, DEBUG=debug):
        found = queries.get_system(ME)["checks"]

    assert ("relay.W018" in [each["id"] for each in found]) is is_told


def test_health_asks_nothing_and_readiness_the_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert queries.health() == {"status": "ok"}
    assert queries.readiness() == {"status": "ok", "reasons": []}

    monkeypatch.setattr(
        module, "read_migrations", lambda using: {"missing": ["0009_x"]}
    )
    assert queries.readiness()["reasons"] == ["migrations are not applied"]

    for kind in (OperationalError, InterfaceError):
        error = kind("secret host 10.0.0.1")
        monkeypatch.setattr(module, "read_migrations", Mock(side_effect=error))
        found = queries.readiness()
        assert found["status"] == "unavailable"
        assert "10.0.0.1" not in str(found)


def test_readiness_asks_few_questions() -> None:
    with CaptureQueriesContext(connection) as captured:
        queries.readiness()

    asked = [each for each in captured if each["sql"].lstrip().startswith("SELECT")]
    assert len(asked) <= 4

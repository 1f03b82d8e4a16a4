"""The gauges of what the database holds."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from relay.engine import gauges
from relay.engine.connection import EngineConnection
from relay.ids import uuid7
from relay.metrics import collector as module
from relay.metrics.collector import Collector
from relay.metrics.names import DATABASE
from tests.engine.rows import add_jobs, add_worker, hold, other_session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> CollectorRegistry:
    # However slow the machine, a reading comes to its end, and is kept.
    monkeypatch.setattr(gauges, "SETTINGS", gauges.SETTINGS.replace("2000", "60000"))
    monkeypatch.setattr(module, "CACHE_SECONDS", 600.0)
    made = CollectorRegistry()
    made.register(Collector())
    return made


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


def test_jobs_are_told_by_queue_and_state(registry: CollectorRegistry) -> None:
    with other_session() as session:
        worker_id = add_worker(session)
        hold(session, worker_id, 2, queue="mail")
        add_jobs(session, 3, queue="mail", run_at="2026-01-01T00:00:00Z")
        add_jobs(session, 1, queue="mail", priority=7)
        add_jobs(session, 2, queue="late", state="scheduled", run_at="2099-01-01")
        add_jobs(session, 1, queue="late", state="failed")

    assert value(registry, "relay_jobs", queue="mail", state="queued") == 4
    assert value(registry, "relay_jobs", queue="mail", state="running") == 2
    assert value(registry, "relay_jobs", queue="late", state="scheduled") == 2
    assert value(registry, "relay_jobs", queue="late", state="failed") == 1
    assert value(registry, "relay_collector_success") == 1


def test_latency_is_the_age_of_the_oldest_job_of_any_priority(
    registry: CollectorRegistry,
) -> None:
    with other_session() as session:
        session.execute("INSERT INTO relay_queue (name) VALUES ('idle')")
        day = {"run_at": "2026-01-01T00:00:00Z"}
        add_jobs(session, 1, queue="mail", priority=9)
        add_jobs(session, 1, queue="mail", priority=-9, **day)
        add_jobs(session, 1, queue="due", state="scheduled", **day)
        add_jobs(session, 1, queue="idle", state="scheduled", run_at="2099-01-01")
        row = session.execute(
            "SELECT extract(epoch FROM now() - '2026-01-01T00:00:00Z')::float8"
        ).fetchone()
    assert row is not None

    def latency(queue: str) -> float | None:
        return value(registry, "relay_queue_latency_seconds", queue=queue)

    assert latency("mail") == pytest.approx(row[0], abs=60)
    assert latency("due") == pytest.approx(row[0], abs=60)
    assert latency("idle") == 0


def test_workers_slots_and_paused_queues_are_told(registry: CollectorRegistry) -> None:
    with other_session() as session:
        worker_id = add_worker(session)
        session.execute("UPDATE relay_worker SET concurrency = 5")
        add_worker(session, state="lost")
        hold(session, worker_id, 2, queue="default")
        session.execute(
            "INSERT INTO relay_queue (name, paused_at) VALUES ('mail', now())"
        )

    assert value(registry, "relay_workers", state="running") == 1
    assert value(registry, "relay_workers", state="lost") == 1
    assert value(registry, "relay_workers", state="quiet") == 0
    assert value(registry, "relay_worker_slots", queue="default", use="busy") == 2
    assert value(registry, "relay_worker_slots", queue="default", use="free") == 3
    assert value(registry, "relay_queue_paused", queue="mail") == 1
    assert value(registry, "relay_queue_paused", queue="default") == 0


def test_schedules_and_tables_are_told(registry: CollectorRegistry) -> None:
    with other_session() as session:
        session.execute(
            "INSERT INTO relay_schedule (id, name, task, args, next_due_at, "
            "last_success_at) VALUES (%s, 'nightly', 't', '{}', "
            "now() - interval '1 hour', 'epoch')",
            (uuid7(),),
        )

    late = value(registry, "relay_schedule_late_seconds", schedule="nightly")
    name = "relay_schedule_last_success_timestamp_seconds"
    assert late == pytest.approx(3600, abs=120)
    assert value(registry, name, schedule="nightly") == 0
    assert (value(registry, "relay_table_bytes", table="relay_job") or 0) > 0
    assert value(registry, "relay_table_dead_rows", table="relay_job") is not None
    assert 'relay_postgres_info{version="1' in generate_latest(registry).decode()


def test_the_database_is_asked_once_in_five_seconds(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[EngineConnection] = []

    def read(connection: EngineConnection) -> list[gauges.Reading]:
        asked.append(connection)
        return gauges.read_gauges(connection)

    monkeypatch.setattr(module, "read_gauges", read)

    first, second = generate_latest(registry), generate_latest(registry)

    assert first == second
    assert len(asked) == 1


def test_a_database_that_does_not_answer_in_time_is_told(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gauges, "SETTINGS", gauges.SETTINGS.replace("60000", "100"))
    monkeypatch.setattr(
        gauges, "STATEMENTS", {"relay_workers": ("SELECT 'x', 1 FROM pg_sleep(60)",)}
    )

    text = generate_latest(registry).decode()

    assert "relay_collector_success 0.0" in text
    assert "relay_workers{" not in text


def test_every_gauge_has_its_statements() -> None:
    of_the_reading = {
        "relay_collector_duration_seconds",
        "relay_collector_success",
    }

    assert set(gauges.STATEMENTS) == set(DATABASE) - of_the_reading

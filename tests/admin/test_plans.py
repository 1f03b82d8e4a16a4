"""Every list of jobs goes by an index, however the rows are distributed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from relay.admin import jobs as admin_jobs
from relay.ids import uuid7
from relay.models import Job, JobState, Queue, Worker
from relay.operations import job_filter
from relay.queries import reading

LIST = "/admin/relay/job/"
NEWEST = 10_000

# Ids of version 7 in the order of n. The last 60,000 jobs are cancelled ones.
FILL = """
INSERT INTO relay_job (id, task, queue, state, created_at, run_at, finished_at, args)
SELECT ('01900000-' || lpad(to_hex(n / 65536), 4, '0') || '-7' ||
        lpad(to_hex(n %% 4096), 3, '0') || '-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
       'app.task_' || n %% 50, 'default',
       CASE WHEN n <= %(failed)s THEN 'failed'
            WHEN n <= %(scheduled)s THEN 'scheduled'
            WHEN n <= %(completed)s THEN 'completed'
            ELSE 'cancelled' END,
       '2026-01-01'::timestamptz + n * interval '1 ms',
       CASE WHEN n > %(failed)s AND n <= %(scheduled)s THEN now() + interval '1 day'
            ELSE '2026-01-01'::timestamptz + n * interval '1 ms' END,
       CASE WHEN n <= %(failed)s OR n > %(scheduled)s
            THEN '2026-01-02'::timestamptz + n * interval '1 ms' END,
       '{"args": [], "kwargs": {}}'
FROM generate_series(1, %(total)s) AS n
"""
WORKER = {
    "name": "host-1",
    "host": "host",
    "pid": 1,
    "queues": ["default", "rare"],
    "concurrency": 1,
    "version": "0",
    "lease_expires_at": datetime(2100, 1, 1, tzinfo=UTC),
}
SIZES = {"failed": 10, "scheduled": 8_000, "completed": 140_000, "total": 200_000}


@pytest.fixture
def fresh_statistics(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(FILL, SIZES)
        cursor.execute("ANALYZE relay_job")


@pytest.fixture
def stale_statistics(db: None) -> None:
    """Statistics from when a few thousand queued jobs of a busy queue were all."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_job (id, task, queue, args) "
            "SELECT gen_random_uuid(), 'app.task', 'rare', '{}' "
            "FROM generate_series(1, 3000)"
        )
        cursor.execute("ANALYZE relay_job")
        cursor.execute("DELETE FROM relay_job")
        cursor.execute(FILL, SIZES)


def scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "Relation Name" in plan or plan["Node Type"] == "Bitmap Index Scan":
        yield plan
    for part in plan.get("Plans", ()):
        yield from scans(part)


def explain(statement: str, *, bitmaps: bool) -> list[dict[str, Any]]:
    """Explain under the settings of a list."""
    bounded = reading.bounded_read("default", bitmaps=bitmaps)
    with bounded, connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
        plan = cursor.fetchone()[0]
    plan = plan if isinstance(plan, list) else json.loads(plan)
    return list(scans(plan[0]["Plan"]))


def looked_at(scan: dict[str, Any]) -> float:
    """Return how many rows the scan read, shown or not."""
    rows: float = scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)
    return rows * scan["Actual Loops"]


@pytest.mark.slow
@pytest.mark.parametrize("statistics", ["fresh_statistics", "stale_statistics"])
def test_failure_050_every_list_filter_and_search_goes_by_an_index(
    browser: Client,
    statistics: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_filter, "NEWEST", NEWEST)
    offered = admin_jobs.OFFERED % {"names": 10, "classes": 20}
    request.getfixturevalue(statistics)
    Queue.objects.create(name="rare")
    Job.objects.create(task="one", queue="rare", state="running", worker_id=uuid7())
    Job.objects.create(task="two", tags=["import-7", "eu"])
    queries = ["", "?p=200", f"?q={uuid7()}", "?q=app.task_7", "?q=nothing"]
    queries += ["?error=ValueError", "?error=ValueError&state=failed"]
    queries += ["?task=app.task_7", "?created=1h", "?q=error:ValueError"]
    queries += ["?q=tag:import-7", "?q=tag:none", "?q=tag:eu&state=queued"]
    for state in JobState.values:
        queries += [f"?state={state}"]
        queries += [f"?state={state}&queue={name}" for name in ("rare", "default")]
        queries += [f"?state={state}&q=nothing", f"?state={state}&queue=rare&q=one"]
    queries += ["?queue=rare", "?queue=default", "?queue=rare&q=nothing"]

    bad: list[str] = []
    for query in queries:
        with CaptureQueriesContext(connection) as captured:
            assert browser.get(LIST + query).status_code == 200
        statements = [
            one["sql"]
            for one in captured
            if '"relay_job"' in one["sql"] and one["sql"].lstrip().startswith("SELECT")
        ]
        assert len(statements) == 2, (query, statements)
        for statement in statements:
            for scan in explain(statement, bitmaps="tag:" in query or "?q=0" in query):
                # Cancelled jobs are searched whole, and stand before the completed
                # ones in the order of their end.
                is_long = "state=c" in query
                most = 70_100 if is_long else NEWEST + reading.COUNT_CAP
                if scan["Node Type"] == "Seq Scan" or looked_at(scan) > most:
                    bad.append(f"{query}: {scan['Node Type']} {looked_at(scan):.0f}")

    for scan in explain(offered, bitmaps=False):
        if scan.get("Relation Name") == "relay_job":
            assert scan["Node Type"] != "Seq Scan", scan
            assert looked_at(scan) <= 1_000, scan

    assert not bad, "\n".join(bad)


@pytest.mark.slow
@pytest.mark.parametrize("statistics", ["fresh_statistics", "stale_statistics"])
def test_failure_050_no_other_list_reads_all_jobs(
    browser: Client, statistics: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(statistics)
    for name in ("default", "rare"):
        Queue.objects.create(name=name)
    Worker.objects.create(**WORKER)
    addresses = [
        f"/admin/relay/{model._meta.model_name}/"
        for model in admin.site._registry
        if model._meta.app_label == "relay" and model is not Job
    ]

    seen = 0
    bad: list[str] = []
    for address in addresses:
        with CaptureQueriesContext(connection) as captured:
            assert browser.get(address).status_code == 200
        for one in captured:
            if "relay_job" not in one["sql"].replace("relay_job_", ""):
                continue
            seen += 1
            bad += [
                f"{address}: {one['sql']}"
                for scan in explain(one["sql"], bitmaps=False)
                if scan["Node Type"] == "Seq Scan"
                and scan.get("Relation Name") == "relay_job"
            ]

    assert seen > 0
    assert not bad, "\n".join(bad)

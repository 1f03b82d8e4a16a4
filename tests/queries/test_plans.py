"""Every read of jobs goes by an index, in few statements, however rows are spread."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from relay import queries
from relay.ids import uuid7
from relay.models import Attempt, History, Job, JobState, Queue
from relay.operations import Actor, job_filter, parse
from tests.queries.factory import make_schedule, make_worker

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

ME = Actor(name="ada", source="cli")
MOST_STATEMENTS = 6
NEWEST = 5_000
# What a statement may read of jobs: the caps of counts, windows and groups.
MOST_ROWS = 35_000

# Ids of version 7 in the order of n. The scheduled ones are all due at one instant.
FILL = """
INSERT INTO relay_job (id, task, queue, priority, state, created_at, run_at,
                       finished_at, error_class, error_message, args)
SELECT ('01900000-' || lpad(to_hex(n / 65536), 4, '0') || '-7' ||
        lpad(to_hex(n %% 4096), 3, '0') || '-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
       'app.task_' || n %% 50, 'q' || n %% 3, n %% 5,
       CASE WHEN n <= %(scheduled)s THEN 'scheduled'
            WHEN n <= %(queued)s THEN 'queued'
            WHEN n <= %(failed)s THEN 'failed' ELSE 'completed' END,
       '2026-01-01'::timestamptz + n * interval '1 ms',
       CASE WHEN n <= %(scheduled)s THEN '2099-01-01'::timestamptz
            ELSE '2026-01-01'::timestamptz END,
       CASE WHEN n > %(queued)s
            THEN '2026-01-02'::timestamptz + n * interval '1 ms' END,
       CASE WHEN n > %(queued)s AND n <= %(failed)s THEN 'ValueError' END,
       CASE WHEN n > %(queued)s AND n <= %(failed)s THEN 'no ' || n %% 7 END,
       '{"args": [1], "kwargs": {}}'
FROM generate_series(1, %(total)s) AS n
"""
SIZES = {"scheduled": 30_000, "queued": 60_000, "failed": 80_000, "total": 140_000}


def fill() -> None:
    with connection.cursor() as cursor:
        cursor.execute(FILL, SIZES)


@pytest.fixture
def fresh_statistics(db: None) -> None:
    fill()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE relay_job")


@pytest.fixture
def stale_statistics(db: None) -> None:
    """Statistics from when a few thousand queued jobs were all there was."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_job (id, task, args) SELECT gen_random_uuid(), 'one', "
            "'{}' FROM generate_series(1, 3000)"
        )
        cursor.execute("ANALYZE relay_job")
        cursor.execute("DELETE FROM relay_job")
    fill()


@pytest.fixture
def some_rows() -> Job:
    """One of everything else."""
    worker = make_worker(queues=["q0", "q1"])
    schedule = make_schedule()
    Queue.objects.create(name="q0")
    job = Job.objects.create(
        task="one",
        queue="q0",
        state="running",
        worker_id=worker.pk,
        schedule_id=schedule.pk,
        tags=["import-7"],
        replay_of=uuid7(),
    )
    Attempt.objects.create(job=job, attempt=1, outcome="retry")
    History.objects.create(job=job, event="retry", attempt=1)
    return job


def scans(plan: dict[str, Any], table: str) -> Iterator[dict[str, Any]]:
    if plan.get("Relation Name") == table:
        yield plan
    for part in plan.get("Plans", ()):
        yield from scans(part, table)


def looked_at(scan: dict[str, Any]) -> float:
    """Return how many rows the scan read, shown or not."""
    rows: float = scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)
    rows += scan.get("Rows Removed by Index Recheck", 0)
    return rows * scan["Actual Loops"]


def explain(
    statement: str, bounds: str, table: str = "relay_job"
) -> list[dict[str, Any]]:
    """Explain a statement under the settings that it was run with."""
    with transaction.atomic(), connection.cursor() as cursor:
        if bounds:
            cursor.execute(bounds.replace("'2000'", "'60000'"))
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
        [[plan]] = cursor.fetchall()
        transaction.set_rollback(True)
    plan = plan if isinstance(plan, list) else json.loads(plan)
    return list(scans(plan[0]["Plan"], table))


def faults(name: str, ask: Callable[[], object]) -> list[str]:
    """Return what is wrong with the statements of a read."""
    with CaptureQueriesContext(connection) as captured:
        ask()
    statements = [
        each["sql"]
        for each in captured
        if each["sql"].lstrip().startswith(("SELECT", "WITH"))
    ]
    found: list[str] = []
    if len(statements) > MOST_STATEMENTS:
        found.append(f"{name}: {len(statements)} statements")
    bounds = ""
    for statement in statements:
        if "set_config" in statement:
            bounds = statement
            continue
        for scan in explain(statement, bounds):
            if scan["Node Type"] == "Seq Scan" or looked_at(scan) > MOST_ROWS:
                what = f"{scan['Node Type']} {scan.get('Index Name', '')}"
                found.append(f"{name}: {what} {looked_at(scan):.0f}: {statement[:300]}")
    return found


def pages(filter: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Give the first three pages of a list, and the one back."""
    wanted, cursor = parse(filter), None
    for number in range(3):
        page = queries.list_jobs(ME, wanted, cursor=cursor)
        yield (
            f"{filter} page {number}",
            lambda cursor=cursor: queries.list_jobs(ME, wanted, cursor=cursor),
        )
        cursor = page["next"]
        if cursor is None:
            return
    back = queries.list_jobs(ME, wanted, cursor=cursor)["previous"]
    yield f"{filter} back", lambda: queries.list_jobs(ME, wanted, cursor=back)


ORDERED = [
    ("", "id"),
    ("queue:q1", "id"),
    ("state:failed", "id"),
    ("state:completed", "finished_at"),
    ("finished:<1h", "finished_at"),
]


@pytest.mark.parametrize("statistics", ["fresh_statistics", "stale_statistics"])
def test_failure_050_every_list_of_jobs_and_its_count_goes_by_an_index(
    statistics: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_filter, "NEWEST", NEWEST)
    request.getfixturevalue(statistics)
    request.getfixturevalue("some_rows")
    filters = ["", "queue:q1", "task:app.task_7", "task:nothing", "tag:import-7"]
    filters += [f"state:{state}" for state in JobState.values]
    filters += ["state:queued queue:q2", "state:failed task:app.task_7"]
    filters += ["state:failed,completed queue:q1", "finished:<1h", "error:ValueError"]
    filters += ["schedule:nightly", f"replay_of:{uuid7()}", f"id:{uuid7()}"]
    filters += [f"unique_key:{uuid7().hex}"]
    filters += ['state:failed task:app.task_7 error:ValueError error_line:"no 3"']
    filters += ['"no such host"', "worker:w1", "args.0:1", "state:running worker:w1"]

    found: list[str] = []
    for filter, order in ORDERED:
        found += faults(
            f"{filter} by {order}",
            lambda f=filter, o=order: queries.list_jobs(ME, parse(f), order=o),
        )
    for filter in filters:
        for name, ask in pages(filter):
            found += faults(name, ask)
        found += faults(
            f"{filter} count", lambda f=filter: queries.count_jobs(ME, parse(f))
        )

    assert not found, "\n".join(found)


@pytest.mark.parametrize("statistics", ["fresh_statistics", "stale_statistics"])
def test_failure_050_every_other_read_goes_by_an_index(
    statistics: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(statistics)
    running: Job = request.getfixturevalue("some_rows")
    queued = Job.objects.filter(state="queued").order_by("-id")[0]
    reads: dict[str, Callable[[], object]] = {
        "states": lambda: queries.states(ME),
        "failures": lambda: queries.list_failures(ME),
        "failures of one": lambda: queries.list_failures(ME, task="app.task_7"),
        "queues": lambda: queries.list_queues(ME),
        "queue": lambda: queries.get_queue(ME, "q0"),
        "workers": lambda: queries.list_workers(ME),
        "worker": lambda: queries.get_worker(ME, "w1"),
        "worker counts": lambda: queries.count_workers(ME),
        "schedules": lambda: queries.list_schedules(ME),
        "upcoming": lambda: queries.get_upcoming(ME),
        "why running": lambda: queries.why_not_running(ME, running.pk),
        "why queued": lambda: queries.why_not_running(ME, queued.pk),
        "job": lambda: queries.get_job(ME, running.pk, include=("attempts", "history")),
        "logs": lambda: queries.list_logs(ME, running.pk),
        "bulk": lambda: queries.list_bulk(ME),
        "audit": lambda: queries.list_audit(ME),
        "stats": lambda: queries.get_stats(ME),
        "activity": lambda: queries.get_activity(ME),
        "totals": lambda: queries.get_totals(ME),
    }

    found = [fault for name, ask in reads.items() for fault in faults(name, ask)]

    assert not found, "\n".join(found)


@pytest.mark.parametrize("counted", [10, 20_000])
def test_the_record_of_what_is_rare_is_found_behind_that_of_many_jobs(
    db: None, counted: int
) -> None:
    insert = (
        "INSERT INTO relay_audit (operation, subject, target, actor, source) "
        "SELECT 'retry_job', CASE WHEN n > 5 THEN 'job' ELSE 'token' END, n::text, "
        "'ada', 'cli' FROM generate_series(%s::int, %s) AS n"
    )
    with connection.cursor() as cursor:
        cursor.execute(insert, [1, counted])
        cursor.execute("ANALYZE relay_audit")
        cursor.execute(insert, [counted + 1, 20_000])

    for subject in ("token", "job"):
        with CaptureQueriesContext(connection) as captured:
            page = queries.list_audit(ME, subject=subject, limit=3)

        assert len(page["results"]) == 3
        _, bounds, statement, *_ = [each["sql"] for each in captured]
        found = explain(statement, bounds, "relay_audit")
        assert sum(map(looked_at, found)) < 100, subject

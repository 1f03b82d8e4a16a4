"""Pruning: only what has outlived its keep time, in batches, with its children."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from relay.engine import prune
from relay.engine.connection import EngineConnection, connect
from relay.ids import uuid7
from tests.engine.rows import add_jobs, add_worker, hold, other_session, states

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])

PAST = "2026-01-01"
FUTURE = "2126-01-01"


def old(session: EngineConnection, count: int = 1, **columns: Any) -> list[UUID]:
    return add_jobs(
        session, count, **{"state": "completed", "expires_at": PAST, **columns}
    )


def count(session: EngineConnection, table: str) -> int:
    row = session.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
def test_prune_deletes_final_jobs_past_their_retention(
    duty: EngineConnection, state: str
) -> None:
    old(duty, 2, state=state)
    old(duty, state=state, expires_at=FUTURE)
    add_jobs(duty, state=state)

    assert prune.prune_jobs(duty) == 2

    assert states(duty) == {state: 2}


@pytest.mark.parametrize(
    "state", ["blocked", "scheduled", "queued", "running", "retrying"]
)
def test_d1_prune_deletes_no_live_job(duty: EngineConnection, state: str) -> None:
    old(duty, state=state, worker_id=uuid7())

    assert prune.prune_jobs(duty) == 0


def test_prune_deletes_attempts_and_history_with_their_job_and_no_others(
    duty: EngineConnection,
) -> None:
    [gone], [kept] = old(duty), old(duty, expires_at=FUTURE)
    for job_id in (gone, kept):
        for table, column in (("relay_attempt", "outcome"), ("relay_history", "event")):
            more = ", attempt" if table == "relay_attempt" else ""
            duty.execute(
                f"INSERT INTO {table} (job_id, {column}{more}) "
                f"SELECT %s, 'retry'{', 1' if more else ''} FROM generate_series(1, 3)",
                (job_id,),
            )

    prune.prune_jobs(duty)

    for table in ("relay_attempt", "relay_history"):
        rows = duty.execute(f"SELECT job_id, count(*) FROM {table} GROUP BY 1")
        assert rows.fetchall() == [(kept, 3)]


@pytest.mark.parametrize("meta", [None, '{"row_keep_s": 0}'], ids=["jobs", "results"])
def test_a_backlog_is_pruned_by_the_retention_index_a_batch_at_a_time(
    duty: EngineConnection, meta: str | None
) -> None:
    old(duty, 5_000, meta=meta, finished_at=PAST)
    duty.execute("ANALYZE relay_job")

    with duty.transaction(force_rollback=True):
        [[plan]] = duty.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {prune.PRUNE_JOBS}",
            {"limit": 10, "mark": prune.START},
        ).fetchall()

    [document] = plan if isinstance(plan, list) else json.loads(plan)
    assert "relay_job_retention_idx" in str(document)
    assert document["Plan"]["Shared Hit Blocks"] < 1_000


def buffers(session: EngineConnection, pruner: prune.Pruner) -> int:
    """Return how many pages the pruner's next batch visits, and undo it."""
    with session.transaction(force_rollback=True):
        [[plan]] = session.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {prune.PRUNE_JOBS}",
            {"limit": 1, "mark": pruner._mark},
        ).fetchall()
    [document] = plan if isinstance(plan, list) else json.loads(plan)
    return int(document["Plan"]["Shared Hit Blocks"])


def test_what_a_held_snapshot_keeps_of_pruned_jobs_costs_the_next_batch_nothing(
    duty: EngineConnection,
) -> None:
    old(duty, 10_000)
    duty.execute(
        "UPDATE relay_job SET expires_at = expires_at + numbered.n * interval '1 ms' "
        "FROM (SELECT id, row_number() OVER () AS n FROM relay_job) AS numbered "
        "WHERE relay_job.id = numbered.id"
    )
    with other_session(autocommit=False) as snapshot:
        snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        snapshot.execute("SELECT count(*) FROM relay_job")
        pruner = prune.Pruner()
        while pruner.prune(duty) == prune.PRUNE_BATCH:
            pass
        old(duty, 100, expires_at="2026-02-01")

        from_mark, from_start = buffers(duty, pruner), buffers(duty, prune.Pruner())

    assert from_mark < from_start / 5


def test_what_lies_below_the_mark_is_found_by_the_next_sweep(
    duty: EngineConnection,
) -> None:
    now = [0.0]
    pruner = prune.Pruner(monotonic=lambda: now[0])
    old(duty, 3, expires_at="2026-02-01")
    assert pruner.prune(duty) == 3

    old(duty, 2, expires_at="2026-01-01")
    old(duty, 1, expires_at="2026-03-01")
    assert pruner.prune(duty) == 1
    now[0] = prune.SWEEP_SECONDS
    assert pruner.prune(duty) == 2

    # The sweep has not lowered the mark.
    old(duty, 1, expires_at="2026-02-15")
    assert pruner.prune(duty) == 0


def test_a_sweep_that_finds_a_full_batch_goes_on_behind_it(
    duty: EngineConnection,
) -> None:
    now = [0.0]
    pruner = prune.Pruner(monotonic=lambda: now[0])
    old(duty, expires_at="2026-02-01")
    pruner.prune(duty)
    old(duty, 25)

    now[0] = prune.SWEEP_SECONDS
    counts = [pruner.prune(duty, limit=10) for _ in range(4)]

    assert counts == [10, 10, 5, 0]


def test_a_sweep_that_fails_is_not_tried_again_at_once(duty: EngineConnection) -> None:
    now = [0.0]
    pruner = prune.Pruner(monotonic=lambda: now[0])
    old(duty, expires_at="2026-02-01")
    pruner.prune(duty)
    mark = pruner._mark

    now[0] = prune.SWEEP_SECONDS
    duty.execute("SET statement_timeout = 1")
    with other_session() as other, other.transaction():
        other.execute("LOCK relay_job")
        with pytest.raises(psycopg.errors.QueryCanceled):
            pruner.prune(duty)
    duty.execute("SET statement_timeout = 0")
    old(duty, expires_at="2026-01-01")

    assert pruner._mark == mark
    assert pruner.prune(duty) == 0


def test_a_look_for_pruning_starts_at_the_mark(duty: EngineConnection) -> None:
    pruner = prune.Pruner()
    old(duty, expires_at="2026-02-01")
    pruner.prune(duty)
    old(duty, expires_at="2026-01-01")
    old(duty, expires_at=FUTURE)

    row = duty.execute(f"SELECT {pruner.next_at}::date::text").fetchone()

    assert row == (FUTURE,)


def test_prune_says_how_late_it_is(duty: EngineConnection) -> None:
    pruner = prune.Pruner()
    pruner.prune(duty)
    assert pruner.late_seconds == 0
    old(duty)
    duty.execute("UPDATE relay_job SET expires_at = now() - interval '100 s'")

    pruner.prune(duty)

    assert 100 <= pruner.late_seconds < 200


def test_prune_keeps_a_job_while_its_unique_key_is_reserved(
    duty: EngineConnection,
) -> None:
    old(duty, 3, unique_until=FUTURE)
    old(duty, 2, unique_until=PAST)

    assert prune.prune_jobs(duty) == 2
    assert prune.prune_jobs(duty) == 0

    assert states(duty) == {"completed": 3}


def test_reserved_keys_in_front_hide_nothing_behind_them(
    duty: EngineConnection,
) -> None:
    old(duty, 50, unique_until=FUTURE, expires_at="2025-01-01")
    old(duty, 5)

    assert prune.prune_jobs(duty, limit=10) == 5


def test_prune_keeps_to_its_limit_and_takes_the_oldest_first(
    duty: EngineConnection,
) -> None:
    old(duty, 10, expires_at="2026-02-01")
    old(duty, 10, expires_at="2026-01-01")

    assert prune.prune_jobs(duty, limit=10) == 10

    rows = duty.execute("SELECT DISTINCT expires_at::date::text FROM relay_job")
    assert rows.fetchall() == [("2026-02-01",)]


def test_failure_048_two_pruners_share_the_work(duty: EngineConnection) -> None:
    old(duty, 10)

    with connect("default", role="duty", name="other") as other, other.transaction():
        theirs = prune.prune_jobs(other, limit=6)
        ours = prune.prune_jobs(duty)

    assert (theirs, ours) == (6, 4)


def test_failure_141_prune_of_a_worker_looks_at_no_finished_job(
    duty: EngineConnection,
) -> None:
    gone = add_worker(duty, state="lost")
    add_jobs(duty, 5, state="completed", worker_id=gone)
    duty.execute("UPDATE relay_worker SET heartbeat_at = '2026-01-01'")

    assert prune.prune_workers(duty) == 1

    rows = duty.execute("SELECT DISTINCT worker_id FROM relay_job").fetchall()
    assert rows == [(gone,)]


@pytest.mark.parametrize("state", ["running", "quiet", "draining"])
def test_prune_keeps_workers_that_nobody_has_given_up(
    duty: EngineConnection, state: str
) -> None:
    add_worker(duty, state=state)
    duty.execute("UPDATE relay_worker SET heartbeat_at = '2026-01-01'")

    assert prune.prune_workers(duty) == 0


def test_failure_023_prune_keeps_a_lost_worker_until_its_jobs_are_taken(
    duty: EngineConnection,
) -> None:
    holder = add_worker(duty, state="lost")
    hold(duty, holder)
    add_worker(duty, state="stopped")
    duty.execute("UPDATE relay_worker SET heartbeat_at = '2026-01-01'")

    assert prune.prune_workers(duty) == 1

    assert duty.execute("SELECT id FROM relay_worker").fetchall() == [(holder,)]


def test_prune_keeps_workers_that_ended_today(duty: EngineConnection) -> None:
    add_worker(duty, state="stopped")

    assert prune.prune_workers(duty) == 0


def test_prune_of_workers_and_history_keeps_to_its_limit(
    duty: EngineConnection,
) -> None:
    for _ in range(5):
        add_worker(duty, state="stopped")
    duty.execute("UPDATE relay_worker SET heartbeat_at = '2026-01-01'")
    duty.execute(
        "INSERT INTO relay_history (event, at) "
        "SELECT 'pause', '2026-01-01' FROM generate_series(1, 5)"
    )

    for setting in ("hashjoin", "mergejoin", "hashagg", "sort", "material"):
        duty.execute(f"SET enable_{setting} = off")

    assert prune.prune_workers(duty, limit=2) == 2
    assert prune.prune_queue_history(duty, limit=2) == 2
    assert (count(duty, "relay_worker"), count(duty, "relay_history")) == (3, 3)


def test_prune_of_queue_history_keeps_what_is_young_and_what_belongs_to_a_job(
    duty: EngineConnection,
) -> None:
    duty.execute(
        "INSERT INTO relay_history (job_id, event, at) VALUES "
        "(NULL, 'pause', now() - interval '91 days'),"
        "(NULL, 'pause', now() - interval '89 days'),"
        "(%s, 'retry', now() - interval '91 days')",
        (uuid7(),),
    )

    assert prune.prune_queue_history(duty) == 1

    assert count(duty, "relay_history") == 2


def test_d1_prune_of_occurrences_keeps_them_longer_than_any_catch_up_window(
    duty: EngineConnection,
) -> None:
    schedule_id = uuid7()
    duty.execute(
        "INSERT INTO relay_schedule (id, name, task, args, cron) "
        "VALUES (%s, 's', 't', '{}', '* * * * *')",
        (schedule_id,),
    )
    duty.execute(
        "INSERT INTO relay_occurrence (schedule_id, due_at, created_at) "
        "SELECT %s, now() - day * interval '1 day', now() - day * interval '1 day' "
        "FROM generate_series(40, 1, -1) AS day",
        (schedule_id,),
    )

    assert prune.prune_occurrences(duty, limit=5) == 5
    assert prune.prune_occurrences(duty) == 4
    assert prune.prune_occurrences(duty) == 0

    oldest = duty.execute(
        "SELECT extract(day FROM now() - min(due_at))::int FROM relay_occurrence"
    ).fetchone()
    assert oldest == (31,)


ACTS = """
INSERT INTO relay_audit (operation, subject, target, actor, source, at)
SELECT 'cancel_jobs', 'job', 'job-' || n, 'ada', 'api',
       now() - interval '400 days' + (n - %(old)s - 0.5) * interval '1 hour'
FROM generate_series(1, %(count)s) AS n
"""


def test_prune_of_the_record_takes_what_is_older_than_the_setting_says(
    duty: EngineConnection, settings: Any
) -> None:
    duty.execute(ACTS, {"old": 5, "count": 9_000})

    pruned = [prune.prune_audit(duty, limit=3) for _ in range(3)]

    assert pruned == [3, 2, 0]
    settings.RELAY = {"RETENTION_AUDIT": None}
    assert prune.prune_audit(duty) == 0
    settings.RELAY = {"RETENTION_AUDIT": timedelta(days=399)}
    assert prune.prune_audit(duty) == 24
    settings.RELAY = {"RETENTION_AUDIT": timedelta(days=36_525)}
    assert prune.prune_audit(duty) == 0


@pytest.mark.parametrize("statistics", ["fresh", "stale"])
@pytest.mark.parametrize("old", [0, 50_000])
def test_prune_of_the_record_reads_no_more_of_it_than_a_batch(
    duty: EngineConnection, statistics: str, old: int
) -> None:
    values = {"old": old, "count": 50_000}
    if statistics == "stale":
        duty.execute(ACTS, {"old": 0, "count": 10})
        duty.execute("ANALYZE relay_audit")
    duty.execute(ACTS, values)
    if statistics == "fresh":
        duty.execute("ANALYZE relay_audit")

    with duty.transaction(force_rollback=True):
        [[plan]] = duty.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {prune.PRUNE_AUDIT}",
            {"keep": timedelta(days=400), "limit": 100},
        ).fetchall()

    [document] = plan if isinstance(plan, list) else json.loads(plan)
    assert "Seq Scan" not in str(document)
    assert document["Plan"]["Shared Hit Blocks"] < 2_000


def test_bulk_operations_that_ended_go_as_the_record_does(
    duty: EngineConnection, settings: Any
) -> None:
    duty.execute(
        "INSERT INTO relay_operation (id, action, filter, skipped, position, actor, "
        "source, state, created_at, finished_at) "
        "SELECT ('01900000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 'retry', "
        "'state:failed', '{}', '{}', 'ada', 'api', "
        "CASE WHEN n = 1 THEN 'running' ELSE 'completed' END, "
        "now() - interval '500 days', "
        "CASE WHEN n > 1 THEN now() - (10.5 - n) * interval '100 days' END "
        "FROM generate_series(1, 9) AS n"
    )

    settings.RELAY = {"RETENTION_AUDIT": None}
    assert prune.prune_operations(duty) == 0
    settings.RELAY = {"RETENTION_AUDIT": timedelta(days=400)}

    pruned = [prune.prune_operations(duty, limit=4) for _ in range(3)]

    assert pruned == [3, 2, 0]
    left = duty.execute("SELECT state FROM relay_operation ORDER BY id").fetchall()
    assert left == [("running",), *[("completed",)] * 3]


OPERATIONS = """
INSERT INTO relay_operation (id, action, filter, skipped, position, actor, source,
                             state, created_at, finished_at)
SELECT ('01900000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 'retry', '', '{}',
       '{}', 'ada', 'api', 'running', now() - n_old * interval '1 day',
       CASE WHEN n > %(stuck)s THEN now() - (n_old - 1) * interval '1 day' END
FROM generate_series(1, %(count)s) AS n,
     LATERAL (SELECT CASE WHEN n <= %(old)s THEN 500 ELSE 1 END AS n_old) AS age
"""


def test_no_operation_that_never_ended_keeps_those_behind_it(
    duty: EngineConnection,
) -> None:
    duty.execute(OPERATIONS, {"stuck": 10, "old": 16, "count": 30})

    pruned = [prune.prune_operations(duty, limit=4) for _ in range(4)]

    assert pruned == [2, 2, 2, 0]
    [left] = duty.execute("SELECT count(*) FROM relay_operation").fetchall()
    assert left == (24,)


@pytest.mark.parametrize("statistics", ["fresh", "stale"])
def test_prune_of_operations_reads_no_more_than_a_page(
    duty: EngineConnection, statistics: str
) -> None:
    if statistics == "stale":
        duty.execute("ANALYZE relay_operation")
    duty.execute(OPERATIONS, {"stuck": 0, "old": 10_000, "count": 20_000})
    if statistics == "fresh":
        duty.execute("ANALYZE relay_operation")

    with duty.transaction(force_rollback=True):
        [[plan]] = duty.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {prune.PRUNE_OPERATIONS}",
            {"keep": timedelta(days=400), "limit": 100, "after": UUID(int=0)},
        ).fetchall()

    [document] = plan if isinstance(plan, list) else json.loads(plan)
    assert "Seq Scan" not in str(document)
    assert document["Plan"]["Shared Hit Blocks"] < 2_000

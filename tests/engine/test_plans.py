"""The plans of the engine's statements, at size and with statistics that are stale.

Full size is 1,000,000 finished, 500,000 scheduled and 100,000 queued rows; a tenth of
that unless --full or RELAY_TEST_SCALE says otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from relay.engine import (
    claim,
    expire,
    finish,
    gauges,
    holdings,
    lease,
    matching,
    order,
    promote,
    prune,
    report,
    rules,
    trace,
)
from relay.engine.connection import EngineConnection, connect
from relay.ids import uuid7
from tests.engine.rows import other_session
from tests.scale import scaled

# The rows are made once and committed: no test writes through Django's connection.
pytestmark = [pytest.mark.django_db, pytest.mark.slow, pytest.mark.timeout(600)]

BATCH: Final = 100
BUFFERS_PER_ROW: Final = 50

FINISHED: Final = """
INSERT INTO relay_job (id, task, args, state, worker_id, attempt, run_at, started_at,
                       finished_at, expires_at, result)
SELECT gen_random_uuid(), 'tests.noop', '{"args": [1], "kwargs": {}}', 'completed',
       md5((n %% 50)::text)::uuid, 1, now() - interval '2 days',
       now() - interval '1 day', now() - interval '1 day' + n * interval '10 ms',
       now() + n * interval '10 ms' - interval '1 minute', '1'
FROM generate_series(1, %(count)s) AS n
"""
LIVE: Final = """
INSERT INTO relay_job (id, task, args, queue, priority, state, worker_id, attempt,
                       run_at)
SELECT gen_random_uuid(), 'tests.noop', '{"args": [1], "kwargs": {}}', %(queue)s,
       n %% 3, %(state)s, %(worker_id)s, 1, now() + %(due_in)s::interval
FROM generate_series(1, %(count)s) AS n
"""


@dataclass(frozen=True, kw_only=True)
class Explained:
    """What EXPLAIN ANALYZE said of one statement.

    Attributes:
        scans: (kind, index) of each scan of relay_job.
        kinds: the kinds of all nodes.
        buffers: pages of shared memory visited.
    """

    scans: set[tuple[str, str | None]]
    kinds: set[str]
    buffers: int

    @property
    def indexes(self) -> set[str | None]:
        return {index for _, index in self.scans}


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _read(answer: Any) -> Explained:
    [document] = answer if isinstance(answer, list) else json.loads(answer)
    nodes = list(_nodes(document["Plan"]))
    return Explained(
        scans={
            (node["Node Type"], node.get("Index Name"))
            for node in nodes
            # A bitmap's index is named one node below its table.
            if "Scan" in node["Node Type"]
            and (
                node.get("Relation Name") == "relay_job"
                or node.get("Index Name", "").startswith("relay_job_")
            )
        },
        kinds={node["Node Type"] for node in nodes},
        buffers=document["Plan"]["Shared Hit Blocks"]
        + document["Plan"]["Shared Read Blocks"],
    )


@pytest.fixture(params=[False, True], ids=["alone", "followed"])
def followed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell whether the jobs' task names one that is enqueued when they fail."""
    one = rules.Follower(task="tests.other", queue="q1", priority=1, max_retries=None)
    followers = {"tests.noop": one} if request.param else {}
    monkeypatch.setattr(rules, "_followers", followers)


def explain_prepared(
    session: EngineConnection, statement: str, values: Mapping[str, Any]
) -> Explained:
    """Explain the statement's prepared, generic plan; what it does is rolled back."""
    order: list[str] = []

    def place(match: re.Match[str]) -> str:
        if match[1] not in order:
            order.append(match[1])
        return f"${order.index(match[1]) + 1}"

    text = re.sub(r"%\((\w+)\)s", place, statement)
    session.execute(f"PREPARE explained AS {text}".encode())
    execute = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE explained ({})")
    call = execute.format(sql.SQL(", ").join(sql.Literal(values[n]) for n in order))
    try:
        with session.transaction(force_rollback=True):
            row = session.execute(call).fetchone()
    finally:
        session.execute("DEALLOCATE explained")
    assert row is not None
    return _read(row[0])


def explain(
    session: EngineConnection, statement: str, values: Mapping[str, Any]
) -> Explained:
    """Explain the plan made for these values; what it does is rolled back."""
    with session.transaction(force_rollback=True):
        row = session.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", values
        ).fetchone()
    assert row is not None
    return _read(row[0])


def fill(session: psycopg.Connection[Any], count: int, **values: Any) -> None:
    row = {
        "queue": "default",
        "state": "queued",
        "worker_id": None,
        "due_in": "0 s",
        "count": count,
        **values,
    }
    session.execute(LIVE, row)


@contextmanager
def without_autovacuum(session: psycopg.Connection[Any]) -> Iterator[None]:
    session.execute("ALTER TABLE relay_job SET (autovacuum_enabled = off)")
    try:
        yield
    finally:
        session.execute(
            "TRUNCATE relay_job, relay_attempt, relay_history, relay_worker, "
            "relay_queue"
        )
        session.execute("ALTER TABLE relay_job RESET (autovacuum_enabled)")


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What the tables hold.

    Attributes:
        worker_id: a live worker that holds many jobs; lost_id: one that is lost.
        held: (id, attempt) of BATCH jobs of the live worker.
    """

    worker_id: UUID
    lost_id: UUID
    held: Sequence[tuple[UUID, int]]


@pytest.fixture(scope="module")
def finished(django_db_setup: None) -> Iterator[Rows]:
    """Fill the tables but for what is queued; statistics know of no live job."""
    worker_id, lost_id = uuid7(), uuid7()
    with other_session() as session, without_autovacuum(session):
        session.execute(FINISHED, {"count": scaled(1_000_000)})
        for one, state in ((worker_id, "running"), (lost_id, "lost")):
            session.execute(
                "INSERT INTO relay_worker (id, name, host, pid, queues, concurrency, "
                "version, state, lease_expires_at) "
                "VALUES (%s, 'n', 'h', 1, '{}', 1, '0', %s, now() + interval '1 day')",
                (one, state),
            )
        session.execute(
            "INSERT INTO relay_queue (name, paused_at) "
            "VALUES ('default', NULL), ('paused', now())"
        )
        session.execute("VACUUM ANALYZE relay_job, relay_worker, relay_queue")
        fill(session, scaled(500_000), state="scheduled", due_in="30 days")
        fill(session, 2 * BATCH, state="retrying", due_in="-1 s")
        fill(session, scaled(100_000), queue="paused")
        for number in range(9):
            fill(
                session,
                scaled(10_000),
                queue=f"q{number}",
                state="running",
                worker_id=uuid7(),
            )
        for one in (worker_id, lost_id):
            fill(session, 2 * BATCH, state="running", worker_id=one)
        held = session.execute(
            "SELECT id, attempt FROM relay_job "
            "WHERE state = 'running' AND worker_id = %s LIMIT %s",
            (worker_id, BATCH),
        ).fetchall()
        yield Rows(worker_id=worker_id, lost_id=lost_id, held=held)


@pytest.fixture(scope="module", params=[200, 100_000])
def queued(request: pytest.FixtureRequest, finished: Rows) -> Iterator[Rows]:
    """Queue few jobs or many, of which the statistics know nothing."""
    with other_session() as session:
        count = request.param if request.param == 200 else scaled(request.param)
        fill(session, count)
        yield finished
        session.execute(
            "DELETE FROM relay_job WHERE queue = 'default' AND state = 'queued'"
        )
        session.execute("VACUUM relay_job")


@pytest.fixture
def hot(queued: Rows) -> Iterator[EngineConnection]:
    with connect("default", role="hot", name="plans") as connection:
        yield connection


@pytest.fixture
def duty(queued: Rows) -> Iterator[EngineConnection]:
    with connect("default", role="duty", name="plans") as connection:
        yield connection


def spans(*spans: claim.Span) -> dict[str, Any]:
    queues, high, low, marks = zip(*spans, strict=True)
    return {
        "queues": list(queues),
        "high": list(high),
        "low": list(low),
        "marks": list(marks),
    }


SPANS: Final = {
    "from the start": [claim.Span("default", 100, -100, -1)],
    "above marks, and gaps": [
        claim.Span("default", 100, 3, -1),
        *(claim.Span("default", one, one, 0) for one in (2, 1, 0)),
        claim.Span("default", -1, -100, -1),
    ],
    "many queues": [
        *(claim.Span(f"q{number}", 100, -100, -1) for number in range(9)),
        claim.Span("default", 100, -100, -1),
    ],
}


@pytest.mark.parametrize("searched", SPANS)
def test_claim_reads_the_ready_index_and_the_rows_it_takes(
    hot: EngineConnection, queued: Rows, searched: str
) -> None:
    values = {
        **spans(*SPANS[searched]),
        "limit": BATCH,
        "worker_id": queued.worker_id,
    }

    found = explain_prepared(hot, claim.CLAIM, values)

    assert found.indexes == {"relay_job_ready_idx", "relay_job_pkey"}
    assert not found.kinds & {"Sort", "Incremental Sort", "Seq Scan"}
    assert found.buffers < BUFFERS_PER_ROW * BATCH


def test_failure_015_paused_scheduled_and_finished_backlogs_cost_a_claim_nothing(
    hot: EngineConnection, queued: Rows
) -> None:
    values = {
        **spans(
            claim.Span("paused", 100, -100, -1),
            claim.Span("empty", 100, -100, -1),
        ),
        "limit": BATCH,
        "worker_id": queued.worker_id,
    }

    assert explain_prepared(hot, claim.CLAIM, values).buffers < 20


def test_claim_by_a_lost_worker_searches_nothing(
    hot: EngineConnection, queued: Rows
) -> None:
    values = {
        **spans(claim.Span("default", 100, -100, -1)),
        "limit": BATCH,
        "worker_id": queued.lost_id,
    }

    assert explain_prepared(hot, claim.CLAIM, values).buffers < 10


@pytest.mark.parametrize(
    "statement",
    [finish.COMPLETE, finish.COMPLETE_EXPIRING, finish.COMPLETE_AND_DELETE],
    ids=["keep", "result first", "delete"],
)
def test_finish_stays_on_the_primary_key(
    hot: EngineConnection, queued: Rows, statement: str
) -> None:
    results = [[str(job_id), attempt, 1, 86400.0] for job_id, attempt in queued.held]
    values = {"results": json.dumps(results), "worker_id": queued.worker_id}

    found = explain_prepared(hot, statement, values)

    assert found.scans == {("Index Scan", "relay_job_pkey")}
    assert found.buffers < BUFFERS_PER_ROW * BATCH


def test_finish_under_an_old_token_reads_each_row_once(
    hot: EngineConnection, queued: Rows
) -> None:
    results = [[str(job_id), 99, 1, None] for job_id, _ in queued.held]
    values = {"results": json.dumps(results), "worker_id": queued.worker_id}

    found = explain_prepared(hot, finish.COMPLETE, values)

    assert found.buffers < 6 * BATCH


def test_locks_before_a_mixed_batch_stay_on_the_primary_key_in_the_order_given(
    hot: EngineConnection, queued: Rows
) -> None:
    ids = sorted(job_id for job_id, _ in queued.held)
    values = {"ids": ids, "worker_id": queued.worker_id}

    found = explain_prepared(hot, order.LOCK_ENDED, values)

    assert found.scans == {("Index Scan", "relay_job_pkey")}
    assert not found.kinds & {"Sort", "Hash Join", "Merge Join"}
    assert found.buffers < BUFFERS_PER_ROW * BATCH


@pytest.mark.usefixtures("followed")
def test_settle_stays_on_the_primary_key(hot: EngineConnection, queued: Rows) -> None:
    verbs = ("retry", "fail", "cancel", "hand_back", "release")
    outcomes = [
        {"id": str(job_id), "attempt": attempt, "verb": verbs[number % 5], "charge": 1}
        | {"delay_s": 1.0, "error_class": "E", "error_message": "m", "until_s": 9.0}
        for number, (job_id, attempt) in enumerate(queued.held)
    ]
    values = {
        "outcomes": json.dumps(outcomes),
        "worker_id": queued.worker_id,
        "hand_back_limit": timedelta(days=1),
        **rules.values(),
    }

    found = explain_prepared(hot, rules.told(finish.SETTLE), values)

    assert found.scans == {("Index Scan", "relay_job_pkey")}
    assert found.buffers < BUFFERS_PER_ROW * BATCH


def test_held_reads_the_held_index(hot: EngineConnection, queued: Rows) -> None:
    values = {"queues": ["default", "q1"], "worker_id": queued.worker_id}

    found = explain_prepared(hot, holdings.HELD, values)

    assert found.indexes == {"relay_job_held_idx"}
    assert found.buffers < 2 * 2 * BATCH


def test_cancel_poll_reads_the_held_index(duty: EngineConnection, queued: Rows) -> None:
    values = {"queues": ["default", "q1"], "workers": [queued.worker_id]}

    found = explain(duty, holdings.CANCEL_REQUESTED, values)

    assert found.indexes == {"relay_job_held_idx"}
    assert found.buffers < 2 * 2 * BATCH


@pytest.mark.usefixtures("followed")
def test_take_reads_the_held_index(duty: EngineConnection, queued: Rows) -> None:
    values = {
        "worker_id": queued.lost_id,
        "limit": BATCH,
        "loss_limit": 10,
        **rules.values(),
    }

    found = explain(duty, rules.told(lease.TAKE), values)

    assert found.indexes == {"relay_job_held_idx", "relay_job_pkey"}
    assert ("Seq Scan", None) not in found.scans
    assert found.buffers < BUFFERS_PER_ROW * BATCH


@pytest.mark.usefixtures("followed")
def test_settlement_of_a_dead_child_reads_the_held_index(
    duty: EngineConnection, queued: Rows
) -> None:
    started = [
        {"id": str(job_id), "attempt": attempt} for job_id, attempt in queued.held
    ]
    values = {
        "worker_id": queued.worker_id,
        "started": json.dumps(started),
        "delay_s": [1.0],
        "is_charged": True,
        "crash_limit": 3,
        **rules.values(),
        "reason": "killed",
    }

    found = explain(duty, rules.told(holdings.SETTLE_DEAD_CHILD), values)

    assert found.indexes == {"relay_job_held_idx", "relay_job_pkey"}
    assert found.buffers < BUFFERS_PER_ROW * 2 * BATCH


def test_release_of_unknown_rows_stays_on_the_primary_key(
    hot: EngineConnection, queued: Rows
) -> None:
    jobs = [{"id": str(job_id), "attempt": one} for job_id, one in queued.held]
    values = {
        "jobs": json.dumps(jobs),
        "worker_id": queued.worker_id,
        "reason": "unknown",
        **rules.values(),
    }

    found = explain(hot, holdings.RELEASE_HELD, values)

    assert found.indexes == {"relay_job_pkey"}
    assert found.buffers < BUFFERS_PER_ROW * BATCH


@pytest.mark.parametrize(
    ("statement", "name"),
    [(report.PROGRESS, "news"), (report.OUTPUT, "outputs"), (trace.KEEP, "spans")],
    ids=["progress", "output", "span"],
)
def test_what_attempts_tell_is_written_by_the_primary_key(
    hot: EngineConnection, queued: Rows, statement: str, name: str
) -> None:
    told = [
        {"id": str(job_id), "attempt": attempt, "progress": {}, "text": "a line"}
        | {"span": "00-1-2-01"}
        for job_id, attempt in queued.held
    ]
    values = {name: json.dumps(told), "worker_id": queued.worker_id}

    found = explain(hot, statement, values)

    assert found.indexes == {"relay_job_pkey"}
    assert found.buffers < BUFFERS_PER_ROW * BATCH


def test_orphan_sweep_reads_the_held_index(
    duty: EngineConnection, queued: Rows
) -> None:
    found = explain(duty, lease.ORPHAN_HOLDERS, {})

    assert found.indexes == {"relay_job_held_idx"}
    assert found.buffers < 2 * (9 * scaled(10_000) + 4 * BATCH)


def test_promote_reads_the_due_index_and_nothing_that_is_not_due(
    duty: EngineConnection, queued: Rows
) -> None:
    due = explain(duty, promote.PROMOTE, {"limit": 2 * BATCH})
    with duty.transaction(force_rollback=True):
        duty.execute(promote.PROMOTE, {"limit": 2 * BATCH})
        nothing_due = explain(duty, promote.PROMOTE, {"limit": 2 * BATCH})

    assert due.indexes == {"relay_job_due_idx", "relay_job_pkey"}
    assert due.buffers < BUFFERS_PER_ROW * 2 * BATCH
    # The entries just promoted are dead, and walked once; those ahead never.
    assert nothing_due.buffers < 3 * 2 * BATCH


@pytest.mark.parametrize(
    ("next_at", "index"),
    [
        (promote.NEXT_DUE_AT, "relay_job_due_idx"),
        (expire.NEXT_DEADLINE_AT, "relay_job_deadline_idx"),
        (prune.Pruner().next_at, "relay_job_retention_idx"),
    ],
    ids=["promote", "expire", "prune"],
)
def test_a_look_reads_the_first_entry_of_an_index(
    duty: EngineConnection, queued: Rows, next_at: str, index: str
) -> None:
    found = explain(duty, f"SELECT {next_at}", {})

    assert found.indexes == {index}
    assert found.buffers < 20


def test_prune_reads_the_retention_index(duty: EngineConnection, queued: Rows) -> None:
    found = explain(duty, prune.PRUNE_JOBS, {"limit": BATCH, "mark": prune.START})

    assert found.indexes == {"relay_job_retention_idx", "relay_job_pkey"}
    assert found.buffers < BUFFERS_PER_ROW * BATCH


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param(statement, id=f"{name}-{place}")
        for name, statements in gauges.STATEMENTS.items()
        for place, statement in enumerate(statements)
    ],
)
def test_a_gauge_reads_no_more_of_the_jobs_than_indexes_give(
    duty: EngineConnection, queued: Rows, statement: str
) -> None:
    found = explain(duty, statement, {})

    assert found.indexes <= {
        "relay_job_ready_idx",
        "relay_job_due_idx",
        "relay_job_held_idx",
        "relay_job_failed_idx",
    }


def test_dead_rows_below_a_mark_cost_a_claim_nothing(
    hot: EngineConnection, queued: Rows
) -> None:
    with (
        other_session(autocommit=False) as snapshot,
        other_session() as session,
    ):
        fill(session, 20 * BATCH, queue="churned")
        snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        snapshot.execute("SELECT count(*) FROM relay_job WHERE queue = 'churned'")
        session.execute(
            "UPDATE relay_job SET state = 'completed' WHERE queue = 'churned'"
        )
        row = session.execute(
            "SELECT max(ready_seq) FROM relay_job WHERE queue = 'churned'"
        ).fetchone()
        assert row is not None
        fill(session, 30, queue="churned")

        known = [claim.Span("churned", one, one, row[0]) for one in (2, 1, 0)]
        values = {"limit": 30, "worker_id": queued.worker_id}
        marked = explain_prepared(hot, claim.CLAIM, {**spans(*known), **values})
        swept = explain_prepared(
            hot,
            claim.CLAIM,
            {**spans(claim.Span("churned", 100, -100, -1)), **values},
        )
        session.execute("DELETE FROM relay_job WHERE queue = 'churned'")

    assert marked.buffers < BUFFERS_PER_ROW * 30
    assert swept.buffers > marked.buffers + 2 * BATCH


WANTED: Final = {
    "queue": matching.JobFilter(queue="default"),
    "task": matching.JobFilter(task="tests.rare"),
    "tag": matching.JobFilter(tag="import-7"),
    "error": matching.JobFilter(error_class="ValueError"),
    "times": matching.JobFilter(
        created_after=datetime(2020, 1, 1, tzinfo=UTC),
        created_before=datetime(2020, 1, 2, tzinfo=UTC),
    ),
    "all": matching.JobFilter(queue="q1", task="tests.rare", tag="import-7"),
}


@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize(
    "state", ["scheduled", "retrying", "queued", "running", "failed", "cancelled"]
)
def test_a_filter_for_many_jobs_goes_by_an_index_of_the_state_or_the_tags(
    duty: EngineConnection, queued: Rows, state: str, wanted: str
) -> None:
    text, values = matching.statement(WANTED[wanted], state)
    values |= {"limit": BATCH, "after": UUID(int=0)}
    duty.execute("SET enable_seqscan = off")

    found = explain(duty, text, values)

    allowed = {
        "scheduled": {"relay_job_due_idx"},
        "retrying": {"relay_job_retrying_idx", "relay_job_due_idx"},
        "queued": {"relay_job_ready_idx"},
        "running": {"relay_job_held_idx"},
        "failed": {"relay_job_failed_idx"},
        "cancelled": {"relay_job_failed_idx"},
    }[state] | ({"relay_job_tags_idx"} if "import" in repr(WANTED[wanted]) else set())
    assert "Seq Scan" not in found.kinds
    assert found.indexes - {None} <= allowed
    if state in ("failed", "cancelled"):
        assert found.buffers < 50  # there are none, whatever else the table holds

"""What the database holds just now, as numbers for metrics. Read-only.

None reads more rows of relay_job than its limit, and each by an index: a scrape must
cost the same whatever has piled up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from relay.engine.connection import EngineConnection

__all__ = ["STATEMENTS", "Reading", "read_gauges"]

# Of the transaction: the planner is kept on the indexes, whatever the statistics know.
SETTINGS: Final = """
SELECT set_config('statement_timeout', '2000', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true)
"""
# A queue's queued jobs are counted so far; of the other states, all queues' together.
QUEUED_LIMIT: Final = 100_001
OTHERS_LIMIT: Final = 10_001

# Index: relay_job_ready_idx, walked from one queue and priority to the next.
_PLACES: Final = """
WITH RECURSIVE place AS (
    (SELECT queue, priority FROM relay_job
     WHERE state = 'queued' AND concurrency_key IS NULL
     ORDER BY queue, priority DESC LIMIT 1)
    UNION ALL
    SELECT next.queue, next.priority FROM place CROSS JOIN LATERAL (
        (SELECT queue, priority FROM relay_job
         WHERE state = 'queued' AND concurrency_key IS NULL
           AND queue = place.queue AND priority < place.priority
         ORDER BY queue, priority DESC LIMIT 1)
        UNION ALL
        (SELECT queue, priority FROM relay_job
         WHERE state = 'queued' AND concurrency_key IS NULL AND queue > place.queue
         ORDER BY queue, priority DESC LIMIT 1)
        LIMIT 1
    ) AS next
)
"""

# The first of each queue and priority has been ready for longest. Index:
# relay_job_ready_idx; relay_job_due_idx for what nobody has promoted.
LATENCY: Final = f"""{_PLACES}
SELECT name, greatest(0, max(age))::float8 FROM (
    SELECT place.queue AS name,
           date_part('epoch', statement_timestamp() - first.run_at) AS age
    FROM place CROSS JOIN LATERAL (
        SELECT run_at FROM relay_job
        WHERE state = 'queued' AND concurrency_key IS NULL
          AND queue = place.queue AND priority = place.priority
        ORDER BY ready_seq LIMIT 1
    ) AS first
    UNION ALL
    SELECT queue, date_part('epoch', statement_timestamp() - run_at) FROM (
        SELECT queue, run_at FROM relay_job
        WHERE state IN ('scheduled', 'retrying') AND run_at <= statement_timestamp()
        ORDER BY run_at LIMIT 100
    ) AS due
    UNION ALL
    SELECT name, 0 FROM relay_queue
) AS found
GROUP BY name
"""  # noqa: S608 - constants only

# Index: relay_job_ready_idx.
QUEUED: Final = f"""{_PLACES}
SELECT name.queue, 'queued', (
    SELECT count(*) FROM (
        SELECT FROM relay_job
        WHERE state = 'queued' AND concurrency_key IS NULL AND queue = name.queue
        ORDER BY priority DESC, ready_seq
        LIMIT {QUEUED_LIMIT}
    ) AS job
)
FROM (SELECT DISTINCT queue FROM place) AS name
"""  # noqa: S608 - constants only

# Index: relay_job_held_idx.
RUNNING: Final = """
SELECT queue, 'running', count(*) FROM relay_job WHERE state = 'running' GROUP BY queue
"""

# Index: relay_job_due_idx.
WAITING: Final = f"""
SELECT queue, state, count(*) FROM (
    SELECT queue, state FROM relay_job WHERE state IN ('scheduled', 'retrying')
    ORDER BY run_at LIMIT {OTHERS_LIMIT}
) AS job
GROUP BY queue, state
"""  # noqa: S608 - constants only

# Index: relay_job_failed_idx, once for each state, from the newest.
ENDED: Final = f"""
SELECT queue, state, count(*) FROM (
    (SELECT queue, state FROM relay_job WHERE state = 'failed'
     ORDER BY id DESC LIMIT {OTHERS_LIMIT})
    UNION ALL
    (SELECT queue, state FROM relay_job WHERE state = 'cancelled'
     ORDER BY id DESC LIMIT {OTHERS_LIMIT})
) AS job
GROUP BY queue, state
"""  # noqa: S608 - constants only

# A small table, as the next ones but where an index is named.
PAUSED: Final = """
SELECT name, CASE WHEN paused_at IS NOT NULL AND (
    paused_until IS NULL OR paused_until > statement_timestamp()) THEN 1 ELSE 0 END
FROM relay_queue
"""
WORKERS: Final = """
SELECT state, (SELECT count(*) FROM relay_worker WHERE relay_worker.state = known.state)
FROM unnest(ARRAY['running', 'quiet', 'draining', 'lost']) AS known(state)
"""
# A slot that is free for several queues is free in each. Index: relay_job_held_idx.
SLOTS: Final = """
WITH held AS MATERIALIZED (
    SELECT queue, worker_id, count(*) AS jobs FROM relay_job
    WHERE state = 'running' GROUP BY queue, worker_id
), slots AS MATERIALIZED (
    SELECT worker.queues, greatest(0, worker.concurrency - coalesce((
        SELECT sum(jobs) FROM held WHERE held.worker_id = worker.id), 0)) AS free
    FROM relay_worker AS worker WHERE worker.state = 'running'
)
SELECT queue, 'free', sum(free)::float8
FROM slots CROSS JOIN unnest(queues) AS queue GROUP BY queue
UNION ALL
SELECT queue, 'busy', sum(jobs)::float8 FROM held GROUP BY queue
"""
# What a spread adds is not late. Times made by hand may be infinite.
LATE: Final = """
SELECT name, greatest(0, least(1e10, date_part('epoch', statement_timestamp()
       - next_due_at) - coalesce(spread_ms, 0) / 1000.0))::float8
FROM relay_schedule WHERE enabled AND finished_at IS NULL AND next_due_at IS NOT NULL
"""
SUCCESS: Final = """
SELECT name, date_part('epoch', last_success_at) FROM relay_schedule
WHERE enabled AND isfinite(last_success_at)
"""
BYTES: Final = """
SELECT relname, pg_total_relation_size(relid)::float8 FROM pg_stat_user_tables
WHERE schemaname = current_schema AND starts_with(relname, 'relay_')
"""
DEAD: Final = """
SELECT relname, n_dead_tup::float8 FROM pg_stat_user_tables
WHERE schemaname = current_schema AND starts_with(relname, 'relay_')
"""

POSTGRES: Final = "SELECT current_setting('server_version'), 1"

# By the gauge's name; each gives the labels and then the value.
STATEMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "relay_queue_latency_seconds": (LATENCY,),
    "relay_jobs": (QUEUED, RUNNING, WAITING, ENDED),
    "relay_queue_paused": (PAUSED,),
    "relay_workers": (WORKERS,),
    "relay_worker_slots": (SLOTS,),
    "relay_schedule_late_seconds": (LATE,),
    "relay_schedule_last_success_timestamp_seconds": (SUCCESS,),
    "relay_table_bytes": (BYTES,),
    "relay_table_dead_rows": (DEAD,),
    "relay_postgres_info": (POSTGRES,),
}


class Reading(NamedTuple):
    """One gauge, with the values of its labels."""

    name: str
    labels: list[str]
    value: float


def read_gauges(connection: EngineConnection) -> list[Reading]:
    """Return what the database holds just now.

    Raises:
        psycopg.errors.QueryCanceled: one statement took longer than two seconds.
        psycopg.Error: as from any statement.

    Transaction: its own, which writes nothing and sees one moment.
    """
    readings: list[Reading] = []
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(SETTINGS)
        for name, statements in STATEMENTS.items():
            for statement in statements:
                rows: list[Any] = connection.execute(statement.encode()).fetchall()
                readings += [
                    Reading(name, [*labels], float(value)) for *labels, value in rows
                ]
    return readings

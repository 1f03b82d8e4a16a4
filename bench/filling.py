"""Rows that are there before the jobs of a measurement: finished, or due much later."""

from __future__ import annotations

from bench.rig import Store

__all__ = ["fill_finished", "fill_scheduled"]

# Ids as relay makes them: by time, so that the primary key grows at its end.
_IDS = """
SELECT number, (
    lpad(to_hex(now_ms - %(rows)s + number), 12, '0')
    || '7' || substr(md5(number::text), 1, 3)
    || '8' || substr(md5(number::text), 4, 15))::uuid AS id
FROM (SELECT (extract(epoch FROM now()) * 1000)::bigint AS now_ms) AS clock
CROSS JOIN generate_series(1, %(rows)s) AS number
"""
_FINISHED = f"""
INSERT INTO relay_job (
    id, task, state, attempt, worker_id, created_at, run_at, started_at, finished_at,
    expires_at, result, args
)
SELECT id, 'bench.tasks.noop', 'completed', 1,
       '00000000-0000-7000-8000-000000000000', past.at, past.at, past.at, past.at,
       past.at + interval '1 day', 'null',
       jsonb_build_object('args', '[]'::jsonb,
                          'kwargs', jsonb_build_object('n', number))
FROM ({_IDS}) AS made
CROSS JOIN LATERAL (
    SELECT now() - (%(rows)s - number) * interval '1 millisecond' AS at
) AS past
"""  # noqa: S608 - constants only


def fill_finished(store: Store, rows: int) -> None:
    """Insert completed jobs, kept for a day."""
    if rows:
        with store.server.session(store.name) as session:
            session.execute(_FINISHED.encode(), {"rows": rows})


def fill_scheduled(store: Store, rows: int) -> None:
    """Enqueue jobs that are due from tomorrow on."""
    if rows:
        store.bulk(rows, variant="scheduled")

"""Delete jobs, with all that hangs on them, because somebody asked for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from relay.engine.acts import ActReport
from relay.engine.connection import fetch_all
from relay.exceptions import StateConflict

__all__ = ["delete_many"]

# Index: the primary key, and those of the children by job, found by the ids one by one.
# Locked in the order of ids, as every act over many jobs does. A child that is written
# meanwhile would stay: only a running job's can be, and those are left.
DELETE: Final = """
WITH locked AS MATERIALIZED (
    SELECT id, state FROM relay_job
    WHERE id = ANY(%(ids)s::uuid[])
    ORDER BY id
    FOR UPDATE
), gone AS MATERIALIZED (
    SELECT id FROM locked WHERE state <> 'running'
), jobs AS (
    DELETE FROM relay_job AS job USING gone WHERE job.id = gone.id
), attempts AS (
    DELETE FROM relay_attempt WHERE job_id = ANY(ARRAY(SELECT id FROM gone))
), history AS (
    DELETE FROM relay_history WHERE job_id = ANY(ARRAY(SELECT id FROM gone))
), outputs AS (
    DELETE FROM relay_output WHERE job_id = ANY(ARRAY(SELECT id FROM gone))
), steps AS (
    DELETE FROM relay_step WHERE job_id = ANY(ARRAY(SELECT id FROM gone))
)
SELECT id, state FROM locked ORDER BY id
"""


def delete_many(job_ids: Iterable[UUID], *, using: str) -> ActReport:
    """Delete those of the jobs that do not run, with attempts, logs, steps, history.

    A waiting one never starts. A unique key that a job holds is free again.

    Transaction: one statement; joins the caller's on Django's connection.
    """
    ids = sorted(set(job_ids))
    rows = fetch_all(DELETE, {"ids": ids}, using=using)
    states: dict[UUID, str] = dict(rows)
    gone = tuple(job_id for job_id, state in rows if state != "running")
    return ActReport(
        gone,
        tuple(
            StateConflict(job_id, "delete", states.get(job_id))
            for job_id in ids
            if states.get(job_id, "running") == "running"
        ),
    )

"""Delete jobs, with all that hangs on them, because somebody asked for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from django.db import transaction

from relay.engine.acts import ActReport
from relay.engine.connection import fetch_all
from relay.exceptions import StateConflict

__all__ = ["delete_many"]

# Index: the primary key. In the order of ids, as every act over many jobs locks. A
# running job is left, unlocked: a child that its worker writes meanwhile would stay,
# and a handler's transaction that has recorded a step would be waited for.
LOCK: Final = """
SELECT id FROM relay_job
WHERE id = ANY(%(ids)s::uuid[]) AND state <> 'running'
ORDER BY id
FOR UPDATE
"""
# The primary key, and the indexes of the children by job. A statement of its own: it
# sees the children too that were committed while the locks were waited for.
DELETE: Final = """
WITH attempts AS (
    DELETE FROM relay_attempt WHERE job_id = ANY(%(ids)s::uuid[])
), history AS (
    DELETE FROM relay_history WHERE job_id = ANY(%(ids)s::uuid[])
), outputs AS (
    DELETE FROM relay_output WHERE job_id = ANY(%(ids)s::uuid[])
), steps AS (
    DELETE FROM relay_step WHERE job_id = ANY(%(ids)s::uuid[])
)
DELETE FROM relay_job WHERE id = ANY(%(ids)s::uuid[]) RETURNING id
"""
# Primary key.
THERE: Final = "SELECT id FROM relay_job WHERE id = ANY(%(ids)s::uuid[])"


def delete_many(job_ids: Iterable[UUID], *, using: str) -> ActReport:
    """Delete those of the jobs that do not run, with attempts, logs, steps, history.

    A waiting one never starts. A unique key that a job holds is free again.

    Transaction: joins the caller's on Django's connection, or its own.
    """
    ids = sorted(set(job_ids))
    with transaction.atomic(using=using):
        gone = [row[0] for row in fetch_all(LOCK, {"ids": ids}, using=using)]
        if gone:
            fetch_all(DELETE, {"ids": gone}, using=using)
        left = sorted(set(ids).difference(gone))
        found = fetch_all(THERE, {"ids": left}, using=using) if left else []
    there = {row[0] for row in found}
    return ActReport(
        tuple(gone),
        tuple(
            StateConflict(job_id, "delete", "running" if job_id in there else None)
            for job_id in left
        ),
    )

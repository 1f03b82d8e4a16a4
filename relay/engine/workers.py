"""What an operator asks of workers: be quiet, go on, stop. Their keepers read it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal
from uuid import UUID

from relay.engine.connection import EngineConnection, fetch_all

__all__ = [
    "Asked",
    "Ended",
    "Request",
    "ask",
    "asked_at",
    "delete_ended",
    "note_done",
    "read_asked",
]

Request = Literal["quiet", "resume", "stop"]

# All rows of the process that the named one belongs to: one keeper does it for all. A
# small table. Who was asked to stop is asked for nothing else.
ASK: Final = """
WITH named AS (
    SELECT id, supervisor FROM relay_worker WHERE id = %(id)s
), locked AS MATERIALIZED (
    SELECT worker.id, worker.name, worker.state, worker.asked
    FROM relay_worker AS worker JOIN named
        ON worker.id = named.id OR worker.supervisor = named.supervisor
    WHERE worker.id = named.id OR worker.state NOT IN ('stopped', 'lost')
    ORDER BY worker.id
    FOR NO KEY UPDATE OF worker
), changed AS (
    UPDATE relay_worker AS worker
    SET asked = %(request)s, asked_at = clock_timestamp()
    FROM locked
    WHERE worker.id = locked.id AND locked.asked IS DISTINCT FROM 'stop'
      AND locked.state IN ('running', 'quiet')
    RETURNING worker.id
)
SELECT locked.id, locked.name, locked.state, changed.id IS NOT NULL
FROM locked LEFT JOIN changed ON changed.id = locked.id
ORDER BY locked.id
"""

# A worker's rows are few, and read by their id where they are written.
READ: Final = """
SELECT asked, asked_at FROM relay_worker
WHERE supervisor = %(supervisor)s AND asked IS NOT NULL
ORDER BY asked = 'stop' DESC, asked_at DESC
LIMIT 1
"""

# What was asked for since stays. A worker that drains says so itself. Locked in the
# order of ids, as by ASK.
DONE: Final = """
WITH done AS MATERIALIZED (
    SELECT id FROM relay_worker
    WHERE supervisor = %(supervisor)s AND asked IS NOT NULL AND asked_at <= %(asked_at)s
    ORDER BY id
    FOR NO KEY UPDATE
)
UPDATE relay_worker AS worker
SET asked = NULL, asked_at = NULL,
    state = CASE
        WHEN %(request)s = 'quiet' AND state = 'running' THEN 'quiet'
        WHEN %(request)s = 'resume' AND state = 'quiet' THEN 'running'
        ELSE state END
FROM done WHERE worker.id = done.id
"""

# One that still has running rows stays until they are taken, as with PRUNE_WORKERS.
DELETE: Final = """
WITH named AS MATERIALIZED (
    SELECT id, name, state, EXISTS (
        SELECT FROM relay_job WHERE state = 'running' AND worker_id = worker.id
    ) AS is_holding
    FROM relay_worker AS worker WHERE id = %(id)s
    FOR UPDATE
), gone AS (
    DELETE FROM relay_worker AS worker USING named
    WHERE worker.id = named.id AND named.state IN ('stopped', 'lost')
      AND NOT named.is_holding
    RETURNING worker.id
)
SELECT name, state, is_holding, EXISTS (SELECT FROM gone) FROM named
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for last, and when."""

    request: Request
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A worker whose row was to be deleted.

    Attributes:
        is_holding: whether it still has running jobs, which the reaper takes.
        is_gone: whether the row was deleted.
    """

    name: str
    state: str
    is_holding: bool
    is_gone: bool


def ask(
    worker_id: UUID, request: Request, *, using: str
) -> list[tuple[UUID, str, str, bool]]:
    """Ask the worker with this row, and all children of its process.

    Returns:
        of each of its rows the id, the name, the state, and whether it was asked: not
        those that end or have ended. Empty: there is no such row.

    Transaction: one statement; joins the caller's on Django's connection. The worker's
    keeper looks once a second.
    """
    found = fetch_all(ASK, {"id": worker_id, "request": request}, using=using)
    return [(row[0], row[1], row[2], row[3]) for row in found]


def delete_ended(worker_id: UUID, *, using: str) -> Ended | None:
    """Delete the row of a worker that has stopped or is lost; None if there is none.

    One that is alive all the same is given up with its row, as one that is lost.

    Transaction: one statement; joins the caller's on Django's connection.
    """
    rows = fetch_all(DELETE, {"id": worker_id}, using=using)
    if not rows:
        return None
    name, state, is_holding, is_gone = rows[0]
    return Ended(name=name, state=state, is_holding=is_holding, is_gone=is_gone)


def asked_at(supervisor: UUID) -> str:
    """Return the SQL of the instant from which something is asked of a worker."""
    return (
        "(SELECT min(asked_at) FROM relay_worker "  # noqa: S608 - a UUID, not a text
        f"WHERE supervisor = '{UUID(bytes=supervisor.bytes)}'::uuid)"
    )


def read_asked(connection: EngineConnection, supervisor: UUID) -> Asked | None:
    """Return what is asked of this worker; a stop comes before anything else."""
    row = connection.execute(READ, {"supervisor": supervisor}).fetchone()
    return None if row is None else Asked(row[0], row[1])


def note_done(connection: EngineConnection, supervisor: UUID, asked: Asked) -> None:
    """Take the request off the worker's rows, and say there what it does now."""
    values = {"supervisor": supervisor, "request": asked.request, "asked_at": asked.at}
    connection.execute(DONE, values)

"""What a running attempt tells of itself, written beside its handler's transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from relay.engine.connection import EngineConnection

__all__ = ["Output", "write_outputs", "write_progress"]

# Of one statement: at the setting's limit a few MiB.
OUTPUT_BATCH: Final = 50

# Index: the primary key, as in finish.COMPLETE. A transactional task has completed its
# job already, under the same token, which stays with the row. SKIP LOCKED: whoever has
# locked a row, its own handler perhaps, must not hold up the ends of other jobs here.
PROGRESS: Final = """
WITH held AS MATERIALIZED (
    SELECT job.id, news.progress
    FROM jsonb_to_recordset(%(news)s::jsonb)
        AS news(id uuid, attempt int, progress jsonb)
    JOIN relay_job AS job ON job.id = news.id
    WHERE CASE WHEN job.state IN ('running', 'completed')
                    AND job.attempt = news.attempt
          THEN job.worker_id = %(worker_id)s END
    FOR NO KEY UPDATE OF job SKIP LOCKED
)
UPDATE relay_job AS job SET progress = held.progress
FROM held WHERE job.id = held.id
"""

# Index: the primary key of relay_job. Again after a lost answer it changes nothing.
OUTPUT: Final = """
INSERT INTO relay_output (job_id, attempt, text)
SELECT job.id, output.attempt, output.text
FROM jsonb_to_recordset(%(outputs)s::jsonb)
    AS output(id uuid, attempt int, text text)
JOIN relay_job AS job ON job.id = output.id
WHERE CASE WHEN job.state IN ('running', 'completed')
                AND job.attempt = output.attempt
      THEN job.worker_id = %(worker_id)s END
ON CONFLICT (job_id, attempt) DO NOTHING
"""


class Output(NamedTuple):
    """What one attempt has logged and printed."""

    job_id: UUID
    attempt: int
    text: str


def write_progress(
    connection: EngineConnection,
    worker_id: UUID,
    news: Iterable[tuple[UUID, int, dict[str, Any]]],
) -> None:
    """Write how far jobs are, each (id, attempt, document).

    Writes only rows that run, or completed, under this worker and attempt; one that is
    locked by others is left out.

    Transaction: its own.

    Raises:
        psycopg.Error: nothing was written.
    """
    document = [
        {"id": str(job_id), "attempt": attempt, "progress": progress}
        for job_id, attempt, progress in news
    ]
    connection.execute(
        PROGRESS,
        {"news": json.dumps(document), "worker_id": worker_id},
        prepare=connection.prepares,
    )


def write_outputs(
    connection: EngineConnection, worker_id: UUID, outputs: Sequence[Output]
) -> None:
    """Write what attempts have logged, before their ends.

    Writes only for rows that run, or completed, under this worker and attempt.

    Transaction: one for each OUTPUT_BATCH.

    Raises:
        psycopg.Error: of some it is not known whether they were written.
    """
    for first in range(0, len(outputs), OUTPUT_BATCH):
        document = [
            {"id": str(job_id), "attempt": attempt, "text": text}
            for job_id, attempt, text in outputs[first : first + OUTPUT_BATCH]
        ]
        connection.execute(
            OUTPUT, {"outputs": json.dumps(document), "worker_id": worker_id}
        )

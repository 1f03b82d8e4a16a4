"""The span of an attempt, kept on its job for the next one to link to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from relay.engine.connection import EngineConnection

__all__ = ["send_spans"]

# Index: the primary key, as in finish.COMPLETE. The names are those of relay.traces and
# relay.tracing.carrying.
KEEP: Final = """
UPDATE relay_job AS job
SET meta = coalesce(job.meta, '{}') || jsonb_build_object('otel',
    coalesce(job.meta->'otel', '{}') || jsonb_build_object('previous', ran.span))
FROM jsonb_to_recordset(%(spans)s::jsonb) AS ran(id uuid, attempt int, span text)
WHERE job.id = ran.id
  AND CASE WHEN job.state = 'running' AND job.attempt = ran.attempt
      THEN job.worker_id = %(worker_id)s END
"""


def send_spans(
    connection: EngineConnection,
    spans: Sequence[tuple[UUID, int, str]],
    *,
    worker_id: UUID,
) -> None:
    """Send the spans, each as (id, attempt, traceparent); nobody waits for an answer.

    To be sent before the attempts' ends, and only of those that may be followed by
    another: where nobody traces no statement is sent. Writes only rows that run under
    this worker and attempt, in the order of their ids, as finish does; the ends of a
    batch come after them, so order.send_locks() comes before.

    Transaction: that of the enclosing EngineConnection.block(), or its own.
    """
    if not spans:
        return
    document = [
        {"id": str(job_id), "attempt": attempt, "span": span}
        for job_id, attempt, span in sorted(spans)
    ]
    connection.execute(KEEP, {"spans": json.dumps(document), "worker_id": worker_id})

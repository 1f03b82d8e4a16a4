"""Edit a job that waits: what it is called with, where and when it runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import transaction

from relay.engine import wakeup
from relay.engine.acts import Why
from relay.engine.connection import fetch_all
from relay.exceptions import StateConflict

__all__ = ["Edit", "edit"]

# Index: the primary key. Whoever would claim the job waits for this, or has it already:
# then its state says so. What moves its queue, its priority or its time puts it behind
# what waits there. A fifo queue has no priorities.
EDIT: Final = """
WITH locked AS MATERIALIZED (
    SELECT id, state, queue, priority, run_at, max_retries, timeout_ms, deadline_at,
           tags
    FROM relay_job WHERE id = %(id)s FOR NO KEY UPDATE
), changed AS (
    UPDATE relay_job AS job
    SET queue = CASE WHEN %(queue)s::text IS NULL THEN job.queue ELSE %(queue)s END,
        priority = CASE
            WHEN EXISTS (SELECT FROM relay_queue
                         WHERE name = coalesce(%(queue)s::text, job.queue)
                           AND policy = 'fifo') THEN 0
            ELSE coalesce(%(priority)s::smallint, job.priority) END,
        ready_seq = CASE WHEN %(moves)s THEN nextval('relay_ready_seq')
                    ELSE job.ready_seq END,
        run_at = coalesce(%(run_at)s::timestamptz, job.run_at),
        state = CASE
            WHEN %(run_at)s::timestamptz IS NULL OR locked.state = 'blocked'
            THEN job.state
            WHEN %(run_at)s::timestamptz <= clock_timestamp() THEN 'queued'
            WHEN locked.state = 'retrying' THEN 'retrying' ELSE 'scheduled' END,
        max_retries = coalesce(%(max_retries)s::integer, job.max_retries),
        timeout_ms = CASE WHEN %(sets_timeout)s THEN %(timeout_ms)s::integer
                     ELSE job.timeout_ms END,
        deadline_at = CASE WHEN %(sets_deadline)s THEN %(deadline)s::timestamptz
                      ELSE job.deadline_at END,
        tags = CASE WHEN %(sets_tags)s THEN %(tags)s::text[] ELSE job.tags END,
        args = coalesce(%(args)s::jsonb, job.args)
    FROM locked
    WHERE job.id = locked.id
      AND locked.state IN ('blocked', 'scheduled', 'queued', 'retrying')
    RETURNING job.state, job.queue, job.priority, job.run_at, job.max_retries,
              job.timeout_ms, job.deadline_at, job.tags, job.ready_seq, job.attempt
)
SELECT locked.state, changed.state IS NOT NULL, changed.state, changed.queue,
       changed.priority, changed.ready_seq, changed.attempt,
       jsonb_build_object(
           'queue', locked.queue, 'priority', locked.priority, 'run_at', locked.run_at,
           'max_retries', locked.max_retries, 'timeout_ms', locked.timeout_ms,
           'deadline', locked.deadline_at, 'tags', locked.tags)::text,
       jsonb_build_object(
           'queue', changed.queue, 'priority', changed.priority,
           'run_at', changed.run_at, 'max_retries', changed.max_retries,
           'timeout_ms', changed.timeout_ms, 'deadline', changed.deadline_at,
           'tags', changed.tags)::text
FROM locked LEFT JOIN changed ON true
"""

NOTE: Final = """
INSERT INTO relay_history (job_id, at, event, attempt, actor, detail)
VALUES (%(id)s, clock_timestamp(), 'edit', %(attempt)s, %(actor)s, %(detail)s::jsonb)
RETURNING id
"""

_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What is to change; None leaves a value, unless it stands in cleared.

    Attributes:
        args: JSON text, encrypted where that is asked for.
        cleared: of timeout, deadline and tags those that the job shall have no more.
    """

    args: str | None = None
    queue: str | None = None
    priority: int | None = None
    run_at: datetime | None = None
    max_retries: int | None = None
    timeout: timedelta | None = None
    deadline: datetime | None = None
    tags: tuple[str, ...] | None = None
    cleared: frozenset[str] = frozenset()

    def values(self) -> dict[str, Any]:
        """Return what EDIT is given besides the id."""
        return {
            "args": self.args,
            "queue": self.queue,
            "priority": self.priority,
            "run_at": self.run_at,
            "moves": (self.queue, self.priority, self.run_at) != (None, None, None),
            "max_retries": self.max_retries,
            "sets_timeout": self.timeout is not None or "timeout" in self.cleared,
            "timeout_ms": self.timeout and self.timeout // _MILLISECOND,
            "sets_deadline": self.deadline is not None or "deadline" in self.cleared,
            "deadline": self.deadline,
            "sets_tags": self.tags is not None or "tags" in self.cleared,
            "tags": list(self.tags) if self.tags else None,
        }


def edit(
    job_id: UUID,
    change: Edit,
    *,
    actor: str | None,
    using: str,
    why: Why | None = None,
) -> dict[str, list[Any]]:
    """Change a job that is blocked, scheduled, queued or retrying.

    With a new queue, priority or time it goes behind what waits there. Its unique key
    stays, whatever its arguments are now.

    Returns:
        by name what has changed: before and after. Of arguments only that they were
        given: None and None.

    Raises:
        StateConflict: it is in another state or does not exist; nothing was changed.

    Transaction: joins the caller's on Django's connection, or its own. The wake-up
    goes out after commit.
    """
    with transaction.atomic(using=using):
        rows = fetch_all(EDIT, {"id": job_id, **change.values()}, using=using)
        if not rows or not rows[0][1]:
            raise StateConflict(job_id, "edit", rows[0][0] if rows else None)
        [(_, _, state, queue, priority, ready_seq, attempt, before, after)] = rows
        found = _differences(json.loads(before), json.loads(after))
        if change.args is not None:
            found["args"] = [None, None]
        detail = json.dumps({**found, **(why or {})})
        values = {"id": job_id, "attempt": attempt, "actor": actor, "detail": detail}
        fetch_all(NOTE, values, using=using)
        if state == "queued":
            wakeup.announce(using, queue, priority, ready_seq)
    return found


def _differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, list[Any]]:
    return {
        name: [value, after[name]]
        for name, value in before.items()
        if value != after[name]
    }

"""Failures: what failed for one reason, as one group."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

from django.db import connections

from relay.conf import get_settings
from relay.exceptions import NotFound
from relay.operations import Actor, exactly, quoted
from relay.operations.first_line import FIRST_LINE
from relay.queries.documents import FailureDocument, FailurePage
from relay.queries.reading import bounded_read, instant

__all__ = ["LOOKED_AT", "get_failure", "list_failures"]

# Grouped are so many of the latest failed jobs. Source: docs/reference/queries.md.
LOOKED_AT: Final = 10_000
MOST_GROUPS: Final = 500

# Index: relay_job_failed_idx, from the newest. Times of rows made by hand may be
# infinite. What a group is of, its filter finds again: all three parts alike.
GROUPS: Final = f"""
WITH failed AS MATERIALIZED (
    SELECT id, task, queue, coalesce(error_class, '') AS error_class,
           CASE WHEN isfinite(finished_at)
                THEN least(greatest(finished_at, '1970-01-01'), '9999-12-30')
           END AS finished_at,
           {FIRST_LINE} AS line
    FROM relay_job WHERE state = 'failed'
    ORDER BY id DESC LIMIT %(looked_at)s
)
SELECT looked.jobs, found.*
FROM (SELECT count(*) AS jobs FROM failed) AS looked LEFT JOIN (
    SELECT task, error_class, line, count(*) AS jobs, max(id::text) AS sample,
           min(finished_at), max(finished_at), array_agg(DISTINCT queue)
    FROM failed
    WHERE (%(task)s::text IS NULL OR task = %(task)s)
      AND (%(queue)s::text IS NULL OR queue = %(queue)s)
      AND (%(error_class)s::text IS NULL OR error_class = %(error_class)s)
    GROUP BY task, error_class, line
    ORDER BY jobs DESC, sample DESC
    LIMIT %(most)s
) AS found ON true
ORDER BY found.jobs DESC, found.sample DESC
"""  # noqa: S608 - constants only


def list_failures(
    actor: Actor,
    *,
    task: str | None = None,
    queue: str | None = None,
    error_class: str | None = None,
) -> FailurePage:
    """Return the failed jobs by task, class of error and the first line of its message.

    Looked at are the newest 10,000 failed jobs: with capped there may be more. The
    filter of a group finds these and all older ones of it, and nothing else.

    Args:
        task, queue, error_class: of these only.

    Raises:
        NotAllowed: the actor lacks view_job.
        ReadTimeout: it took longer than 2 s.
    """
    return _read(actor, MOST_GROUPS, task=task, queue=queue, error_class=error_class)


def get_failure(actor: Actor, group_id: str) -> FailureDocument:
    """Return the group of this id, of whichever queues.

    Raises:
        NotAllowed, ReadTimeout: as list_failures.
        NotFound: there is none any more among the newest failed jobs.
    """
    for group in _read(actor, LOOKED_AT)["results"]:
        if group["id"] == group_id:
            return group
    raise NotFound(f"no failures of the group {group_id[:100]!r} are left")


def _read(
    actor: Actor,
    most: int,
    *,
    task: str | None = None,
    queue: str | None = None,
    error_class: str | None = None,
) -> FailurePage:
    actor.require("view_job", "list_failures")
    asked = {"task": task, "queue": queue, "error_class": error_class}
    values = {
        **{name: _plain(text) for name, text in asked.items()},
        "looked_at": LOOKED_AT,
        "most": most,
    }
    using = get_settings().database
    with bounded_read(using), connections[using].cursor() as cursor:
        cursor.execute(GROUPS, values)
        rows = cursor.fetchall()
    looked_at: int = rows[0][0]
    found = [row for _, *row in rows if row[0] is not None]
    return {
        "results": [_document(row, queue) for row in found],
        "looked_at": looked_at,
        "capped": looked_at >= LOOKED_AT,
    }


def _plain(text: str | None) -> str | None:
    return None if text is None else text.replace("\x00", "")


def _document(row: Sequence[Any], queue: str | None) -> FailureDocument:
    task, error_class, line, count, sample, first, last, queues = row
    names = json.dumps((task, error_class, line))
    return {
        "id": hashlib.sha256(names.encode()).hexdigest()[:20],
        "task": task,
        "error_class": error_class or None,
        "error": line or None,
        "count": count,
        "queues": sorted(queues),
        "first_at": instant(first),
        "last_at": instant(last),
        "sample": sample,
        "filter": _filter(task, error_class, line, queue),
    }


def _filter(task: str, error_class: str, line: str, queue: str | None) -> str:
    """Return what finds the group's jobs and no other, in the filter language."""
    parts = {"task": exactly(task), "error": error_class, "error_line": line}
    if queue is not None:
        parts["queue"] = queue
    terms = (f"{name}:{quoted(value)}" for name, value in parts.items())
    return " ".join(["state:failed", *terms])

"""Failures: what failed for one reason, as one group."""

from __future__ import annotations

import hashlib
from datetime import UTC
from typing import Any, Final

from django.db import connections
from django.utils import timezone

from relay.conf import get_settings
from relay.exceptions import NotFound
from relay.operations import Actor, FilterError, quoted
from relay.queries.documents import FailureDocument, FailurePage
from relay.queries.reading import bounded_read, instant

__all__ = ["LOOKED_AT", "get_failure", "list_failures"]

# Grouped are so many of the latest failed jobs. Source: docs/reference/queries.md.
LOOKED_AT: Final = 10_000
MOST_GROUPS: Final = 500
# Of an error's first line so much tells it from others.
LINE_CHARACTERS: Final = 200

# Index: relay_job_failed_idx, from the newest. Times of rows made by hand may be
# infinite.
GROUPS: Final = """
WITH failed AS MATERIALIZED (
    SELECT id, task, queue, error_class,
           CASE WHEN isfinite(finished_at)
                THEN least(greatest(finished_at, '1970-01-01'), '9999-12-30')
           END AS finished_at,
           left(split_part(ltrim(left(error_message, 1000)), E'\\n', 1),
                %(characters)s) AS line
    FROM relay_job WHERE state = 'failed'
    ORDER BY id DESC LIMIT %(looked_at)s
)
SELECT task, error_class, line, count(*), max(id::text), min(finished_at),
       max(finished_at), array_agg(DISTINCT queue),
       (SELECT count(*) FROM failed)
FROM failed
WHERE (%(task)s::text IS NULL OR task = %(task)s)
  AND (%(queue)s::text IS NULL OR queue = %(queue)s)
  AND (%(error_class)s::text IS NULL OR error_class = %(error_class)s)
GROUP BY task, error_class, line
ORDER BY count(*) DESC, max(id::text) DESC
LIMIT %(most)s
"""


def list_failures(
    actor: Actor,
    *,
    task: str | None = None,
    queue: str | None = None,
    error_class: str | None = None,
) -> FailurePage:
    """Return the failed jobs by task, class of error and the first line of its message.

    Looked at are the newest 10,000 failed jobs: with capped there are more.

    Args:
        task, queue, error_class: of these only.

    Raises:
        NotAllowed: the actor lacks view_job.
        ReadTimeout: it took longer than 2 s.
    """
    actor.require("view_job", "list_failures")
    asked = {"task": task, "queue": queue, "error_class": error_class}
    values = {
        **{name: _plain(text) for name, text in asked.items()},
        "characters": LINE_CHARACTERS,
        "looked_at": LOOKED_AT,
        "most": MOST_GROUPS,
    }
    using = get_settings().database
    with bounded_read(using), connections[using].cursor() as cursor:
        cursor.execute(GROUPS, values)
        rows = cursor.fetchall()
    looked_at = rows[0][-1] if rows else 0
    return {
        "results": [_document(row) for row in rows],
        "looked_at": looked_at,
        "capped": looked_at >= LOOKED_AT,
    }


def get_failure(actor: Actor, group_id: str) -> FailureDocument:
    """Return the group of this id, of those that list_failures gives.

    Raises:
        NotAllowed, ReadTimeout: as list_failures.
        NotFound: there is none any more among the newest failed jobs.
    """
    for group in list_failures(actor)["results"]:
        if group["id"] == group_id:
            return group
    raise NotFound(f"no failures of the group {group_id[:100]!r} are left")


def _plain(text: str | None) -> str | None:
    return None if text is None else text.replace("\x00", "")


def _document(row: tuple[Any, ...]) -> FailureDocument:
    task, error_class, line, count, sample, first, last, queues, _ = row
    names = "\n".join((task, error_class or "", line or ""))
    return {
        "id": hashlib.sha256(names.encode()).hexdigest()[:20],
        "task": task,
        "error_class": error_class,
        "error": line,
        "count": count,
        "queues": sorted(queues),
        "first_at": instant(first),
        "last_at": instant(last),
        "sample": sample,
        "filter": _filter(task, error_class, line, first),
    }


def _filter(task: str, error_class: str | None, line: str | None, first: Any) -> str:
    """Return what finds the group's jobs, in the filter language.

    It has no word for a quotation mark: then the longest part of the line without one
    has to do. What nothing can name is left out, so that it finds more, never fewer.
    """
    parts = ["state:failed"]
    for name, value in (("task", task), ("error", error_class)):
        try:
            parts += [] if value is None else [f"{name}:{quoted(value)}"]
        except FilterError:
            continue
    words = max((line or "").split('"'), key=len).strip()
    if words and words.isprintable() and first is not None:
        moment = timezone.make_aware(first) if timezone.is_naive(first) else first
        since = moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
        parts += [f"finished_after:{since}", f'"{words}"']
    return " ".join(parts)

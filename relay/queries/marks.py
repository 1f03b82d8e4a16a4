"""The moments that were marked, such as deploys: for charts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.db import connections

from relay.conf import get_settings
from relay.exceptions import ArgumentError
from relay.operations import Actor
from relay.operations.marks import MARKED
from relay.queries.documents import MarkList
from relay.queries.reading import bounded_read, instant

__all__ = ["list_marks"]

# More lines than that no chart can show.
MOST_MARKS: Final = 200
LONGEST: Final = timedelta(days=90)

# Index: relay_audit_target_idx, from its end. Marks are far fewer than the rest of the
# record, and no more than MOST_MARKS of them are read.
MARKS: Final = """
SELECT at, label, actor
FROM (SELECT at, detail->>'label' AS label, actor
      FROM relay_audit WHERE subject = 'mark' AND target = %(target)s
      ORDER BY id DESC LIMIT %(most)s) AS latest
WHERE at >= statement_timestamp() - %(span)s::interval AND label IS NOT NULL
"""


def list_marks(actor: Actor, *, span: timedelta = timedelta(hours=1)) -> MarkList:
    """Return the marks within a span up to now, the latest first, at most 200.

    Raises:
        NotAllowed: the actor lacks view_metrics.
        ArgumentError: the span is none, or more than 90 days.
        ReadTimeout: it took longer than 2 s.
    """
    actor.require("view_metrics", "list_marks")
    if not timedelta(0) < span <= LONGEST:
        raise ArgumentError(f"span={span!r}: give more than nothing, up to 90 days")
    using = get_settings().database
    values: dict[str, Any] = {"target": MARKED, "most": MOST_MARKS, "span": span}
    # As the figures are read that they belong to: in one transaction with those.
    with bounded_read(using, bitmaps=True), connections[using].cursor() as cursor:
        cursor.execute(MARKS, values)
        rows = cursor.fetchall()
    return {
        "results": [
            {"at": instant(at), "label": label, "actor": who} for at, label, who in rows
        ]
    }

"""The record: who did what, when, and through which surface."""

from __future__ import annotations

from typing import Any, Final

from django.db import models
from django.db.models.expressions import RawSQL

from relay.conf import get_settings
from relay.exceptions import ArgumentError
from relay.models import Audit
from relay.operations import Actor
from relay.queries.documents import AuditDocument, AuditPage
from relay.queries.paging import read_page
from relay.queries.reading import bounded_read, clamped, instant, payload, texted

__all__ = ["list_audit"]

_SUBJECTS: Final = (*("job", "queue", "worker", "schedule", "bulk", "token", "mark"),)
_COLUMNS: Final = (
    *("id", "operation", "subject", "target", "actor", "source"),
    *("reason", "request_id", "address"),
)

_RARE: Final = """
relay_audit.id = ANY(ARRAY(
    SELECT found.id FROM relay_audit AS found WHERE found.subject = %s))
"""


def list_audit(
    actor: Actor,
    *,
    subject: str | None = None,
    target: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> AuditPage:
    """Return a page of the record, the latest act first.

    Args:
        subject: job, queue, worker, schedule, bulk, token or mark.
        target: its id or name; only with a subject.
        limit: 1 to 500.
        cursor: next or previous of another page.

    Raises:
        NotAllowed: the actor lacks view_audit.
        ArgumentError: the subject, the limit or the cursor cannot be used.
        ReadTimeout: it took longer than 2 s.
    """
    actor.require("view_audit", "list_audit")
    if subject is not None and subject not in _SUBJECTS:
        raise ArgumentError(f"subject={subject!r}: there are {', '.join(_SUBJECTS)}")
    if target is not None and subject is None:
        raise ArgumentError(
            f"target={target[:100]!r}: give a subject with it, such as job"
        )
    using = get_settings().database
    rows = Audit.objects.using(using).all()
    is_rare = False
    if target is not None:  # relay_audit_target_idx, from its end
        rows = rows.filter(subject=subject, target=target.replace("\x00", ""))
    elif subject is not None:
        # Most acts are on jobs: theirs are met soon by the primary key. Those on others
        # are few, found by relay_audit_target_idx, and sorted.
        is_rare = subject != "job"
        rows = rows.filter(_of(subject) if is_rare else models.Q(subject=subject))
    with bounded_read(using, bitmaps=is_rare):
        page = read_page(
            rows,
            ("-id",),
            _COLUMNS,
            shown={"shown_at": clamped("at"), "shown_detail": texted("detail")},
            limit=limit,
            cursor=cursor,
        )
    results = [_document(row) for row in page.rows]
    return {"results": results, "next": page.next, "previous": page.previous}


def _of(subject: str) -> models.Q:
    """Return the condition for what was done to things of a rare kind.

    The index is read first, whatever the statistics say: with none the planner takes
    all kinds to be alike, and goes through the primary key for the latest of one.
    """
    return models.Q(RawSQL(_RARE, [subject], models.BooleanField()))  # noqa: S611 - a constant


def _document(row: dict[str, Any]) -> AuditDocument:
    return {
        "id": row["id"],
        "at": instant(row["shown_at"]),
        "operation": row["operation"],
        "subject": row["subject"],
        "target": row["target"],
        "actor": row["actor"],
        "source": row["source"],
        "reason": row["reason"],
        "request_id": row["request_id"],
        "address": row["address"],
        "detail": payload(row["shown_detail"], shown=True),
    }

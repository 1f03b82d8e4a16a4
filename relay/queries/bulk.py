"""Bulk operations: what was asked for, and how far they are."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from django.utils.translation import gettext_noop as _

from relay.conf import get_settings
from relay.exceptions import JobNotFound, NotFound
from relay.ids import read_id
from relay.models import BulkOperation, BulkState
from relay.operations import Actor, FilterError, parse
from relay.queries.documents import BulkDetail, BulkDocument, BulkPage
from relay.queries.paging import read_page
from relay.queries.reading import bounded_read, clamped, instant, text_id
from relay.queries.reasons import Reason
from relay.queries.why import explain
from relay.sensitive import MASK

__all__ = ["explain_bulk", "get_bulk", "list_bulk", "told_filter"]

_COLUMNS: Final = (
    *("id", "action", "filter", "state", "expected", "matched", "done", "asked"),
    *("skipped", "failed", "error", "actor", "source", "reason", "request_id"),
    "job_id",
)
_TIMES: Final = ("created_at", "started_at", "cancel_requested_at", "finished_at")


def list_bulk(actor: Actor, *, limit: int = 50, cursor: str | None = None) -> BulkPage:
    """Return a page of bulk operations, the newest first.

    Args:
        limit: 1 to 500.
        cursor: next or previous of another page.

    Raises:
        NotAllowed: the actor lacks view_bulkoperation.
        ArgumentError: the limit or the cursor cannot be used.
        ReadTimeout: it took longer than 2 s.
    """
    actor.require("view_bulkoperation", "list_bulk")
    using = get_settings().database
    with bounded_read(using):
        page = read_page(
            BulkOperation.objects.using(using),
            ("-id",),
            _COLUMNS,
            shown=_shown(),
            limit=limit,
            cursor=cursor,
        )
    shown = actor.may("view_payload")
    results = [_document(row, shown=shown) for row in page.rows]
    return {"results": results, "next": page.next, "previous": page.previous}


def get_bulk(actor: Actor, bulk_id: UUID | str) -> BulkDetail:
    """Return one bulk operation, and to who has view_job why nothing goes on with it.

    Raises:
        NotAllowed: the actor lacks view_bulkoperation.
        NotFound: there is none.
    """
    actor.require("view_bulkoperation", "get_bulk")
    rows = BulkOperation.objects.using(get_settings().database)
    row: dict[str, Any] | None = None
    if (key := read_id(bulk_id)) is not None:
        rows = rows.filter(pk=key).annotate(**_shown())
        row = rows.values(*_COLUMNS, *_shown()).first()
    if row is None:
        raise NotFound(f"bulk operation {str(bulk_id)[:100]} does not exist")
    document = _document(row, shown=actor.may("view_payload"))
    reason = explain_bulk(actor, document)
    return {**document, "why": reason.told() if reason else None}


def explain_bulk(actor: Actor, bulk: BulkDocument) -> Reason | None:
    """Return what the job waits for that goes through the operation."""
    is_open = bulk["state"] in (BulkState.QUEUED, BulkState.RUNNING)
    if not is_open or bulk["job_id"] is None or not actor.may("view_job"):
        return None
    try:
        found = explain(actor, bulk["job_id"])
    except JobNotFound:
        return Reason.of(
            "deleted",
            _("The job that goes through it was deleted."),
            _("End the operation, and start another."),
        )
    return None if found.cause == "running" else found


def told_filter(text: str, *, shown: bool) -> str:
    """Return the filter of an operation, without the arguments that it names.

    Args:
        shown: whether those may be seen.
    """
    if shown:
        return text
    try:
        return parse(text).told()
    except FilterError:  # of a version that read more than this one
        return MASK


def _shown() -> dict[str, Any]:
    return {f"shown_{name}": clamped(name) for name in _TIMES}


def _document(row: dict[str, Any], *, shown: bool) -> BulkDocument:
    return {
        "id": str(row["id"]),
        "action": row["action"],
        "filter": told_filter(row["filter"], shown=shown),
        "state": row["state"],
        "expected": row["expected"],
        "matched": row["matched"],
        "done": row["done"],
        "asked": row["asked"],
        "skipped": row["skipped"],
        "failed": row["failed"],
        "error": row["error"],
        "actor": row["actor"],
        "source": row["source"],
        "reason": row["reason"],
        "request_id": row["request_id"],
        "job_id": text_id(row["job_id"]),
        "created_at": instant(row["shown_created_at"]),
        "started_at": instant(row["shown_started_at"]),
        "cancel_requested_at": instant(row["shown_cancel_requested_at"]),
        "finished_at": instant(row["shown_finished_at"]),
    }

"""Documents of what was done, and of what may be: bulk acts, tokens, tasks."""

from __future__ import annotations

from typing import Any, TypedDict

from relay.queries.documents.jobs import Cause

__all__ = [
    "AuditDocument",
    "AuditPage",
    "BulkDetail",
    "BulkDocument",
    "BulkPage",
    "MarkDocument",
    "MarkList",
    "TaskDocument",
    "TokenDocument",
    "TokenPage",
]


class BulkDocument(TypedDict):
    """One act over all jobs that match a filter."""

    id: str
    action: str
    filter: str
    state: str
    expected: int | None
    matched: int
    done: int
    asked: int
    skipped: dict[str, int]
    failed: int
    error: str | None
    actor: str
    source: str
    reason: str | None
    request_id: str | None
    job_id: str | None
    created_at: str
    started_at: str | None
    cancel_requested_at: str | None
    finished_at: str | None


class BulkDetail(BulkDocument):
    """One bulk operation, and what its job waits for, unless it runs or has ended."""

    why: Cause | None


class BulkPage(TypedDict):
    """A page of bulk operations; next and previous are cursors, None at the ends."""

    results: list[BulkDocument]
    next: str | None
    previous: str | None


class AuditDocument(TypedDict):
    """One act on one thing."""

    id: int
    at: str
    operation: str
    subject: str
    target: str
    actor: str
    source: str
    reason: str | None
    request_id: str | None
    address: str | None
    detail: Any


class MarkDocument(TypedDict):
    """A moment that charts point out."""

    at: str
    label: str
    actor: str


class MarkList(TypedDict):
    """The marks of a span, the latest first."""

    results: list[MarkDocument]


class AuditPage(TypedDict):
    """A page of the record; next and previous are cursors, None at the ends."""

    results: list[AuditDocument]
    next: str | None
    previous: str | None


class TokenDocument(TypedDict):
    """One token of the API: queues are the only ones it is for, None for all.

    tasks are the only ones that it may have run, None for all without a permission.
    """

    id: str
    name: str
    prefix: str
    state: str
    scopes: list[str]
    queues: list[str] | None
    tasks: list[str] | None
    created_by: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None


class TokenPage(TypedDict):
    """A page of tokens; next and previous are cursors, None at the ends."""

    results: list[TokenDocument]
    next: str | None
    previous: str | None


class TaskDocument(TypedDict):
    """One task that is registered here; arguments is a JSON Schema.

    permission is what it asks for besides enqueue_job; may_enqueue, whether who asks
    may enqueue it.
    """

    name: str
    summary: str
    queue: str
    priority: int
    max_retries: int
    timeout: float | None
    is_async: bool
    isolation: str | None
    transactional: bool
    unique: bool
    tags: list[str]
    sensitive: list[str] | bool
    permission: str | None
    may_enqueue: bool
    signature: str
    arguments: dict[str, Any]

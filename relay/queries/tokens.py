"""API tokens: who may call, with what, and until when. Never their secrets."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from django.db import models
from django.db.models.expressions import RawSQL

from relay.conf import get_settings
from relay.exceptions import NotFound
from relay.ids import read_id
from relay.models import ApiToken
from relay.operations import Actor
from relay.queries.documents import TokenDocument, TokenPage
from relay.queries.paging import read_page
from relay.queries.reading import bounded_read, clamped, instant

__all__ = ["STATE", "get_token", "list_tokens"]

# By the database's clock, as what a token opens is.
STATE: Final = """
(CASE WHEN relay_token.revoked_at IS NOT NULL THEN 'revoked'
      WHEN relay_token.expires_at <= statement_timestamp() THEN 'expired'
      ELSE 'active' END)
"""
_COLUMNS: Final = (
    *("id", "name", "prefix", "scopes", "queues", "tasks", "created_by"),
)
_TIMES: Final = ("created_at", "expires_at", "revoked_at", "last_used_at")


def list_tokens(
    actor: Actor, *, limit: int = 50, cursor: str | None = None
) -> TokenPage:
    """Return a page of tokens, the newest first; also those that are over.

    Args:
        limit: 1 to 500.
        cursor: next or previous of another page.

    Raises:
        NotAllowed: the actor lacks view_apitoken.
        ArgumentError: the limit or the cursor cannot be used.
        ReadTimeout: it took longer than 2 s.
    """
    actor.require("view_apitoken", "list_tokens")
    using = get_settings().database
    with bounded_read(using):
        page = read_page(
            ApiToken.objects.using(using),
            ("-id",),
            _COLUMNS,
            shown=_shown(),
            limit=limit,
            cursor=cursor,
        )
    results = [_document(row) for row in page.rows]
    return {"results": results, "next": page.next, "previous": page.previous}


def get_token(actor: Actor, token_id: UUID | str) -> TokenDocument:
    """Return one token.

    Raises:
        NotAllowed: the actor lacks view_apitoken.
        NotFound: there is none.
    """
    actor.require("view_apitoken", "get_token")
    rows = ApiToken.objects.using(get_settings().database)
    row: dict[str, Any] | None = None
    if (key := read_id(token_id)) is not None:
        rows = rows.filter(pk=key).annotate(**_shown())
        row = rows.values(*_COLUMNS, *_shown()).first()
    if row is None:
        raise NotFound(f"token {str(token_id)[:100]} does not exist")
    return _document(row)


def _shown() -> dict[str, Any]:
    return {
        **{f"shown_{name}": clamped(name) for name in _TIMES},
        "state": RawSQL(STATE, [], models.TextField()),  # noqa: S611 - constants
    }


def _document(row: dict[str, Any]) -> TokenDocument:
    return {
        "id": str(row["id"]),
        "name": row["name"],
        "prefix": row["prefix"],
        "state": row["state"],
        "scopes": row["scopes"],
        "queues": row["queues"],
        "tasks": row["tasks"],
        "created_by": row["created_by"],
        "created_at": instant(row["shown_created_at"]),
        "expires_at": instant(row["shown_expires_at"]),
        "revoked_at": instant(row["shown_revoked_at"]),
        "last_used_at": instant(row["shown_last_used_at"]),
    }

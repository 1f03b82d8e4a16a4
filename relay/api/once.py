"""Idempotency-Key: a request that is sent again is done once.

The key is kept in the transaction of what was done: either both are there or neither.
Arguments are not kept with it: an answer that is given once more has them from the row.
Source: draft-ietf-httpapi-idempotency-key-header-07.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, Final

from django.db import connections, transaction
from rest_framework.request import Request
from rest_framework.response import Response

from relay.api.auth import Who
from relay.api.looks import Look
from relay.api.problems import ProblemError, invalid
from relay.conf import get_settings

__all__ = ["HEADER", "REPLAYED", "once"]

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"
_LONGEST: Final = 255

# Given up with the transaction. Whoever has it works on the key now.
_LOCK: Final = """
SELECT pg_try_advisory_xact_lock(
    hashtextextended(%(caller)s::text || ' ' || %(key)s::text, 7250)
)
"""
# Index: relay_request_once. As old as PRUNE_REQUESTS of engine/prune.py deletes them.
_FIND: Final = """
SELECT digest, location, answer FROM relay_request
WHERE caller = %(caller)s AND key = %(key)s
  AND created_at > statement_timestamp() - interval '24 hours'
"""
_KEEP: Final = """
INSERT INTO relay_request (caller, key, digest, location, answer)
VALUES (%(caller)s, %(key)s, %(digest)s, %(location)s, %(answer)s)
ON CONFLICT (caller, key) DO UPDATE SET
    digest = excluded.digest, location = excluded.location, answer = excluded.answer,
    created_at = statement_timestamp()
"""


def once(
    request: Request,
    who: Who,
    act: Callable[[], Response],
    *,
    look: Look | None = None,
    key: str | None = None,
) -> Response:
    """Answer with what the act answers; with a key, also when it is sent again.

    Args:
        who: whose key it is.
        look: how the document is read again; None for one without a payload.
        key: from the body, where the header has none.

    Raises:
        ProblemError: the key was used for something else, or is being worked on.

    Transaction: one, with the act in it, where there is a key.
    """
    key = request.headers.get(HEADER, key)
    if key is None:
        return act()
    if not key or len(key) > _LONGEST or not key.isprintable():
        problem = invalid(
            HEADER, "invalid", f"{HEADER}: give 1 to {_LONGEST} printable characters"
        )
        raise ProblemError(problem.code, problem.detail, errors=problem.errors)
    using = get_settings().database
    values: dict[str, Any] = {"caller": who.key, "key": key}
    values["digest"] = _digest(request)
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        cursor.execute(_LOCK, values)
        if not cursor.fetchone()[0]:
            raise ProblemError(
                "request_in_progress", f"A request with the key {key!r} is at work."
            )
        cursor.execute(_FIND, values)
        if (row := cursor.fetchone()) is not None:
            return _again(row, values["digest"], key, who, look)
        response = act()
        document = response.data
        if look is not None:
            document = look.without_payload(who, document)
        kept = {"location": response.headers.get("Location")}
        cursor.execute(_KEEP, {**values, **kept, "answer": json.dumps(document)})
    return response


def _again(row: Any, digest: object, key: str, who: Who, look: Look | None) -> Response:
    if bytes(row[0]) != digest:
        raise ProblemError(
            "idempotency_key_reused",
            f"The key {key!r} was used for another request within 24 hours.",
        )
    headers = {REPLAYED: "true"}
    if row[1] is not None:
        headers["Location"] = row[1]
    document = json.loads(row[2])
    if look is not None:
        document = look.as_seen(who, document)
    return Response(document, status=200, headers=headers)


def _digest(request: Request) -> bytes:
    """Return a hash of the method, the path and what the body says, however written."""
    body = json.dumps(request.data or {}, sort_keys=True)
    whole = "\n".join([str(request.method), request.get_full_path(), body])
    return hashlib.sha256(whole.encode()).digest()

"""API tokens: made, revoked, and told who uses them and what they allow."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db import connections
from django.db.models import F
from django.db.models.functions import Now

from relay.conf import LONGEST, check_queue_name, get_settings
from relay.exceptions import ArgumentError, Conflict, NotFound
from relay.models import ApiToken
from relay.operations.actor import PERMISSIONS
from relay.operations.registry import Act, operation

__all__ = [
    "SCOPES",
    "TOKEN_PREFIX",
    "Caller",
    "NewToken",
    "caller_of_token",
    "create_token",
    "revoke_token",
]

TOKEN_PREFIX: Final = "rly_"  # noqa: S105 - what all secrets begin with
# 256 bits; what is shown of them tells tokens apart and helps nobody to guess.
_SECRET_BYTES: Final = 32
_SHOWN_CHARACTERS: Final = len(TOKEN_PREFIX) + 6
_LONGEST_NAME: Final = 100
DEFAULT_LIFE: Final = timedelta(days=90)

_READ: Final = frozenset(
    {
        "view_job",
        "view_queue",
        "view_worker",
        "view_schedule",
        "view_bulkoperation",
        "view_metrics",
    }
)
# What a token of each scope may do. Source: docs/howto/rest.md, "Tokens".
SCOPES: Final[Mapping[str, frozenset[str]]] = {
    "read": _READ,
    "payload": frozenset({"view_payload"}),
    "submit": frozenset({"enqueue_job"}),
    "operate": _READ
    | {
        "cancel_job",
        "retry_job",
        "edit_job",
        "delete_job",
        "bulk_job",
        "manage_queue",
        "manage_worker",
        "manage_schedule",
        "run_schedule",
    },
    "admin": PERMISSIONS,
}

# Index: the unique one of digest: what it compares is a hash of 256 random bits, of
# which no answer's time tells anything. The clock is the database's.
_FIND: Final = """
SELECT id, name, prefix, scopes, queues,
       last_used_at IS NULL OR last_used_at < statement_timestamp() - interval '1 min'
FROM relay_token
WHERE digest = %(digest)s AND revoked_at IS NULL
  AND (expires_at IS NULL OR expires_at > statement_timestamp())
"""
_USED: Final = """
UPDATE relay_token SET last_used_at = statement_timestamp() WHERE id = %(id)s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A token that was made.

    Attributes:
        token: its row.
        secret: what its holder sends. Shown now and never again.
    """

    token: ApiToken
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who holds a token.

    Attributes:
        token_id: of its row.
        name: as records have it.
        permissions: of PERMISSIONS.
        queues: the only ones whose jobs it is for; None for all.
    """

    token_id: UUID
    name: str
    permissions: frozenset[str]
    queues: frozenset[str] | None


@operation("manage_token", subject="token")
def create_token(
    act: Act,
    name: str,
    *,
    scopes: Iterable[str],
    expires_in: timedelta | None = DEFAULT_LIFE,
    queues: Sequence[str] | None = None,
) -> NewToken:
    """Make a token of the API; its secret is told now and never again.

    Args:
        name: what people call it.
        scopes: of SCOPES.
        expires_in: None for never.
        queues: the only ones whose jobs it is for; None for all.

    Raises:
        NotAllowed: the actor lacks manage_token, or something that a scope allows.
        ArgumentError: a value cannot be taken.
    """
    wanted = _checked_scopes(scopes)
    for permission in sorted(frozenset[str]().union(*(SCOPES[s] for s in wanted))):
        act.actor.require(permission, act.operation)
    _check_name(name)
    _check_life(expires_in)
    secret = TOKEN_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
    token = ApiToken(
        name=name,
        prefix=secret[:_SHOWN_CHARACTERS],
        digest=_digest(secret),
        scopes=wanted,
        queues=None if queues is None else _checked_queues(queues),
        created_by=act.actor.name,
    )
    token.save(using=act.using, force_insert=True)
    rows = ApiToken.objects.using(act.using).filter(pk=token.pk)
    if expires_in is not None:
        rows.update(expires_at=F("created_at") + expires_in)
    token.refresh_from_db(using=act.using)
    act.note(token.pk, name=name, scopes=wanted, queues=token.queues)
    return NewToken(token=token, secret=secret)


@operation("manage_token", subject="token")
def revoke_token(act: Act, token_id: UUID) -> None:
    """Let a token be used no more, from the next request on; its row stays.

    Raises:
        NotAllowed: the actor lacks manage_token.
        NotFound: there is none.
        Conflict: it was revoked before.
    """
    rows = ApiToken.objects.using(act.using).filter(pk=token_id)
    token = rows.select_for_update().first()
    if token is None:
        raise NotFound(f"token {token_id} does not exist")
    if token.revoked_at is not None:
        raise Conflict(f"cannot revoke token {token_id}: it is revoked")
    rows.update(revoked_at=Now())
    act.note(token_id, name=token.name)


def caller_of_token(secret: str) -> Caller | None:
    """Return who holds a token; None if it is none, expired or revoked.

    When it was used is written down, once a minute at most.

    Transaction: statements on Django's connection.
    """
    if not secret.startswith(TOKEN_PREFIX) or not secret.isascii():
        return None
    with connections[get_settings().database].cursor() as cursor:
        cursor.execute(_FIND, {"digest": _digest(secret)})
        row = cursor.fetchone()
        if row is None:
            return None
        token_id, name, prefix, scopes, queues, is_due = row
        if is_due:
            cursor.execute(_USED, {"id": token_id})
    allowed = (SCOPES.get(scope, frozenset[str]()) for scope in scopes)
    return Caller(
        token_id=token_id,
        name=f"token {name} {prefix}",
        permissions=frozenset[str]().union(*allowed),
        queues=None if queues is None else frozenset(queues),
    )


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _checked_scopes(scopes: Iterable[str]) -> list[str]:
    given = [scopes] if isinstance(scopes, str) else list(scopes)
    if not given or not set(given) <= SCOPES.keys():
        raise ArgumentError(f"scopes={given!r}: give some of {', '.join(SCOPES)}")
    return [scope for scope in SCOPES if scope in given]


def _checked_queues(queues: Sequence[str]) -> list[str]:
    if isinstance(queues, str) or not queues:
        raise ArgumentError(f"queues={queues!r}: give a list of names, or None for all")
    try:
        return sorted({check_queue_name(queue) for queue in queues})
    except ValueError as error:
        raise ArgumentError(f"queues={queues!r}: {error}") from None


def _check_name(name: object) -> None:
    is_text = isinstance(name, str) and name == name.strip() and name.isprintable()
    if not is_text or not 0 < len(str(name)) <= _LONGEST_NAME:
        raise ArgumentError(
            f"name={name!r}: give a text of 1 to {_LONGEST_NAME} characters, without "
            "control characters and without spaces at its ends"
        )


def _check_life(expires_in: object) -> None:
    if expires_in is None:
        return
    if not isinstance(expires_in, timedelta) or not (
        timedelta(0) < expires_in <= LONGEST
    ):
        raise ArgumentError(
            f"expires_in={expires_in!r}: give a timedelta above 0 and of at most "
            f"{LONGEST.days} days, or None for never"
        )

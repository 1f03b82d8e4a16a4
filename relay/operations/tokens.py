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
from relay.operations.bulk_jobs import OWN_TASKS
from relay.operations.registry import Act, operation
from relay.operations.rights import Rights
from relay.options import check_task_name
from relay.tasks import all_tasks

__all__ = [
    "SCOPES",
    "TOKEN_PREFIX",
    "UNCOMPRESSED",
    "Caller",
    "NewToken",
    "caller_of_token",
    "create_token",
    "revoke_token",
]

TOKEN_PREFIX: Final = "rly_"  # noqa: S105 - what all secrets begin with
# Of an answer that holds a secret: what compresses answers, such as GZipMiddleware and
# nginx, leaves one alone that says how it is encoded. Else its size would tell of the
# secret to who can have something of theirs answered along with it (BREACH).
UNCOMPRESSED: Final[Mapping[str, str]] = {"Content-Encoding": "identity"}
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
        "add_audit",
    },
    "admin": PERMISSIONS,
}

# Index: the unique one of digest: what it compares is a hash of 256 random bits, of
# which no answer's time tells anything. The clock is the database's.
_FIND: Final = """
SELECT id, name, prefix, scopes, queues, tasks,
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
        rights: which tasks it may have run, and in which queues.
    """

    token_id: UUID
    name: str
    permissions: frozenset[str]
    queues: frozenset[str] | None
    rights: Rights


@operation("manage_token", subject="token")
def create_token(
    act: Act,
    name: str,
    *,
    scopes: Iterable[str],
    expires_in: timedelta | None = DEFAULT_LIFE,
    queues: Sequence[str] | None = None,
    tasks: Sequence[str] | None = None,
) -> NewToken:
    """Make a token of the API; its secret is told now and never again.

    Args:
        name: what people call it.
        scopes: of SCOPES.
        expires_in: None for never.
        queues: the only ones whose jobs it is for; None for all. One that asks for
            a permission is none of these unless it is named.
        tasks: the only ones that it may have run, by their names or as mail.*; None
            for all. One that asks for a permission is none of these unless it is named
            in full.

    Raises:
        NotAllowed: the actor lacks manage_token, something that a scope allows, or
            what a task or queue that is named asks for.
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
        tasks=None if tasks is None else _checked_tasks(tasks),
        created_by=act.actor.name,
    )
    _require_no_more(act, token)
    token.save(using=act.using, force_insert=True)
    rows = ApiToken.objects.using(act.using).filter(pk=token.pk)
    if expires_in is not None:
        rows.update(expires_at=F("created_at") + expires_in)
    token.refresh_from_db(using=act.using)
    limits = {"queues": token.queues, "tasks": token.tasks}
    act.note(token.pk, name=name, scopes=wanted, **limits)
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
        token_id, name, prefix, scopes, names, tasks, is_due = row
        if is_due:
            cursor.execute(_USED, {"id": token_id})
    allowed = (SCOPES.get(scope, frozenset[str]()) for scope in scopes)
    queues = None if names is None else frozenset(names)
    return Caller(
        token_id=token_id,
        name=f"token {name} {prefix}",
        permissions=frozenset[str]().union(*allowed),
        queues=queues,
        rights=Rights(
            permissions=None,
            tasks=None if tasks is None else tuple(tasks),
            queues=queues,
        ),
    )


def _require_no_more(act: Act, token: ApiToken) -> None:
    """Let a token be made if it opens no task or queue that its maker may not use.

    Raises:
        NotAllowed: it would.
    """
    limits = act.actor.limits
    if limits is None:
        return
    for name in token.tasks or ["*"]:
        if not limits.covers(name):
            act.actor.refuse_call(name, act.operation)
    if token.queues is None and limits.queues is not None:
        raise ArgumentError("queues=None: give some of those that you are for")
    for name in token.queues or ():
        act.actor.require_fill(name, act.operation)


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


def _checked_tasks(tasks: Sequence[str]) -> list[str]:
    if isinstance(tasks, str) or not tasks:
        raise ArgumentError(
            f"tasks={tasks!r}: give a list of names and patterns such as 'mail.*', or "
            "None for all"
        )
    for each in tasks:
        name = check_task_name(each)
        if not name.endswith("*") and (name not in all_tasks() or name in OWN_TASKS):
            raise ArgumentError(
                f"tasks={tasks!r}: no task {name!r} is registered in this process; "
                "only what ends in * may name others"
            )
    return sorted(set(tasks))


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

"""How long one statement of a job may take, on the project's own connections.

A session is given a job's limit before the job uses it, and its own back before a job
without that limit does: as the job starts, or as it opens or takes the session. So a
row of jobs with the same limit costs no statement. Source: docs/howto/timeouts.md.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg.pq import TransactionStatus

from relay.conf import get_settings

__all__ = ["are_limited", "bring", "limit"]


class _Limit(NamedTuple):
    """A job's limit; one that only follows from its timeout raises no session's own."""

    milliseconds: int
    is_explicit: bool


_wanted: Final[ContextVar[_Limit | None]] = ContextVar(
    "relay_statement_limit", default=None
)
# Sessions that have another limit than their own: what that is, and what they have.
_changed: Final[WeakKeyDictionary[psycopg.Connection[Any], tuple[str, _Limit]]] = (
    WeakKeyDictionary()
)
_is_used = False

_TAKE: Final = """
SELECT current_setting('statement_timeout'), set_config('statement_timeout', (CASE
    WHEN %s THEN %s
    ELSE least(nullif(extract(
        epoch FROM current_setting('statement_timeout')::interval) * 1000, 0), %s)
    END)::bigint::text, false)
"""
_SET: Final = "SELECT set_config('statement_timeout', %s, false)"


def limit(statement_timeout: timedelta | None, timeout_ms: int | None) -> None:
    """Limit the statements of the job that runs in this context.

    Args:
        statement_timeout: what its task says.
        timeout_ms: the job's timeout, which no statement may outlast.
    """
    global _is_used
    known = [] if timeout_ms is None else [timeout_ms]
    if statement_timeout is not None:
        known.append(statement_timeout // timedelta(milliseconds=1))
    if known:
        _is_used = True
        _wanted.set(_Limit(min(known), is_explicit=statement_timeout is not None))


def are_limited() -> bool:
    """Tell whether bring() may have to do anything: whether any job had a limit yet."""
    return _is_used


def bring(connection: BaseDatabaseWrapper) -> None:
    """Give an open session the limit of the job that runs here, or its own back.

    Behind a pooler in transaction mode a session is not ours: there each transaction
    is limited as it begins, and statements outside of one are not.

    Raises:
        django.db.DatabaseError: as from any statement.
    """
    wanted = _wanted.get()
    if connection.vendor != "postgresql" or connection.connection is None:
        return
    if _is_pooled(connection):
        if wanted is not None and _limit_transaction not in connection.execute_wrappers:
            connection.execute_wrappers.append(_limit_transaction)
        return
    if _limit_of(connection.connection) == wanted:
        return
    with connection.cursor() as cursor:
        # Another one, where the first was found dead: then it is limited already.
        session: Any = connection.connection
        if _limit_of(session) == wanted:
            return
        if session in _changed:
            own, _ = _changed[session]
            cursor.execute(_SET, [own])
            del _changed[session]
        if wanted is not None:
            milliseconds = wanted.milliseconds
            cursor.execute(_TAKE, [wanted.is_explicit, milliseconds, milliseconds])
            _changed[session] = (cursor.fetchone()[0], wanted)


def _limit_of(session: Any) -> _Limit | None:
    found = _changed.get(session)
    return None if found is None else found[1]


def _is_pooled(connection: BaseDatabaseWrapper) -> bool:
    settings = get_settings()
    return bool(connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS")) or (
        settings.transaction_pooler and connection.alias == settings.database
    )


def _limit_transaction(
    execute: Callable[..., Any],
    sql: str,
    parameters: Any,
    many: bool,
    context: dict[str, Any],
) -> Any:
    """Begin a transaction with the limit; a wrapper of Django's cursors."""
    connection, wanted = context["connection"], _wanted.get()
    if wanted is not None and connection.in_atomic_block:
        session = connection.connection
        if session.info.transaction_status == TransactionStatus.IDLE:
            session.execute(f"SET LOCAL statement_timeout = {wanted.milliseconds:d}")
    return execute(sql, parameters, many, context)


def _note_connection(*, connection: BaseDatabaseWrapper, **_: object) -> None:
    """Bring a session that was opened, or taken from a pool with another's limit."""
    if are_limited():
        bring(connection)


connection_created.connect(_note_connection, dispatch_uid="relay.worker.statements")

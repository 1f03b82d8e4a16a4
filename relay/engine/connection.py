"""The engine's own connections to PostgreSQL, apart from Django's."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, Final, Literal, TypeVar, cast

import psycopg
from django.db import DEFAULT_DB_ALIAS, InterfaceError, connections
from django.db.utils import Error as DjangoDatabaseError
from psycopg.rows import TupleRow
from psycopg.types.json import set_json_loads

from relay.conf import get_settings
from relay.exceptions import SettingsError

__all__ = [
    "LONGEST_TIMEOUT",
    "ON_DEMAND",
    "OTHER_VENDOR_REMEDY",
    "EngineConnection",
    "Role",
    "check_vendor",
    "connect",
    "fetch_all",
    "is_outage",
    "other_vendor",
]

Role = Literal["hot", "duty", "listen"]

# Claim and finish only: with the sort disabled, an ORDER BY that no index gives walks
# the primary key instead. They must be set before the first statement is prepared.
# Source: docs/explanation/speed.md, "Pinned plans".
_PINNED: Final = {
    "enable_bitmapscan": "off",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_sort": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}

# No statement is executed this often: only prepare=True prepares.
ON_DEMAND: Final = 2**62

# The largest wait for one statement, and the part of a lease it may take, so that
# a renewal fits in after a statement that hung. Source: docs/explanation/leases.md.
_STATEMENT_TIMEOUT: Final = timedelta(seconds=5)
_STATEMENT_PART_OF_LEASE: Final = 1 / 6

# A dead peer is noticed within about 20 s even where nothing is being sent.
# Source: docs/explanation/leases.md, "Constants".
_TCP: Final = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 10_000,
}

# From this version on the server ends a transaction that takes too long by itself.
_TRANSACTION_TIMEOUT_SINCE: Final = 17_00_00
# Its timeouts are milliseconds in an int: 24.8 days.
LONGEST_TIMEOUT: Final = timedelta(milliseconds=2**31 - 1)

_T = TypeVar("_T")

OTHER_VENDOR_REMEDY: Final = (
    "Give RELAY['DATABASE'] the alias of a PostgreSQL database, or change its ENGINE "
    "to 'django.db.backends.postgresql'."
)

_decode: Final[Callable[[Any], Any]] = json.JSONDecoder().decode


class EngineConnection(psycopg.Connection[TupleRow]):
    """A connection in autocommit whose every call ends by a time of its own.

    statement_timeout does not save a client from a server that was stopped or from a
    network that swallows bytes: after answer_seconds without an answer the call raises
    OperationalError and the connection is closed.

    Attributes:
        answer_seconds: how long one call may wait for the server.
        block_settings: set at the start of each block(), for a transaction pooler.
        prepares: whether statements may be prepared in the server.
    """

    answer_seconds: float = 10.0
    block_settings: Mapping[str, str] = {}
    prepares: bool = True

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """Wait as psycopg does, but not past answer_seconds.

        So notifies() needs a timeout below answer_seconds.
        """
        return super().wait(self._guarded(gen), *args, **kwargs)

    def _guarded(self, gen: Generator[Any, Any, _T]) -> Generator[Any, Any, _T]:
        deadline = time.monotonic() + self.answer_seconds
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(
                        f"no answer from PostgreSQL within {self.answer_seconds:g} s: "
                        "the connection was given up"
                    )
                wanted = gen.send(ready)
        except StopIteration as stop:
            return cast("_T", stop.value)

    def single(self) -> AbstractContextManager[None]:
        """As block(), for what is one statement: it is a transaction by itself."""
        return self.block() if self.block_settings else nullcontext()

    @contextmanager
    def block(self) -> Iterator[None]:
        """Send the statements inside as one implicit transaction, in one round trip."""
        failure: Exception | None = None
        try:
            with self.pipeline():
                # Past the pipeline's end: of a lost connection leaving it fails as
                # well, which psycopg would log as one more trouble.
                try:
                    if self.block_settings:
                        _configure(self, self.block_settings, is_local=True)
                    yield
                except Exception as error:
                    failure = error
        except psycopg.Error as error:
            failure = failure or error
        if failure is not None:
            raise failure


def other_vendor(alias: str) -> str | None:
    """Return what is wrong with an alias that is no PostgreSQL; None if it is."""
    vendor = connections[alias or DEFAULT_DB_ALIAS].vendor
    if vendor == "postgresql":
        return None
    return (
        f"DATABASES[{alias!r}] is {vendor}: relay keeps its jobs in PostgreSQL, 15 or "
        "newer"
    )


def check_vendor(alias: str) -> None:
    """Refuse a database that is no PostgreSQL, before it says what it cannot read.

    Raises:
        SettingsError: it is another.
    """
    if (fault := other_vendor(alias)) is not None:
        raise SettingsError(f"{fault}. {OTHER_VENDOR_REMEDY}")


def connect(alias: str, *, role: Role, name: str) -> EngineConnection:
    """Open a connection of the engine's own to the database of a Django alias.

    Args:
        alias: key of settings.DATABASES.
        role: hot pins the planner for claim and finish; duty and listen do not.
        name: what the connection is for, shown in pg_stat_activity.

    Raises:
        psycopg.OperationalError: the server cannot be reached.
        SettingsError: the alias is of no PostgreSQL.
    """
    check_vendor(alias)
    relay = get_settings()
    timeout = min(_STATEMENT_TIMEOUT, relay.lease * _STATEMENT_PART_OF_LEASE)
    connection = EngineConnection.connect(
        autocommit=True, prepare_threshold=None, **_parameters(alias, name)
    )
    connection.answer_seconds = 2 * timeout.total_seconds() + 0.5
    if role == "hot":
        set_json_loads(_loads_or_none, connection)
        if not relay.transaction_pooler:
            # None would refuse to prepare even what asks for it.
            connection.prepare_threshold = ON_DEMAND
    values = _session_settings(alias, role, timeout, connection.info.server_version)
    try:
        if relay.transaction_pooler:
            # default_transaction_isolation cannot change once a block has begun.
            del values["default_transaction_isolation"]
            connection.block_settings = values
            connection.prepares = False
        else:
            _configure(connection, values, is_local=False)
    except BaseException:
        connection.close()
        raise
    return connection


def _parameters(alias: str, name: str) -> dict[str, Any]:
    """Return what psycopg connects with: the alias's own, where it says something."""
    wrapper = connections[alias or DEFAULT_DB_ALIAS]
    parameters: dict[str, Any] = wrapper.get_connection_params()
    for key in ("context", "cursor_factory", "prepare_threshold"):
        parameters.pop(key, None)
    return {
        **_TCP,
        "connect_timeout": 3,
        **parameters,
        "application_name": f"relay {name}"[:63],
    }


def _session_settings(
    alias: str, role: Role, timeout: timedelta, server_version: int
) -> dict[str, str]:
    """Return what holds for every statement, by the names of PostgreSQL's settings."""
    milliseconds = str(max(1, round(timeout.total_seconds() * 1000)))
    assume_role = (
        connections[alias or DEFAULT_DB_ALIAS]
        .settings_dict["OPTIONS"]
        .get("assume_role")
    )
    values = {
        "statement_timeout": milliseconds,
        "lock_timeout": milliseconds,
        "idle_in_transaction_session_timeout": "60000",
        # SKIP LOCKED raises serialization failures under a stricter default.
        "default_transaction_isolation": "read committed",
        **(_PINNED if role == "hot" else {}),
        **({"role": assume_role} if assume_role else {}),
    }
    if role == "hot" and server_version >= _TRANSACTION_TIMEOUT_SINCE:
        # A process that stands still between a claim and its transaction's end holds
        # the jobs locked: nobody could take them when its lease is over.
        lease = min(get_settings().lease, LONGEST_TIMEOUT)
        values["transaction_timeout"] = str(lease // timedelta(milliseconds=1))
    return values


def _loads_or_none(document: str | bytes) -> Any:
    """Return the document, or None where Python cannot hold it.

    jsonb takes integers of any length and any nesting. One such row must not make a
    whole claim unreadable: its arguments are None, and its job alone fails.
    """
    try:
        # As json.loads() but for its guess of the encoding: it is called for each job.
        return _decode(str(document, "utf-8") if type(document) is bytes else document)
    except (ValueError, RecursionError):
        return None


def _configure(
    connection: EngineConnection, values: Mapping[str, str], *, is_local: bool
) -> None:
    connection.execute(
        "SELECT set_config(key, value, %s) "
        "FROM unnest(%s::text[], %s::text[]) AS setting(key, value)",
        (is_local, list(values), list(values.values())),
        prepare=False,
    )


# SQLSTATE classes and codes that speak of the server or the way to it: connection
# exceptions, lack of resources, shutdown and recovery, and a server that turned
# read-only under us, as after a failover.
_OUTAGE_CLASSES: Final = ("08", "53")
_OUTAGE_CODES: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "25006"})


def is_outage(error: BaseException | None) -> bool:
    """Tell whether error says the database is away, not that a statement is wrong.

    Looks through Django's wrapping at psycopg's error.
    """
    if isinstance(error, DjangoDatabaseError):
        if error.__cause__ is None:
            # Django's own "connection already closed".
            return isinstance(error, InterfaceError)
        error = error.__cause__
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is None:
        # InternalError is psycopg's own for an answer out of step: a server that ends
        # a session and the pooler before it both answer the same COMMIT.
        return isinstance(error, psycopg.OperationalError | psycopg.InternalError) or (
            isinstance(error, psycopg.InterfaceError) and "closed" in str(error)
        )
    return error.sqlstate[:2] in _OUTAGE_CLASSES or error.sqlstate in _OUTAGE_CODES


def fetch_all(
    statement: str, values: dict[str, Any], *, using: str
) -> list[tuple[Any, ...]]:
    """Run a statement on Django's connection to the alias and return its rows."""
    check_vendor(using)
    with connections[using].cursor() as cursor:
        cursor.execute(statement, values)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows

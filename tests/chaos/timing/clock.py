"""The clock of a database that the harness turns, for everybody who asks it the time.

Its functions stand before PostgreSQL's own in the search path of one database: what
asks for clock_timestamp(), statement_timestamp() or now(), relay's statements and the
defaults of its columns, is told a time that is ahead by what one row says.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg import sql

__all__ = ["install", "now", "turn_to"]

_INSTALL: Final = """
CREATE SCHEMA turned;
CREATE TABLE turned.clock (ahead interval NOT NULL);
INSERT INTO turned.clock VALUES (interval '0');
CREATE FUNCTION turned.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS 'SELECT pg_catalog.clock_timestamp() + ahead FROM turned.clock';
CREATE FUNCTION turned.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
    AS 'SELECT pg_catalog.statement_timestamp() + ahead FROM turned.clock';
CREATE FUNCTION turned.now() RETURNS timestamptz LANGUAGE sql STABLE
    AS 'SELECT pg_catalog.now() + ahead FROM turned.clock';
"""
_SEARCH_PATH: Final = (
    "ALTER DATABASE {database} SET search_path = public, turned, pg_catalog"
)
_TURN: Final = """
UPDATE turned.clock SET ahead = %(to)s::timestamptz - pg_catalog.clock_timestamp()
"""


def install(connection: psycopg.Connection[Any], database: str) -> None:
    """Give the database a clock that turn_to() sets; for later sessions."""
    connection.execute(_INSTALL)
    connection.execute(sql.SQL(_SEARCH_PATH).format(database=sql.Identifier(database)))


def turn_to(connection: psycopg.Connection[Any], instant: datetime) -> None:
    """Set the clock; it goes on from there."""
    connection.execute(_TURN, {"to": instant})


def now(connection: psycopg.Connection[Any]) -> datetime:
    """Return what the database tells everybody."""
    row = connection.execute("SELECT turned.clock_timestamp()").fetchone()
    assert row is not None
    instant: datetime = row[0]
    return instant

"""The server of the measurements, and the databases made in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from relay.standalone.postgres import EmbeddedPostgres

__all__ = ["Server"]

PREFIX = "relay_bench_"


class Server:
    """A PostgreSQL server on which this process may make databases.

    Args:
        url: where to connect to make them.
        embedded: that server, if it may be restarted with other settings.
    """

    def __init__(self, url: str, embedded: EmbeddedPostgres | None = None) -> None:
        self._url = url
        self._embedded = embedded
        self._made: set[str] = set()

    def full_name(self, name: str) -> str:
        """Return the name that one of its databases has in the server."""
        return PREFIX + name

    def url(self, name: str) -> str:
        """Return the address of one of its databases."""
        parts = urlsplit(self._url)
        # Without a host urlunsplit would leave out the slashes of netloc.
        rest = urlunsplit(("", "", f"/{PREFIX}{name}", parts.query, ""))
        return f"{parts.scheme}://{parts.netloc}{rest}"

    @contextmanager
    def session(self, name: str | None = None) -> Iterator[psycopg.Connection[Any]]:
        """Connect to one of its databases, or to the one named by its address."""
        address = self._url if name is None else self.url(name)
        with psycopg.connect(
            address, autocommit=True, application_name="bench"
        ) as session:
            yield session

    def create(self, name: str, template: str | None = None) -> None:
        """Make a database anew, empty or as a copy of another."""
        self.drop(name)
        statement = sql.SQL("CREATE DATABASE {}").format(_identifier(name))
        if template is not None:
            # Small ones are quicker by their blocks, large ones by their files.
            size_bytes = self.value("SELECT pg_database_size(%s)", PREFIX + template)
            strategy = "FILE_COPY" if size_bytes > 100_000_000 else "WAL_LOG"
            statement += sql.SQL(" TEMPLATE {} STRATEGY {}").format(
                _identifier(template), sql.SQL(strategy)
            )
        with self.session() as session:
            session.execute(statement)
        self._made.add(name)

    def drop(self, name: str) -> None:
        with self.session() as session:
            session.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(
                    _identifier(name)
                )
            )
        self._made.discard(name)

    def rename(self, name: str, new_name: str) -> None:
        """Give a database another name; one that has it is dropped."""
        self.drop(new_name)
        statement = sql.SQL("ALTER DATABASE {} RENAME TO {}")
        with self.session() as session:
            session.execute(statement.format(_identifier(name), _identifier(new_name)))
        self._made.discard(name)
        self._made.add(new_name)

    def drop_all(self) -> None:
        """Drop what was made here."""
        for name in sorted(self._made):
            self.drop(name)

    def value(self, statement: str, *values: Any, name: str | None = None) -> Any:
        """Return the first value of the first row."""
        with self.session(name) as session:
            row = session.execute(statement.encode(), values or None).fetchone()
        return None if row is None else row[0]

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows, read over the address given."""
        with self.session() as session:
            return session.execute(statement.encode(), values or None).fetchall()

    @contextmanager
    def restarted(self, options: Mapping[str, str]) -> Iterator[None]:
        """Run the embedded server with other settings meanwhile."""
        if self._embedded is None:
            yield
            return
        usual, root = self._embedded, self._embedded.root
        usual.stop()
        other = EmbeddedPostgres(root, options=options).start()
        try:
            yield
        finally:
            other.stop()
            other.stop_if_last()
            usual.start()


def _identifier(name: str) -> sql.Identifier:
    return sql.Identifier(PREFIX + name)

"""The private PostgreSQL of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from relay.standalone.postgres import EmbeddedPostgres
from tests.chaos.nemesis import HARNESS

__all__ = ["Cluster", "private_cluster"]


class Cluster:
    """A server that nobody else uses."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server = server

    def describe(self) -> str:
        return self._server.describe()

    @property
    def log(self) -> Path:
        return self._server.log

    def connect(self, database: str) -> psycopg.Connection[Any]:
        """Open a session of the harness's own, which no fault strikes."""
        return psycopg.connect(
            self._server.dsn(database), autocommit=True, application_name=HARNESS
        )

    def dsn(self, database: str) -> str:
        return self._server.dsn(database)

    def create(self, database: str) -> None:
        self._server.create_database(database)

    def environment(self, database: str) -> dict[str, str]:
        """Return what tests/chaos/settings.py reads."""
        settings = self._server.django_settings(database)
        return {
            "RELAY_CHAOS_HOST": str(settings["HOST"]),
            "RELAY_CHAOS_USER": str(settings["USER"]),
            "RELAY_CHAOS_DATABASE": database,
        }


@contextmanager
def private_cluster(root: Path) -> Iterator[Cluster]:
    """Start a server of its own below a folder, and end it again."""
    with EmbeddedPostgres(root, options={"max_connections": 300}) as server:
        yield Cluster(server)

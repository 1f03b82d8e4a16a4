"""A database of a part's own, and workers of the test project on it."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from relay.standalone.postgres import EmbeddedPostgres
from tests.worker.harness import ROOT, Database, Workers

__all__ = ["Site", "open_site"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a part works with; the server is the campaign's."""

    server: EmbeddedPostgres
    database: Database
    workers: Workers

    def lock_waits(self) -> int:
        """Return how often the server's log tells of a wait for a lock."""
        return self.server.log.read_text(errors="replace").count("still waiting for")


@contextlib.contextmanager
def open_site(server: EmbeddedPostgres, name: str, folder: Path) -> Iterator[Site]:
    """Make the database, migrated; in the end no worker is left."""
    server.create_database(name)
    dsn = server.dsn(name)
    subprocess.run(
        [sys.executable, "-m", "testproject", "migrate", "-v", "0"],
        cwd=ROOT,
        env={**Workers.base_environment(), "DATABASE_URL": dsn},
        check=True,
    )
    database = Database(dsn, folder)
    workers = Workers(database, folder)
    try:
        yield Site(server=server, database=database, workers=workers)
    finally:
        with contextlib.redirect_stderr(io.StringIO()):  # their logs are in the folder
            workers.end()
        database.close()

"""The embedded PostgreSQL: a private server that the processes using it share.

Nothing starts by itself: settings ask for the address with database_settings(),
and an entry point starts the server with serve(). DATABASE_URL turns all of it off.
"""

from __future__ import annotations

from relay.standalone.postgres.database_url import parse_database_url
from relay.standalone.postgres.server import (
    EmbeddedPostgres,
    database_settings,
    root_by_major,
    serve,
)

__all__ = [
    "EmbeddedPostgres",
    "database_settings",
    "parse_database_url",
    "root_by_major",
    "serve",
]

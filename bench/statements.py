"""What PostgreSQL counts: commits, WAL and, where it is loaded, pg_stat_statements."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.rig import Store
from bench.server import Server
from relay.engine.claim import CLAIM
from relay.engine.finish import COMPLETE

__all__ = ["Counted", "counted", "counting"]

# Sessions hand over what they have counted as they end, at least once a second.
FLUSH_SECONDS = 1.2
_TOP = 12
_HEAD_CHARACTERS = 60
_PLACEHOLDER = re.compile(r"%\(\w+\)s|\$\d+|'[^']*'|\b\d+\b")

_COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = %s"
_WAL_BYTES = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"
_STATEMENTS = """
SELECT query, calls, wal_bytes::bigint, shared_blks_hit, shared_blks_dirtied,
       total_exec_time
FROM pg_stat_statements
JOIN pg_database ON pg_database.oid = dbid AND datname = %s
ORDER BY calls DESC
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What was done in one database meanwhile.

    Attributes:
        wal_bytes: of the whole server.
        statements: pg_stat_statements' rows; None where it is not loaded.
    """

    seconds: float
    commits: int
    wal_bytes: int
    statements: list[tuple[Any, ...]] | None

    def per_job(self, jobs: int) -> dict[str, float]:
        """Return each count by the number of jobs."""
        found = {"commits": self.commits / jobs, "WAL bytes": self.wal_bytes / jobs}
        if self.statements is not None:
            columns = zip(*(row[1:5] for row in self.statements), strict=True)
            calls, _, hit, dirtied = (sum(column) / jobs for column in columns)
            found |= {
                "statements": calls,
                "buffers hit": hit,
                "buffers dirtied": dirtied,
            }
        return found

    def top(self, jobs: int) -> list[dict[str, Any]]:
        """Return what the most frequent statements cost each job."""
        return [
            {
                "kind": _kind(query),
                "query": " ".join(query.split())[:160],
                "calls": calls / jobs,
                "WAL bytes": wal / jobs,
                "buffers hit": hit / jobs,
                "buffers dirtied": dirtied / jobs,
                "microseconds": milliseconds * 1_000 / jobs,
            }
            for query, calls, wal, hit, dirtied, milliseconds in (
                self.statements or []
            )[:_TOP]
        ]


@contextmanager
def counting(server: Server) -> Iterator[None]:
    """Run the embedded server with pg_stat_statements meanwhile; another as it is."""
    with server.restarted({"shared_preload_libraries": "pg_stat_statements"}):
        if _is_loaded(server):
            with server.session() as session:
                session.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        yield


class _Counter:
    counted: Counted


@contextmanager
def counted(store: Store) -> Iterator[_Counter]:
    """Count what is done in the store's database meanwhile; read .counted after."""
    server, database = store.server, store.server.full_name(store.name)
    has_statements = _is_loaded(server)
    time.sleep(FLUSH_SECONDS)
    if has_statements:
        server.value("SELECT pg_stat_statements_reset()")
    commits, wal = server.value(_COMMITS, database), server.value(_WAL_BYTES)
    begun_at = time.monotonic()
    counter = _Counter()
    yield counter
    seconds = time.monotonic() - begun_at
    wal = server.value(_WAL_BYTES) - wal
    time.sleep(FLUSH_SECONDS)
    counter.counted = Counted(
        seconds=seconds,
        commits=server.value(_COMMITS, database) - commits,
        wal_bytes=wal,
        statements=server.rows(_STATEMENTS, database) if has_statements else None,
    )


def _is_loaded(server: Server) -> bool:
    """Tell whether pg_stat_statements counts, and this role may read what it does."""
    if not server.value("SELECT rolsuper FROM pg_roles WHERE rolname = current_user"):
        return False
    libraries: str = server.value("SHOW shared_preload_libraries")
    return "pg_stat_statements" in libraries


def _head(query: str) -> str:
    return " ".join(_PLACEHOLDER.sub("?", query).split())[:_HEAD_CHARACTERS]


def _kind(query: str) -> str | None:
    """Tell the claim and the finish, whose constants are replaced by numbers."""
    heads = {_head(CLAIM): "claim", _head(COMPLETE): "finish"}
    return heads.get(_head(query))

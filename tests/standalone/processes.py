"""Users of the embedded PostgreSQL in processes of their own, and its command line."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from relay.standalone.postgres import EmbeddedPostgres

REPOSITORY = Path(__file__).resolve().parents[2]
# For a machine at its slowest; a server may have to be made.
WAIT_SECONDS = 120

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes accounts")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# A process that uses the server until its standard input ends.
USER = """
import sys
from relay.standalone.postgres import EmbeddedPostgres
server = EmbeddedPostgres(sys.argv[1]).start()
print(server.postmaster_pid(), flush=True)
sys.stdin.readline()
"""


def spawn(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )


def spawn_user(root: Path) -> subprocess.Popen[str]:
    return spawn("-c", USER, root)


def postmaster_of(user: subprocess.Popen[str]) -> int:
    assert user.stdout is not None
    return int(user.stdout.readline())


def leave(user: subprocess.Popen[str]) -> None:
    user.communicate("\n", timeout=WAIT_SECONDS)
    assert user.returncode == 0


def kill(user: subprocess.Popen[str]) -> None:
    user.kill()
    user.communicate(timeout=WAIT_SECONDS)


def command(*arguments: str | Path, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "relay.standalone.postgres", *map(str, arguments)],
        capture_output=True,
        check=False,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        timeout=WAIT_SECONDS,
    )
    return done.returncode, done.stdout, done.stderr


def value(running: EmbeddedPostgres, query: str) -> object:
    with psycopg.connect(running.dsn(), autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
    return None if row is None else row[0]


def store(running: EmbeddedPostgres, text: str) -> None:
    with psycopg.connect(running.dsn()) as connection:
        connection.execute("DROP TABLE IF EXISTS kept")
        connection.execute("CREATE TABLE kept (text text)")
        connection.execute("INSERT INTO kept VALUES (%s)", [text])


@contextlib.contextmanager
def renamed(root: Path, name: str) -> Iterator[Path]:
    named = root.rename(root.with_name(name))
    try:
        yield named
    finally:
        named.rename(root)

"""The server's life: who uses it, and starting and stopping it in turn."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self
from urllib.parse import quote

import psycopg
from psycopg import pq, sql

from relay.exceptions import StandaloneError
from relay.standalone.postgres.binaries import (
    Account,
    Binaries,
    choose_account,
    find_binaries,
)
from relay.standalone.postgres.cluster import (
    POLL_SECONDS,
    ROLE,
    START_SECONDS,
    Cluster,
)
from relay.standalone.postgres.database_url import ENGINE, parse_database_url
from relay.standalone.postgres.locks import FileLock

__all__ = ["EmbeddedPostgres", "database_settings", "root_by_major", "serve"]

# A start right after a kill -9 fails until the orphans have let go of the shared
# memory. Source: docs/explanation/standalone.md.
RETRY_SECONDS: Final = 10.0
TURN_SECONDS: Final = 120.0  # another process may be making the cluster
LEAVE_SECONDS: Final = 10.0  # at exit; who cannot get a turn leaves the server running

SERVER_OPTIONS: Final[Mapping[str, str | int]] = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": 200,
    "jit": "off",
    "log_checkpoints": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

StopMode = Literal["smart", "fast", "immediate"]
# Source: PostgreSQL 18, "Shutting Down the Server". By name: Windows lacks SIGQUIT.
_STOP_SIGNALS: Final[Mapping[StopMode, str]] = {
    "smart": "SIGTERM",
    "fast": "SIGINT",
    "immediate": "SIGQUIT",
}


class EmbeddedPostgres:
    """A PostgreSQL server over one folder, reached by a socket in it.

    Every process that started it counts as a user until it ends, however it ends;
    the last one to end by itself stops the server. A forked child does not count.

    Args:
        root: the folder; made with mode 0700 where it is missing.
        bin_dir: PostgreSQL's programs; None takes the first found.
        options: server settings besides, and over, relay's own.
    """

    def __init__(
        self,
        root: Path | str,
        *,
        bin_dir: Path | str | None = None,
        options: Mapping[str, str | int] | None = None,
    ) -> None:
        self.root = Path(root).resolve()
        self.was_started_here = False
        self._cluster = Cluster(self.root)
        self._bin_dir = None if bin_dir is None else Path(bin_dir)
        self._options = {**SERVER_OPTIONS, **(options or {})}
        self._users: FileLock | None = None
        self._keep_file = self.root / "keep"

    @property
    def log(self) -> Path:
        return self._cluster.log

    @property
    def binaries(self) -> Binaries:
        return find_binaries(self._bin_dir)

    def describe(self) -> str:
        """Return one line for a terminal: which server, from where, with what data."""
        found = self.binaries
        return f"PostgreSQL {found.version} from {found.origin}, data in {self.root}"

    def django_settings(self, name: str = "postgres") -> dict[str, Any]:
        """Return the entry of DATABASES; starts nothing."""
        return {
            "ENGINE": ENGINE,
            "NAME": name,
            "USER": ROLE,
            "HOST": str(self._cluster.socket_folder),
        }

    def dsn(self, name: str = "postgres") -> str:
        """Return the address, for libpq and as DATABASE_URL; starts nothing."""
        host = quote(str(self._cluster.socket_folder), safe="")
        return f"postgresql://{ROLE}@/{quote(name, safe='')}?host={host}"

    def start(self, *, stop_at_exit: bool = True) -> Self:
        """Start the server unless it runs; return when it answers.

        Args:
            stop_at_exit: leave at the end of this process, and stop the server if
                no other process uses it; otherwise call stop_if_last() or stop().

        Raises:
            StandaloneError: there are no programs, they do not fit the data, or the
                server does not start; the message has the end of its log.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._turn() as turn:
            users = self._held() or FileLock(self.root / "users.lock")
            # Without a turn nobody takes it exclusively, so there is no wait here.
            users.take(shared=True)
            try:
                self._ensure_running(turn)
            except BaseException:
                if users is not self._users:
                    users.release()
                raise
            self._users = users
        if stop_at_exit:
            atexit.unregister(self._leave)
            atexit.register(self._leave)
        return self

    def stop_if_last(self) -> bool:
        """Stop using the server; True if nobody else did and it was stopped."""
        users = self._held()
        self._users = None
        atexit.unregister(self._leave)
        if users is None:
            return False
        try:
            with self._turn(timeout=LEAVE_SECONDS):
                if not users.take() or self.is_kept:
                    return False
                return self._stop("fast")
        finally:
            users.release()

    def stop(self, mode: StopMode = "fast") -> bool:
        """Stop the server whoever uses it; True if it ran. Still counts as a user."""
        with self._turn():
            return self._stop(mode)

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop the server whoever uses it, and start it again."""
        with self._turn() as turn:
            self._stop(mode)
            self._ensure_running(turn)

    def kill(self) -> bool:
        """End the server by kill -9, as a crash does; start() brings it back."""
        return self._cluster.signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self.start(stop_at_exit=False)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop_if_last()

    def is_running(self) -> bool:
        """Tell whether the server answers, be it that it has no connection left."""
        address = f"{self.dsn()}&connect_timeout=5"
        return bool(pq.PGconn.ping(address.encode()) == pq.Ping.OK)

    def postmaster_pid(self) -> int | None:
        """Return the server's process, or None where it does not live."""
        return self._cluster.pid()

    @property
    def is_kept(self) -> bool:
        """Whether the server stays when its last user leaves."""
        return self._keep_file.exists()

    def keep(self, kept: bool) -> None:
        """Let the server stay when its last user leaves, or no longer."""
        if kept:
            self._keep_file.touch(mode=0o600)
        else:
            self._keep_file.unlink(missing_ok=True)

    def is_in_use(self) -> bool:
        """Tell whether any process counts as a user of the server."""
        with self._turn(), FileLock(self.root / "users.lock") as users:
            return not users.take()

    def create_database(self, name: str) -> bool:
        """Make a database unless it exists; True if it was made."""
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            try:
                connection.execute(statement)
            except (psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
                return False  # the second, where two processes make it at once
        return True

    def _held(self) -> FileLock | None:
        """Return the lock that counts this process; closed in a forked child."""
        return self._users if self._users is not None and self._users.is_open else None

    def _leave(self) -> None:
        """Run at exit, where a traceback would only be noise."""
        try:
            self.stop_if_last()
        except (OSError, StandaloneError) as error:
            sys.stderr.write(f"PostgreSQL in {self.root} was not stopped: {error}\n")

    @contextmanager
    def _turn(self, *, timeout: float | None = None) -> Iterator[FileLock]:
        """Hold start.lock: one process at a time makes, starts or stops the server."""
        timeout = TURN_SECONDS if timeout is None else timeout
        with FileLock(self.root / "start.lock") as turn:
            if not turn.take(timeout=timeout):
                raise StandaloneError(
                    "another process has been starting or stopping PostgreSQL in "
                    f"{self.root} for {timeout:.0f} s: end it, or set DATABASE_URL"
                )
            yield turn

    def _ensure_running(self, turn: FileLock) -> None:
        binaries = self.binaries
        account: Account | None = None
        if not self._cluster.exists():
            account = choose_account(self.root, binaries)
            self._cluster.make(binaries, account, turn=turn.fileno())
        self._cluster.check_major(binaries)
        self._cluster.trim_log()
        self.was_started_here = False
        failure: str | None = "it lives, but does not answer"
        began = time.monotonic()
        while not self.is_running():
            alive = self._cluster.pid() is not None  # recovering for somebody killed
            if not alive:
                account = account or choose_account(self.root, binaries)
                self.was_started_here = True
                failure = self._cluster.launch(binaries, account, self._options)
            if failure is None:
                return
            limit = START_SECONDS if alive else RETRY_SECONDS
            if time.monotonic() - began >= limit:
                raise StandaloneError(
                    f"PostgreSQL does not start in {self.root}: {failure}"
                )
            time.sleep(10 * POLL_SECONDS)

    def _stop(self, mode: StopMode) -> bool:
        self._cluster.trim_log()
        was_running = self._cluster.signal(signal.Signals[_STOP_SIGNALS[mode]])
        if was_running:
            self._cluster.remove_socket_folder()
        return was_running


def database_settings(root: Path | str, name: str = "postgres") -> dict[str, Any]:
    """Return DATABASES' entry: of DATABASE_URL, or of the embedded server's address.

    Starts nothing and touches no file, so that settings may call it.
    """
    if url := os.environ.get("DATABASE_URL"):
        return parse_database_url(url)
    return EmbeddedPostgres(root).django_settings(name)


def serve(root: Path | str) -> EmbeddedPostgres | None:
    """Start the server that database_settings(root) names; None with DATABASE_URL."""
    if os.environ.get("DATABASE_URL"):
        return None
    return EmbeddedPostgres(root).start()


def root_by_major(base: Path | str) -> Path:
    """Return a folder below base for the major version of the programs found.

    For data that nobody keeps: with other programs there is another, empty cluster.
    """
    try:
        return Path(base) / str(find_binaries().major)
    except StandaloneError:
        return Path(base) / "none"

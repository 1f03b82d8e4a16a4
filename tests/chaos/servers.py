"""A server of a campaign's own, that is restarted, crashed and starved on purpose."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

from relay.exceptions import StandaloneError
from relay.standalone.postgres import EmbeddedPostgres
from relay.standalone.postgres.binaries import Binaries, find_binaries
from tests.chaos.campaign import REPOSITORY
from tests.chaos.nemesis import HARNESS

__all__ = [
    "DATABASE",
    "ROLE",
    "Room",
    "Server",
    "installations",
    "quiet_environment",
]

DATABASE: Final = "chaos"
# The processes of a run are no superuser: to a superuser no limit of sessions holds.
ROLE: Final = "chaos"
_DEBIAN: Final = Path("/usr/lib/postgresql")
_POLL_SECONDS: Final = 0.01
_ACCEPTS_WITHIN_SECONDS: Final = 60.0

# What strikes the database's sessions does not strike the harness.
_UNHARMED: Final = (
    "-c default_transaction_read_only=off -c statement_timeout=0 -c lock_timeout=0"
)


def installations() -> list[Binaries]:
    """Return the programs of every major version at hand, the newest first."""
    found: dict[int, Binaries] = {}
    for folder in (None, *sorted(_DEBIAN.glob("*/bin"), reverse=True)):
        try:
            binaries = find_binaries(folder)
        except StandaloneError:
            continue
        found.setdefault(binaries.major, binaries)
    return [found[major] for major in sorted(found, reverse=True)]


def quiet_environment(
    server: Server, folder: Path, lease_seconds: float
) -> dict[str, str]:
    """Return the variables of processes that say nothing of each job.

    A line for each is no part of what is tried where there are a million.
    """
    return {
        "RELAY_CHAOS_HOST": server.socket_folder,
        "RELAY_CHAOS_USER": ROLE,
        "RELAY_CHAOS_DATABASE": DATABASE,
        "RELAY_CHAOS_CODE": str(REPOSITORY),
        "RELAY_CHAOS_EFFECTS": str(folder / "effects-?.txt"),
        "RELAY_CHAOS_LEASE_SECONDS": str(lease_seconds),
        "RELAY_CHAOS_LEVEL": "WARNING",
        "DJANGO_SETTINGS_MODULE": "tests.chaos.settings",
        "PYTHONPATH": str(REPOSITORY),
    }


class Room:
    """A small file system in memory, which can be filled to the last byte."""

    def __init__(self, size_mib: int) -> None:
        self._size_mib = size_mib
        self.folder = Path(tempfile.mkdtemp(prefix="relay-chaos-"))

    def mount(self) -> bool:
        """Mount it; False where that is not permitted."""
        command = ["mount", "-t", "tmpfs", "-o", f"size={self._size_mib}m,mode=0700"]
        done = subprocess.run(
            [*command, "tmpfs", str(self.folder)], capture_output=True, check=False
        )
        return done.returncode == 0

    def fill(self) -> None:
        """Leave nothing free."""
        with (self.folder / "ballast").open("ab", buffering=0) as file:
            for size_bytes in (1 << 20, 1 << 12):
                try:
                    while True:
                        file.write(bytes(size_bytes))
                except OSError:
                    continue

    def free(self) -> None:
        (self.folder / "ballast").unlink(missing_ok=True)

    def remove(self) -> None:
        """Let go of what is mounted, and of the folder."""
        if self.folder.is_mount():
            subprocess.run(["umount", "--lazy", str(self.folder)], check=False)
        self.folder.rmdir()


class Server:
    """One server with one database.

    Args:
        root: its folder.
        disk, wal: where the database's files and the write-ahead log are, if not there.
    """

    def __init__(
        self,
        root: Path,
        binaries: Binaries,
        *,
        disk: Room | None = None,
        wal: Room | None = None,
    ) -> None:
        self.disk = disk
        self.wal = wal
        self._embedded = EmbeddedPostgres(
            root,
            bin_dir=binaries.folder,
            options={
                "max_connections": 200,
                # Faults make errors by the thousand: what they are about is known.
                "log_min_error_statement": "panic",
                "min_wal_size": "32MB",
                "max_wal_size": "64MB" if wal else "1GB",
            },
        )

    @property
    def log(self) -> Path:
        return self._embedded.log

    @property
    def socket_folder(self) -> str:
        return str(self._embedded.django_settings()["HOST"])

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start it with its database, and stop it whatever became of it."""
        with ExitStack() as stack:
            stack.callback(self._embedded.stop_if_last)
            self._embedded.start(stop_at_exit=False)
            if self.wal is not None:
                self._move_wal(self.wal)
            self._create()
            yield

    def _move_wal(self, wal: Room) -> None:
        self._embedded.stop()
        place = self._embedded.root / "data" / "pg_wal"
        shutil.move(place, wal.folder / "pg_wal")
        place.symlink_to(wal.folder / "pg_wal")
        self._embedded.start(stop_at_exit=False)

    def _create(self) -> None:
        with self.session("postgres") as session:
            session.execute(f"CREATE ROLE {ROLE} LOGIN")
            place = ""
            if self.disk is not None:
                folder = self.disk.folder / "space"
                folder.mkdir(mode=0o700)
                session.execute(f"CREATE TABLESPACE chaos LOCATION '{folder}'")
                place = "TABLESPACE chaos"
            session.execute(f"CREATE DATABASE {DATABASE} OWNER {ROLE} {place}")

    @contextmanager
    def session(self, database: str = DATABASE) -> Iterator[psycopg.Connection[Any]]:
        """Open a session of the harness's own; it is closed after the block."""
        with psycopg.connect(
            self._embedded.dsn(database),
            autocommit=True,
            application_name=HARNESS,
            options=_UNHARMED,
        ) as session:
            yield session

    def set(self, name: str, value: str | None) -> None:
        """Change a setting of the whole server, for open sessions too."""
        with self.session("postgres") as session:
            if value is None:
                session.execute(f"ALTER SYSTEM RESET {name}")
            else:
                session.execute(f"ALTER SYSTEM SET {name} = '{value}'")
            session.execute("SELECT pg_reload_conf()")

    def end_sessions(self) -> None:
        """Have the server end every session but the harness's own."""
        with self.session("postgres") as session:
            session.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = %s AND application_name <> %s",
                (DATABASE, HARNESS),
            )

    def restart(self, *, is_crash: bool) -> None:
        """Restart it; return when it accepts connections."""
        self._embedded.restart("immediate" if is_crash else "fast")
        self._wait()

    def kill(self) -> None:
        """Kill its first process, and start it again; as restart()."""
        self._embedded.kill()
        self.revive()

    def revive(self) -> None:
        """See to it that it runs, whatever it has died of; as restart()."""
        self._embedded.start(stop_at_exit=False)
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + _ACCEPTS_WITHIN_SECONDS
        while True:
            try:
                with self.session():
                    return
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)

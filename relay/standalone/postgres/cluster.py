"""One cluster's folder: its data, its socket, its log and its process."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from relay.exceptions import StandaloneError
from relay.standalone.postgres.binaries import Account, Binaries, run

__all__ = ["ROLE", "Cluster"]

ROLE: Final = "relay"
SOCKET_NAME: Final = ".s.PGSQL.5432"
PROC: Final = Path("/proc")
# A socket's address holds 104 bytes on macOS and 108 on Linux, and PostgreSQL adds
# ".lock" to it. Source: sys/un.h of both.
LONGEST_SOCKET_PATH: Final = 98
START_SECONDS: Final = 300  # of crash recovery, before a start is given up
STOP_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.02
LOG_BYTES: Final = 10_000_000
LOG_TAIL_BYTES: Final = 1_000_000
# No process has this number: Linux ends at 2**22. Source: proc_sys_kernel(5), pid_max.
NO_PID: Final = 2**22 + 1


class Cluster:
    """The folder of one cluster. Callers take turns; nothing here locks.

    Attributes:
        data: PostgreSQL's own folder; exists only whole.
        socket_folder: where the server's socket is, root or a short folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.log = root / "postgres.log"
        self.socket_folder = _socket_folder(root)

    def exists(self) -> bool:
        return (self.data / "PG_VERSION").exists()

    def make(self, binaries: Binaries, account: Account, *, turn: int) -> None:
        """Make the cluster beside its place, so that half of one never stands there.

        Args:
            turn: a descriptor of the lock on starting. initdb inherits it: if this
                process is killed, the next waits for initdb before it clears up.
        """
        unfinished = self.root / "data.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        code, output = run(
            [
                binaries.program("initdb"),
                f"--pgdata={unfinished}",
                f"--username={ROLE}",
                "--auth=trust",
                "--encoding=UTF8",
                f"--locale={'C.UTF-8' if sys.platform == 'linux' else 'C'}",
                "--no-instructions",
            ],
            account=account,
            keep_open=(turn,),
            timeout=START_SECONDS,
        )
        if code:
            raise StandaloneError(f"initdb failed in {self.root}:\n{output.strip()}")
        unfinished.rename(self.data)

    def check_major(self, binaries: Binaries) -> None:
        """Refuse programs of another major version than the data's.

        Raises:
            StandaloneError: they differ; with the way to move the data.
        """
        made_by = (self.data / "PG_VERSION").read_text().strip()
        if made_by != str(binaries.major):
            raise StandaloneError(
                f"{self.data} was made by PostgreSQL {made_by}, but the programs in "
                f"{binaries.folder} ({binaries.origin}) are {binaries.version}: point "
                f"RELAY_PG_BIN at those of {made_by}, run `python -m "
                f"relay.standalone.postgres backup --root {self.root}` with them, and "
                "restore into a new folder with pg_restore"
            )

    def pid(self) -> int | None:
        """Return the server's process, or None where it does not live."""
        try:
            written = (self.data / "postmaster.pid").read_text().partition("\n")[0]
            number = int(written)
        except (FileNotFoundError, ValueError):
            return None
        return number if self._is_server(number) else None

    def launch(
        self,
        binaries: Binaries,
        account: Account,
        options: Mapping[str, str | int],
    ) -> str | None:
        """Start the server and wait for it; return None, or what a failure said."""
        self._prepare_socket_folder(account)
        self._release_dead_pid()
        folder = str(self.socket_folder).replace('"', '""')
        settings = {"unix_socket_directories": f'"{folder}"', **options}
        words = [
            word for key, value in settings.items() for word in ("-c", f"{key}={value}")
        ]
        code, output = run(
            [
                binaries.program("pg_ctl"),
                # Relative, as pg_ctl hands both to a shell in double quotes.
                f"--pgdata={self.data.name}",
                f"--log={self.log.name}",
                f"--options={shlex.join(words)}",
                f"--timeout={START_SECONDS}",
                "--wait",
                "start",
            ],
            account=account,
            folder=self.root,
            timeout=START_SECONDS + 10,
        )
        return f"{output.strip()}\n{_tail(self.log, 2_000)}" if code else None

    def signal(self, number: signal.Signals) -> bool:
        """Send the server a signal that ends it, and wait; False if it was not alive.

        Raises:
            StandaloneError: it did not end in time.
        """
        pid = self.pid()
        if pid is None:
            return False
        os.kill(pid, number)
        deadline = time.monotonic() + STOP_SECONDS
        while self._is_server(pid):
            if time.monotonic() >= deadline:
                raise StandaloneError(
                    f"PostgreSQL in {self.root} (process {pid}) did not end within "
                    f"{STOP_SECONDS:.0f} s"
                )
            time.sleep(POLL_SECONDS)
        return True

    def remove_socket_folder(self) -> None:
        """Remove the short folder after a stop; one that is not empty stays."""
        if self.socket_folder != self.root:
            with contextlib.suppress(OSError):
                self.socket_folder.rmdir()

    def trim_log(self) -> None:
        """Bound the log: keep its end beside it and begin anew.

        The server appends, so it goes on at the new beginning.
        """
        try:
            if self.log.stat().st_size > LOG_BYTES:
                kept = _tail(self.log, LOG_TAIL_BYTES)
                (self.root / "postgres.log.1").write_text(kept)
                os.truncate(self.log, 0)
        except FileNotFoundError:
            return

    def _prepare_socket_folder(self, account: Account) -> None:
        """Make the short folder; refuse one that another account could have laid out.

        Raises:
            StandaloneError: it is a link, another's, or open to others.
        """
        if self.socket_folder == self.root:
            return
        owner = os.geteuid() if account.uid is None else account.uid
        try:
            self.socket_folder.mkdir(mode=0o700)
            if owner != os.geteuid():
                os.chown(self.socket_folder, owner, -1)
        except FileExistsError:
            pass
        found = self.socket_folder.lstat()
        is_private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
        if not is_private or found.st_uid != owner:
            raise StandaloneError(
                f"{self.socket_folder} is not a folder of mode 0700 of user {owner}: "
                "remove it, or use a shorter path for the data"
            )

    def _release_dead_pid(self) -> None:
        """Keep a number that now names another process from blocking the start.

        PostgreSQL refuses to start while the process named in postmaster.pid or in the
        socket's lock file exists, which after a restart of a container is as good as
        always somebody else. Only the number changes: the shared memory named below
        it is still checked.
        """
        if self.pid() is not None or not PROC.joinpath("self").exists():
            return
        _replace_pid(self.data / "postmaster.pid")
        _replace_pid(self.socket_folder / f"{SOCKET_NAME}.lock")

    def _is_server(self, pid: int) -> bool:
        """Tell whether the process lives and works in the data folder."""
        if not PROC.joinpath("self").exists():
            return _exists(pid)
        process = PROC / str(pid)
        try:
            head, _, tail = (process / "stat").read_text().rpartition(")")
            if tail.split()[0] in ("Z", "X"):
                return False
            try:
                return (process / "cwd").readlink() == self.data
            except PermissionError:
                # The number may have been given to another process since: the first of
                # a container hides its folder even from root.
                is_postgres = head.partition("(")[2] == "postgres"
                return is_postgres and process.stat().st_uid == self.data.stat().st_uid
        except (FileNotFoundError, ProcessLookupError):
            return False


def _replace_pid(path: Path) -> None:
    """Put NO_PID into the first line of a lock file, if there is one."""
    try:
        rest = path.read_text().partition("\n")[2]
        owner = path.stat()
    except FileNotFoundError:
        return
    changed = path.with_suffix(".new")
    changed.write_text(f"{NO_PID}\n{rest}")
    changed.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(changed, owner.st_uid, owner.st_gid)
    changed.replace(path)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _socket_folder(root: Path) -> Path:
    """Return the root, or a short folder where the socket's address cannot hold it.

    Not in TMPDIR: processes that share the server may differ in it. A comma would
    part the path into two hosts.
    """
    fits = len(os.fsencode(root / SOCKET_NAME)) <= LONGEST_SOCKET_PATH
    if fits and "," not in str(root):
        return root
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    short = Path("/tmp")  # noqa: S108 - the folder's owner and mode are checked
    if not short.is_dir():
        short = Path(tempfile.gettempdir())
    return short / f"relay-{digest}"


def _tail(path: Path, size_bytes: int) -> str:
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - size_bytes))
            return log.read().decode(errors="replace")
    except FileNotFoundError:
        return ""

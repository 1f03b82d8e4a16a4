"""pgbouncer in transaction mode between a run's processes and the server."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

__all__ = ["PORT", "Pooler"]

PORT: Final = 6432
STARTS_WITHIN_SECONDS: Final = 10.0
_PATH: Final = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"

# A server that was away is asked again soon: 15 s are the default.
_CONFIGURATION: Final = """
[databases]
{database} = host={server} user={user}
[pgbouncer]
unix_socket_dir = {folder}
listen_addr =
listen_port = {port}
auth_type = any
pool_mode = transaction
max_client_conn = 400
default_pool_size = 24
server_login_retry = 0.2
ignore_startup_parameters = extra_float_digits,options
logfile = {folder}/log
"""


class Pooler:
    """One pgbouncer, which can be killed and started again.

    Args:
        server: the folder of the server's socket.

    Attributes:
        folder: where its own socket is.
    """

    def __init__(self, server: str, *, database: str, user: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="relay-chaos-"))
        self._configuration = self.folder / "pgbouncer.ini"
        self._configuration.write_text(
            _CONFIGURATION.format(
                database=database,
                server=server,
                user=user,
                folder=self.folder,
                port=PORT,
            )
        )
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def is_installed() -> bool:
        return shutil.which("pgbouncer", path=_PATH) is not None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end(signal.SIGTERM)
        shutil.rmtree(self.folder)

    def start(self) -> None:
        """Start it; return when it lets clients in.

        Raises:
            RuntimeError: it did not come up.
        """
        command = ["pgbouncer", "--quiet", str(self._configuration)]
        if os.geteuid() == 0:
            # It refuses to be root, and only root may reach the server's socket.
            command = ["unshare", "--user", "--map-user=1000", *command]
        with (self.folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, "PATH": _PATH},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + STARTS_WITHIN_SECONDS
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError((self.folder / "output").read_text())
            time.sleep(0.01)

    def end(self, number: signal.Signals) -> None:
        """Send it a signal that ends it, and wait."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            # A killed one leaves its socket, which the next would take for alive.
            with suppress(FileNotFoundError):
                (self.folder / f".s.PGSQL.{PORT}").unlink()

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(f"{self.folder}/.s.PGSQL.{PORT}")
            except OSError:
                return False
        return True

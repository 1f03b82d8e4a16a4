"""The dashboard and the admin, by Django's own server in threads of this process."""

from __future__ import annotations

import errno
import threading
from types import TracebackType
from typing import Final, Self

from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.handlers.wsgi import WSGIHandler
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler

from relay.exceptions import StandaloneError

__all__ = ["AdminServer"]

HOST: Final = "127.0.0.1"
PORTS_TO_TRY: Final = 50


class AdminServer:
    """Listens on the port, or on the next free one.

    Raises:
        StandaloneError: it may not listen there, or all of the ports are in use.
    """

    def __init__(self, port: int) -> None:
        self._server = _listen(port)
        self._server.set_app(StaticFilesHandler(WSGIHandler()))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _listen(port: int) -> ThreadedWSGIServer:
    last = min(port + PORTS_TO_TRY, 65_536)
    for number in range(port, last):
        try:
            return ThreadedWSGIServer((HOST, number), WSGIRequestHandler)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise StandaloneError(
                    f"--port {number}: {error.strerror or error}"
                ) from error
    raise StandaloneError(
        f"ports {port} to {last - 1} are all in use: choose another with --port"
    )

"""A relay of bytes before PostgreSQL that can fall silent."""

from __future__ import annotations

import selectors
import socket
import threading
from typing import Any

import psycopg


class Proxy:
    """Passes one connection on to a server until told to swallow its answers.

    Args:
        parameters: where the server is, as psycopg.connect takes it.
    """

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._server = self._reach(parameters)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.swallows = threading.Event()
        self._stop, self._stopped = socket.socketpair()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @staticmethod
    def _reach(parameters: dict[str, Any]) -> socket.socket:
        with psycopg.connect(**parameters) as session:
            host, port = session.info.host, session.info.port
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{host}/.s.PGSQL.{port}")
            return server
        return socket.create_connection((host, port))

    def _run(self) -> None:
        selector = selectors.DefaultSelector()
        selector.register(self._stopped, selectors.EVENT_READ)
        selector.register(self._listener, selectors.EVENT_READ)
        client: socket.socket | None = None
        while True:
            for key, _ in selector.select():
                if key.fileobj is self._stopped:
                    for each in (client, self._server, self._listener, self._stopped):
                        if each is not None:
                            each.close()
                    selector.close()
                    return
                if key.fileobj is self._listener:
                    client, _ = self._listener.accept()
                    selector.unregister(self._listener)
                    selector.register(client, selectors.EVENT_READ)
                    selector.register(self._server, selectors.EVENT_READ)
                    continue
                assert client is not None
                is_client = key.fileobj is client
                source, target = (
                    (client, self._server) if is_client else (self._server, client)
                )
                data = source.recv(65536)
                if not data:
                    selector.unregister(source)
                elif is_client or not self.swallows.is_set():
                    target.sendall(data)

    def close(self) -> None:
        self._stop.close()
        self._thread.join()

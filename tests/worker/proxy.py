"""A relay of bytes before PostgreSQL that loses answers and cuts sessions."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress

from psycopg.conninfo import conninfo_to_dict

__all__ = ["Proxy"]


class Proxy:
    """Listens on a port of this machine; every connection gets one to the server.

    Attributes:
        loses_answers: what the server says is dropped while this is set.
        accepted: how many connections there were.
    """

    def __init__(self, dsn: str) -> None:
        self._server = conninfo_to_dict(dsn)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        # Both directions: an end to the other, and whether it is the server's.
        self._other: dict[socket.socket, tuple[socket.socket, bool]] = {}
        self.accepted = 0
        self.loses_answers = threading.Event()
        self._cut_wanted = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def dsn(self) -> str:
        port = self._listener.getsockname()[1]
        user, name = self._server["user"], self._server["dbname"]
        return f"postgresql://{user}@127.0.0.1:{port}/{name}"

    def cut(self) -> None:
        """Close every connection, and pass on what comes then."""
        self._cut_wanted.set()

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._listener.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            for key, _ in self._selector.select(0.002):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj in self._other:
                    self._pass_on(key.fileobj)
            if self._cut_wanted.is_set():
                self._close_all()
                self.loses_answers.clear()
                self._cut_wanted.clear()
        self._close_all()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        self.accepted += 1
        host, port = str(self._server["host"]), self._server.get("port", 5432)
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{host}/.s.PGSQL.{port}")
        else:
            server = socket.create_connection((host, int(str(port))))
        self._other[client] = server, False
        self._other[server] = client, True
        for end in (client, server):
            self._selector.register(end, selectors.EVENT_READ)

    def _pass_on(self, source: socket.socket) -> None:
        target, is_answer = self._other[source]
        try:
            data = source.recv(65_536)
            if data and not (is_answer and self.loses_answers.is_set()):
                target.sendall(data)
        except OSError:
            data = b""
        if not data:
            self._close(source, target)

    def _close(self, *ends: socket.socket) -> None:
        for end in ends:
            self._other.pop(end, None)
            with suppress(KeyError, ValueError):
                self._selector.unregister(end)
            end.close()

    def _close_all(self) -> None:
        self._close(*self._other)

"""Answers to those who watch a process: is it alive, is it ready, what does it do?

They are given from a thread, so that a loop that is stuck is told of, not the cause of
a silence; over a port, which may be bound before a fork, or in a file. Nothing of it
is logged. Source: docs/howto/watch.md.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Protocol

__all__ = ["Health", "bind", "register", "run_beside", "serve"]

# Between two writes of the file.
WRITE_SECONDS: Final = 1.0
# For one that asks and then says nothing.
ANSWER_SECONDS: Final = 5.0
# Those who ask and are not answered yet; one more costs the oldest its connection, so
# that nobody takes the descriptors with which this process reaches the database.
MOST_AT_ONCE: Final = 64

# Given the Accept header: the body and its type. Set by what is above.
Page = Callable[[str], tuple[bytes, str]]
_pages: dict[str, Page] = {}


def register(path: str, page: Page) -> None:
    """Have every probe port of this process answer under a path of this kind."""
    _pages[path] = page


class Health(Protocol):
    """What a process says of itself, from any thread."""

    def ills(self) -> list[str]:
        """Return why it is to be restarted; empty if it lives."""

    def wants(self) -> list[str]:
        """Return what it wants before it is ready; empty if it is."""

    def status(self) -> Mapping[str, Any]:
        """Return what it does, as JSON takes it."""


def bind(port: int, host: str = "") -> socket.socket:
    """Return a socket that listens; those who are forked may serve it in turn.

    Raises:
        OSError: the port is taken, or may not be used.
    """
    if host or not socket.has_dualstack_ipv6():
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6, dualstack_ipv6=True
        )
    except OSError:  # as where IPv6 is switched off; or taken, which comes again
        return socket.create_server((host, port))


def serve(
    health: Health, listening: socket.socket | None = None, file: str | None = None
) -> None:
    """Answer over the socket, and write the file, until the process ends."""
    if listening is not None:
        server = _Server(listening, health)
        run_beside("relay-probes", server.serve_forever)
    if file is not None:
        run_beside("relay-probe-file", lambda: _keep_writing(health, Path(file)))


def run_beside(name: str, target: Callable[[], object]) -> None:
    """Run something in a thread that the end of the process ends."""
    threading.Thread(target=target, name=name, daemon=True).start()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listening: socket.socket, health: Health) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.health = health
        self._asking: deque[socket.socket] = deque()
        self._counting = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, and let go of who has been asking for longest."""
        with self._counting:
            self._asking.append(request)
            if len(self._asking) > MOST_AT_ONCE:
                with suppress(OSError):  # it has gone away
                    self._asking.popleft().shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close the connection of who was answered."""
        with self._counting, suppress(ValueError):  # it was let go of
            self._asking.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: whoever asked has gone away."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = ANSWER_SECONDS

    def do_GET(self) -> None:
        """Answer one question."""
        path = self.path.partition("?")[0].rstrip("/")
        health = self.server.health
        if path in ("/livez", "/readyz"):
            reasons = health.ills() if path == "/livez" else health.wants()
            status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
            text = "".join(f"{reason}\n" for reason in reasons) or "ok\n"
            self._answer(status, text.encode(), "text/plain; charset=utf-8")
        elif path == "/statusz":
            self._answer(HTTPStatus.OK, _document(health), "application/json")
        elif path in _pages:
            self._answer(HTTPStatus.OK, *_pages[path](self.headers.get("Accept", "")))
        else:
            known = ", ".join(["/livez", "/readyz", "/statusz", *_pages])
            text = f"no page {self.path}: there are {known}\n"
            self._answer(
                HTTPStatus.NOT_FOUND, text.encode(), "text/plain; charset=utf-8"
            )

    do_HEAD = do_GET

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        """Return what the Server header says."""
        return "relay"

    def log_message(self, *args: Any) -> None:
        """Log nothing: a probe comes every few seconds."""


def _document(health: Health) -> bytes:
    ills, wants = health.ills(), health.wants()
    document = {
        "live": not ills,
        "ready": not wants,
        "reasons": [*ills, *wants],
        "at": time.time(),
        **health.status(),
    }
    return json.dumps(document).encode() + b"\n"


def _keep_writing(health: Health, path: Path) -> None:
    """Keep the file up to date; who finds it old may take the process for dead."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    while True:
        with suppress(OSError):  # a full disk: the file grows old, which says enough
            beside.write_bytes(_document(health))
            beside.replace(path)
        time.sleep(WRITE_SECONDS)

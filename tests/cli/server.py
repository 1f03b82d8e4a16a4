"""A server that answers whatever a test says."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Server", "problem"]


class Server(ThreadingHTTPServer):
    """Answers the same to everything, and notes what it was sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.body = b"{}"
        self.headers: dict[str, str] = {}
        self.seen: list[dict[str, str]] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        server.seen.append({"path": self.path, **dict(self.headers)})
        self.send_response(server.status)
        for name, value in server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(server.body)))
        self.end_headers()
        self.wfile.write(server.body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *args: Any) -> None:
        pass


def problem(status: int, code: str, **more: Any) -> bytes:
    return json.dumps(
        {"status": status, "code": code, "detail": f"it is {code}", **more}
    ).encode()

"""A server that does not answer, or not as relay does."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from relay.cli.errors import CliError, UsageError
from relay.cli.http import Http, path
from tests.cli.conftest import Run


class Server(ThreadingHTTPServer):
    """Answers whatever a test says, and notes what it was sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.body = b"{}"
        self.headers: dict[str, str] = {}
        self.seen: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.seen.append({"path": self.path, **dict(self.headers)})
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    made = Server()
    thread = Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def problem(status: int, code: str, **more: Any) -> bytes:
    return json.dumps(
        {"status": status, "code": code, "detail": f"it is {code}", **more}
    ).encode()


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [
        (400, "invalid_filter", 2),
        (401, "invalid_token", 5),
        (403, "not_allowed", 5),
        (404, "not_found", 3),
        (409, "conflict", 6),
        (412, "precondition_failed", 6),
        (413, "too_large", 2),
        (429, "too_many_requests", 1),
        (500, "internal_error", 1),
        (503, "unavailable", 4),
        (503, "too_slow", 1),
    ],
)
def test_each_problem_has_its_exit_code(
    server: Server, status: int, code: str, exit_code: int
) -> None:
    server.status, server.body = status, problem(status, code)

    with pytest.raises(CliError, match=f"it is {code}") as caught:
        Http(server.url).ask("GET", "v1/jobs")

    assert (caught.value.exit_code, caught.value.code) == (exit_code, code)


def test_a_task_that_is_unknown_is_not_found(server: Server) -> None:
    faults = [{"pointer": "task", "code": "unknown_task", "detail": "no such"}]
    server.status, server.body = 400, problem(400, "invalid_request", errors=faults)

    with pytest.raises(CliError) as caught:
        Http(server.url).ask("POST", "v1/jobs", body={})

    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("status", "body", "exit_code"),
    [(200, b"<html>", 4), (404, b"<html>", 3), (500, b"", 1), (502, b"[]", 4)],
)
def test_a_server_that_is_not_relay_is_told_of(
    server: Server, status: int, body: bytes, exit_code: int
) -> None:
    server.status, server.body = status, body

    with pytest.raises(CliError, match=r"relay\.urls") as caught:
        Http(server.url).ask("GET", "v1/jobs")

    assert caught.value.exit_code == exit_code


def test_a_token_is_not_sent_where_a_server_points_to(server: Server) -> None:
    server.status = 302
    server.headers = {"Location": f"{server.url}/elsewhere"}

    with pytest.raises(CliError, match="points elsewhere") as caught:
        Http(server.url, token="secret").ask("GET", "v1/jobs")

    assert caught.value.exit_code == 4
    assert [each["path"] for each in server.seen] == ["/v1/jobs"]
    assert "secret" not in str(caught.value)


def test_what_is_sent_says_who_asks_and_why(server: Server) -> None:
    Http(f"{server.url}/relay/", token="secret", reason="to see").ask(
        "GET", "v1/jobs", query={"q": 'a "b"', "cursor": None}
    )

    [seen] = server.seen
    assert seen["path"] == "/relay/v1/jobs?q=a+%22b%22"
    assert seen["Authorization"] == "Bearer secret"
    assert seen["Relay-Reason"] == "to see"


def test_nobody_at_the_address_is_told_of() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    with pytest.raises(CliError, match="cannot be reached") as caught:
        Http(f"http://127.0.0.1:{port}").ask("GET", "v1/jobs")

    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    "url",
    ["jobs", "ftp://x", "http://", "http://a:b@c", "http://x/?y=1", "file:///etc"],
)
def test_what_is_no_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="--server"):
        Http(url)


def test_names_cannot_leave_their_place_in_a_path() -> None:
    assert path("v1", "queues", "../a b?c#d") == "v1/queues/..%2Fa%20b%3Fc%23d"


def test_a_reason_may_hold_any_sign_and_no_second_header(server: Server) -> None:
    Http(server.url, reason="für\r\nX-Evil: 1").ask("GET", "v1/jobs")

    [seen] = server.seen
    assert "X-Evil" not in seen


def test_the_errors_of_a_server_are_inert(server: Server, script: Run) -> None:
    server.status = 404
    server.body = problem(404, "not_found", detail="no\x1b[31m such")

    result = script("--server", server.url, "jobs")

    assert result.code == 3
    assert "\x1b" not in result.err

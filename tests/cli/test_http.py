"""A server that does not answer, or not as relay does."""

from __future__ import annotations

import json
import socket

import pytest

from relay.cli.errors import CliError, UsageError
from relay.cli.http import Http, path
from tests.cli.conftest import Run
from tests.cli.server import Server, problem


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
    [
        (200, b"<html>", 4),
        (200, b"[" * 100_000, 4),
        (401, b"<html>", 5),
        (404, b"<html>", 4),
        (404, b'{"detail": "Not Found"}', 4),
        (400, b'{"detail": "no", "code": "x", "errors": ["no"]}', 4),
        (500, b"", 1),
        (502, b"[]", 4),
    ],
)
def test_a_server_that_is_not_relay_is_told_of(
    server: Server, status: int, body: bytes, exit_code: int
) -> None:
    server.status, server.body = status, body

    with pytest.raises(CliError, match=r"not as relay does") as caught:
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
    [
        "http://[::1",
        "http://x:99999",
        "http://x:y",
        "jobs",
        "ftp://x",
        "http://",
        "http://a:b@c",
        "http://x/?y=1",
        "file:///etc",
    ],
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


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"null",
        b'"ok"',
        b'{"results": 3, "next": null}',
        b'{"results": [1], "next": null}',
        b'{"results": [{"id": "1"}], "next": null}',
        b'{"results": [], "next": "/v1/jobs?limit=1"}',
    ],
)
def test_json_that_is_not_relays_is_told_of(
    server: Server, script: Run, body: bytes
) -> None:
    server.body = body

    result = script("--server", server.url, "jobs", "--all")

    assert (result.code, result.out) == (4, "")
    assert result.err.startswith("relay: the server answers")
    assert "Traceback" not in result.err


def test_a_host_that_no_name_can_be_is_told_of() -> None:
    with pytest.raises(CliError, match="cannot be reached"):
        Http(f"http://{'ü' * 80}.example").ask("GET", "v1/jobs")


def test_a_token_and_an_address_of_a_file_from_windows_are_taken(
    server: Server, script: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.body = b'{"results": [], "next": null}'
    monkeypatch.setenv("RELAY_SERVER", f"{server.url}/\r")
    monkeypatch.setenv("RELAY_TOKEN", "rly_secret\r\n")

    assert script("jobs").code == 0

    assert server.seen[-1]["Authorization"] == "Bearer rly_secret"


def test_flags_may_stand_before_the_verb_of_a_noun(server: Server, script: Run) -> None:
    server.body = b'{"name": "low"}'

    result = script("queues", "--json", "--server", server.url, "show", "low")

    assert result.json == {"name": "low"}
    assert server.seen[-1]["path"] == "/v1/queues/low"


def test_what_completes_a_line_does_nothing_on_it(
    server: Server, script: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["$(reboot)", "`id`", "a;b", "--yes", "a\nb", "app.send", "email:send"]
    server.body = json.dumps({"results": [{"name": name} for name in names]}).encode()

    monkeypatch.setenv("RELAY_SERVER", server.url)

    found = script("completion", "words", "--", "enqueue", "")

    assert found.lines == ["app.send", "email:send"]

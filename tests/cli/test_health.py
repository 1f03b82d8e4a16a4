"""relay health, of a worker: by its port or its file, without Django."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.server import Server


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE")


def said(**values: Any) -> bytes:
    document = {"live": True, "ready": True, "reasons": [], "at": time.time()}
    return json.dumps(document | values).encode()


@pytest.mark.parametrize(
    ("values", "words", "code"),
    [
        ({}, (), 0),
        ({}, ("--ready",), 0),
        ({"ready": False, "reasons": ["child 1 starts"]}, (), 9),
        ({"ready": False, "reasons": ["child 1 starts"]}, ("--live",), 0),
        ({"live": False, "reasons": ["the keeper hangs"]}, ("--live",), 9),
    ],
)
def test_a_worker_is_asked_by_its_port_or_its_file(
    script: Run,
    server: Server,
    tmp_path: Path,
    values: dict[str, Any],
    words: tuple[str, ...],
    code: int,
) -> None:
    file = tmp_path / "relay.json"
    file.write_bytes(said(**values))
    server.body = said(**values)

    for where in (("--probe-port", server.port), ("--probe-file", file)):
        result = script("health", *where, *words)

        assert result.code == code, result.err
        assert result.lines == ["ok" if code == 0 else "not well"]
        for reason in values.get("reasons", ()):
            assert (reason in result.err) is (code == 9)
    assert server.seen[0]["path"] == "/statusz"


def test_a_file_that_is_not_written_any_more_is_no_sign_of_life(
    script: Run, tmp_path: Path
) -> None:
    file = tmp_path / "relay.json"
    file.write_bytes(said(at=time.time() - 3_600))

    result = script("health", "--probe-file", file, "--live")

    assert result.code == 9
    assert "silent" in result.err


@pytest.mark.parametrize("text", [b"", b"ok", b"[]", b"{}", b'{"live": true}'])
def test_what_is_no_worker_is_told_of(
    script: Run, server: Server, tmp_path: Path, text: bytes
) -> None:
    file = tmp_path / "relay.json"
    file.write_bytes(text)
    server.body = text

    for where in (("--probe-port", server.port), ("--probe-file", file)):
        result = script("health", *where)
        assert (result.code, result.out) == (4, "")
        assert "no worker" in result.err


def test_nobody_there_is_told_of(script: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    assert script("health", "--probe-port", f"127.0.0.1:{port}").code == 4
    assert script("health", "--probe-file", tmp_path / "none").code == 4


@pytest.mark.parametrize("port", ["x", "0", "99999", "-1", "1:x"])
def test_what_is_no_port_is_refused(script: Run, port: str) -> None:
    result = script("health", f"--probe-port={port}")

    assert (result.code, result.out) == (2, "")
    assert "no port" in result.err

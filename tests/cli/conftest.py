"""Both ways to run a verb, and jobs for them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import StringIO
from threading import Thread
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import CommandParser

from relay.cli import console
from relay.management.commands.relay import Command
from tests.cli.server import Server

__all__ = ["Result", "Run"]


@dataclass(frozen=True, slots=True)
class Result:
    """What a command line came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Run = Callable[..., Result]
# Of 80 verbs: making the tree takes longer than most of them.
_parser = functools.cache(console.make_parser)


class _Command(Command):
    """As manage.py relay, with a tree that is made once for all tests."""

    made: CommandParser | None = None

    def create_parser(self, *names: str, **options: Any) -> CommandParser:
        made = type(self).made
        if made is None:
            made = type(self).made = super().create_parser(*names, **options)
        return made


@pytest.fixture
def relay(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run manage.py relay in this process."""
    monkeypatch.setenv("LOGNAME", "ada")

    def run(*words: object) -> Result:
        out, err, code = StringIO(), StringIO(), 0
        try:
            call_command(_Command(), *map(str, words), stdout=out, stderr=err)
        except CommandError as error:
            code = error.returncode
            err.write(f"{error}\n")
        return Result(code, out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> Run:
    """Run the console script in this process, with no server and no profile."""
    for name in ("RELAY_SERVER", "RELAY_PROFILE", "RELAY_TOKEN", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(console, "make_parser", _parser)

    def run(*words: object, stdin: str = "") -> Result:
        monkeypatch.setattr("sys.stdin", StringIO(stdin))
        capsys.readouterr()
        try:
            code = console.main([str(word) for word in words])
        except SystemExit as ended:
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    made = Server()
    thread = Thread(
        target=made.serve_forever, args=(0.01,)
    )  # seconds to hear of its end
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()

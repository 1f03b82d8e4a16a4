"""Flags that the environment gives."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from relay.cli import reference
from relay.cli.tree import variables_of
from relay.cli.variables import SHARED, flags_of, variable_of
from relay.management.commands import relay_worker
from tests.cli.conftest import Run


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(allow_abbrev=False)
    modes = made.add_mutually_exclusive_group()
    modes.add_argument("--json", action="store_true")
    modes.add_argument("-q", "--quiet", action="store_true")
    made.add_argument("--limit", type=int)
    made.add_argument("--order", choices=("a", "b"))
    made.add_argument("--wait", nargs="?", const="ever")
    made.add_argument("ID", nargs="*")
    return made


def read(*given: str, **environment: str) -> dict[str, Any]:
    made = parser()
    more = flags_of(made, "RELAY_X", given, environment=environment)
    return vars(made.parse_args([*more, *given]))


def test_each_flag_is_read_from_the_environment() -> None:
    found = read(RELAY_JSON="1", RELAY_X_LIMIT="3", RELAY_X_ORDER="b", RELAY_X_WAIT="5")

    assert found["json"]
    assert (found["limit"], found["order"], found["wait"]) == (3, "b", "5")
    assert read(RELAY_X_WAIT="yes")["wait"] == "ever"
    assert read(RELAY_JSON="0", RELAY_LIMIT="3", LIMIT="3")["json"] is False


@pytest.mark.parametrize("given", ["-q", "--quiet", "--json"])
def test_the_command_line_counts_more(given: str) -> None:
    found = read(given, "--limit=4", RELAY_JSON="yes", RELAY_X_LIMIT="3")

    assert found["limit"] == 4
    assert found["quiet"] is (given != "--json")
    assert found["json"] is (given == "--json")


def test_what_stands_behind_the_flags_is_none() -> None:
    assert read("--", "--json", RELAY_QUIET="1")["quiet"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("RELAY_JSON", "maybe"), ("RELAY_X_LIMIT", "many"), ("RELAY_X_ORDER", "c")],
)
def test_a_value_that_cannot_be_taken_is_told_by_its_variable(
    name: str, value: str
) -> None:
    with pytest.raises(ValueError, match=name):
        read(**{name: value})
    assert flags_of(parser(), "RELAY_X", ["-h"], environment={name: value}) == []


def test_no_variable_is_of_two_flags_of_one_verb() -> None:
    for name, noun in reference._verbs().items():
        for leaf in [noun] if noun.verbs is None else noun.verbs.values():
            prefix = variables_of(leaf.path)
            assert prefix.startswith("RELAY_" + name.upper().replace("-", "_"))
            names = [variable_of(each, prefix) for each in leaf._actions]
            made = [each for each in names if each]
            assert len(made) == len(set(made)), leaf.prog
            assert all(
                variable_of(each, prefix)
                for each in leaf._actions
                if each.option_strings
                and each.dest not in ("help", "server", "profile")
            ), leaf.prog
    assert "--yes" in SHARED


@pytest.mark.django_db
def test_a_verb_takes_them_in_both_ways(
    relay: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAY_JSON", "1")
    monkeypatch.setenv("RELAY_DRY_RUN", "1")
    monkeypatch.setenv("RELAY_ENQUEUE_PRIORITY", "7")

    assert relay("enqueue", "testproject.tasks.add").json["body"]["priority"] == 7
    assert relay("jobs").json == {"next": None, "previous": None, "results": []}
    assert relay("jobs", "-q").lines == []

    monkeypatch.setenv("RELAY_JOBS_LS_LIMIT", "0")
    assert "RELAY_JOBS_LS_LIMIT" in relay("jobs").err


def test_a_worker_takes_them_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setenv("RELAY_WORKER_CONCURRENCY", "3")
    monkeypatch.setenv("RELAY_WORKER_QUEUES", "mail:2")
    monkeypatch.setattr(
        relay_worker.Command, "handle", lambda self, **options: given.update(options)
    )

    relay_worker.Command().run_from_argv(
        ["manage.py", "relay_worker", "--skip-checks", "-c", "4"]
    )

    assert (given["concurrency"], given["queues"]) == (4, {"mail": 2})
    monkeypatch.setenv("RELAY_WORKER_GRACE", "long")
    with pytest.raises(SystemExit, match="2"):
        relay_worker.Command().run_from_argv(["manage.py", "relay_worker"])
    assert "RELAY_WORKER_GRACE: 'long'" in capsys.readouterr().err

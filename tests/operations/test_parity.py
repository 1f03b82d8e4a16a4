"""Which surface offers which act: what a surface calls is looked up in its code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import relay
from relay import operations

ROOT = Path(relay.__file__).parent

# Acts on one job or on several, by the one that surfaces count as offering.
SINGLE = {
    "cancel_job": "cancel_jobs",
    "retry_job": "retry_jobs",
    "run_job_now": "run_jobs_now",
    "delete_job": "delete_jobs",
    "enqueue_jobs": "enqueue_job",
}
# What each surface does not offer. A name that is here and is called all the same, or
# is no operation, fails: the list cannot lie.
LEFT_OUT: dict[str, set[str]] = {
    "dashboard": {
        # Of who sets it up: over REST, in the admin and on the command line.
        "create_token",
        "revoke_token",
    },
    "admin": {
        "mark",  # a line on charts, which only the dashboard has
    },
    "api": set(),
    "cli": {
        "replay_jobs",  # one by one, each with its own outcome
    },
}


def called_by(surface: str) -> set[str]:
    """Return the operations whose names stand in a surface's code."""
    names: set[str] = set()
    for file in (ROOT / surface).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Attribute(value=ast.Name(id="operations"), attr=name):
                    names.add(name)
                case ast.ImportFrom(module=str(module)) if "operations" in module:
                    names |= {alias.name for alias in node.names}
    names = {SINGLE.get(name, name) for name in names}
    return names & operations.all_operations().keys()


@pytest.mark.parametrize("surface", LEFT_OUT)
def test_a_surface_offers_every_act_but_those_that_it_says(surface: str) -> None:
    names = operations.all_operations()
    everything = {SINGLE.get(name, name) for name in names}

    assert LEFT_OUT[surface] <= everything
    assert called_by(surface) == everything - LEFT_OUT[surface]


@pytest.mark.parametrize("surface", LEFT_OUT)
def test_a_surface_has_the_engine_do_nothing_by_itself(surface: str) -> None:
    acting = {"control", "pause", "replay", "edit", "delete", "set_policy", "acts"}
    for file in (ROOT / surface).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                ("relay.engine", "relay.scheduler")
            ):
                imported = {alias.name for alias in node.names}
                assert not imported & acting, f"{file}: {imported & acting}"


def test_each_operation_is_public_says_what_it_does_and_what_it_needs() -> None:
    for name, each in operations.all_operations().items():
        assert getattr(operations, name) is each.run
        assert name in operations.__all__
        assert each.permission in operations.PERMISSIONS
        assert each.summary.endswith("."), each.summary

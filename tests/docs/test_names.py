"""Names that pages use are there, and those that somebody may use are on a page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

from relay import models
from relay.conf import Settings
from tests.docs.pages import PAGES, ROOT, blocks

REFERENCE: Final = ROOT / "docs/reference"
# Modules that have a page of their own.
OF_A_PAGE: Final = {
    f"relay.{name}": f"{name}.md"
    for name in ("operations", "queries", "testing", "signals")
}
# Set by relay for processes of its own.
OWN_VARIABLES: Final = {
    *("RELAY_DEMO_DATA", "RELAY_DEMO_PARENT", "RELAY_DEMO_STARTED_AT"),
    "RELAY_EMBEDDED_HELPER",
}
_VARIABLE: Final = re.compile(
    r'"((?:RELAY|OTEL|PROMETHEUS|XDG)_[A-Z_]+|DATABASE_URL|NO_COLOR)"'
)
_CHECK: Final = re.compile(r"\brelay\.([EW]\d{3})\b|[`(]([EW]\d{3})[`)]")


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@cache
def code() -> str:
    return "\n".join(text_of(path) for path in (ROOT / "relay").rglob("*.py"))


def named_by_snippets() -> Iterator[tuple[str, str, str]]:
    """Yield page, module and name of what Python on pages takes from relay."""
    for page in PAGES:
        for block in blocks(page):
            if block.language != "python":
                continue
            for node in ast.walk(ast.parse(block.text)):
                if isinstance(node, ast.ImportFrom) and node.module:
                    for alias in node.names:
                        yield page.name, node.module, alias.name
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    module, _, name = node.value.rpartition(".")
                    if (ROOT / f"{module.replace('.', '/')}.py").is_file():
                        yield page.name, module, name


def is_public(module: str, name: str) -> bool:
    python = text_of(REFERENCE / "python.md")
    if module in OF_A_PAGE:
        return bool(re.search(rf"`{name}\b", text_of(REFERENCE / OF_A_PAGE[module])))
    [section] = re.findall(
        rf"^## {re.escape(module)}\n(.*?)(?=^## |\Z)", python, re.MULTILINE | re.DOTALL
    ) or [""]
    return bool(re.search(rf"`{name}\b", section)) or f"`{module}.{name}`" in python


def test_snippets_take_only_public_names() -> None:
    named = [
        each
        for each in named_by_snippets()
        if each[1].partition(".")[0] == "relay" and each[1:] != ("relay", "operations")
    ]

    assert ("queues.md", "relay.operations", "Actor") in named
    assert [each for each in named if not is_public(*each[1:])] == []


def test_public_names_are_in_their_references() -> None:
    modules = [models, *map(import_module, OF_A_PAGE)]

    missing = [
        (module.__name__, name)
        for module in modules
        for name in module.__all__
        if (module is models or not name.isupper())
        and not is_public(module.__name__, name)
    ]
    assert missing == []


def test_variables_that_are_read_are_on_a_page() -> None:
    read = set(_VARIABLE.findall(code())) - OWN_VARIABLES

    assert "RELAY_TOKEN" in read
    everything = "\n".join(map(text_of, PAGES))
    assert sorted(each for each in read if each not in everything) == []


def test_settings_and_checks_that_pages_name_are_there() -> None:
    settings = {each.name.upper() for each in fields(Settings) if each.init}
    checks = set(re.findall(r'"([EW]\d{3})"', code()))

    unknown = [
        (page.name, name)
        for page in PAGES
        for name in re.findall(r'RELAY\["(\w+)"\]', text_of(page))
        if name not in settings
    ] + [
        (page.name, one or other)
        for page in PAGES
        for one, other in _CHECK.findall(text_of(page))
        if (one or other) not in checks
    ]
    assert unknown == []

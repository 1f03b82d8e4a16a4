"""Every snippet of README and docs runs as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import django
import pytest
from django.core.management import BaseCommand, load_command_class

from docs.site.navigation import pages as navigated
from tests.docs.pages import PAGES, ROOT, blocks, headings, links, places
from tests.docs.project import Project

# Languages of blocks that show what is seen, or what other programs read.
SHOWN = {"", "text", "yaml", "dockerfile"}
KNOWN = SHOWN | {"python", "console", "sql", "ini", "toml"}
# Run in one folder, one after the other: test_tutorial.py.
FROM_NOTHING = {"first-job.md", "failures.md", "schedules.md"}
# In the process of the page's own lines: another one would take longer than it.
MIGRATE = """
from django.core.management import call_command
call_command("migrate", verbosity=0)
"""
_COMMAND = re.compile(r"\b(relay_\w+)\b(.*)")
_OPTION = re.compile(r"--[a-z][a-z-]+")


def runnable_pages() -> list[Path]:
    wanted = SHOWN | {"console", "ini", "toml"}
    return [
        page
        for page in PAGES
        if not (page.parent.name == "tutorial" and page.name in FROM_NOTHING)
        and any(
            block.language not in wanted
            or (block.language == "console" and "python manage.py" in block.text)
            for block in blocks(page)
        )
    ]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere_and_blocks_are_of_a_known_kind(page: Path) -> None:
    missing: list[object] = [each for each in links(page) if not each.exists()]
    missing += [
        (target, anchor)
        for target, anchor in places(page)
        if target.suffix == ".md" and anchor not in headings(target)
    ]
    languages = {block.language for block in blocks(page)}

    assert missing == []
    assert languages <= KNOWN


def test_every_page_is_in_the_navigation() -> None:
    there = {
        str(page.relative_to(ROOT / "docs").with_suffix(""))
        for page in PAGES
        if page != ROOT / "README.md"
    }

    assert sorted(there ^ set(navigated())) == [], "docs/site/navigation.py lists them"


def commands() -> dict[str, set[str]]:
    """Return the options of each command of relay's, Django's own left out."""
    own = {
        option
        for action in BaseCommand().create_parser("", "")._actions
        for option in action.option_strings
    }
    found: dict[str, set[str]] = {}
    for path in (ROOT / "relay/management/commands").glob("relay_*.py"):
        parser = load_command_class("relay", path.stem).create_parser("", path.stem)
        named = {each for action in parser._actions for each in action.option_strings}
        found[path.stem] = {each for each in named - own if each.startswith("--")}
    return found


def test_options_that_pages_name_are_there() -> None:
    known = commands()

    unknown = [
        (name_of(page), command, option)
        for page in PAGES
        for block in blocks(page)
        for command, rest in _COMMAND.findall(block.text)
        if command in known
        for option in set(_OPTION.findall(rest)) - known[command]
    ]
    assert unknown == []


def test_the_reference_names_every_option_of_every_command() -> None:
    text = (ROOT / "docs/reference/commands.md").read_text()
    sections = dict(re.findall(r"^## (relay_\w+)\n(.*?)(?=^## |\Z)", text, re.M | re.S))

    missing = [
        (command, option)
        for command, options in commands().items()
        for option in options
        if not re.search(rf"`{option}\b", sections[command])
    ]
    assert missing == []


@pytest.mark.slow
@pytest.mark.parametrize("page", runnable_pages(), ids=name_of)
def test_a_page_runs_as_printed(
    page: Path, tmp_path: Path, database: dict[str, Any]
) -> None:
    if django.VERSION < (6, 0) and "from django.tasks import" in page.read_text():
        pytest.importorskip("django_tasks")
    project = Project(tmp_path, database, blocks(page))

    try:
        project.python(before=MIGRATE)
        project.sql()
        project.console()
    finally:
        codes = project.stop()

    assert set(codes) <= {0}


@pytest.mark.slow
def test_the_readme_s_example_runs_a_job(
    tmp_path: Path, database: dict[str, Any]
) -> None:
    project = Project(tmp_path, database, blocks(ROOT / "README.md"))

    try:
        project.console()
        printed = project.python(
            after="""
            from shop.views import pay
            job = pay(42)
            print(job.result(timeout=60), job.state)
            from relay.models import Schedule
            print(Schedule.objects.get().name)
            """
        )
    finally:
        codes = project.stop()

    assert printed.splitlines() == [
        "receipt for order 42 sent completed",
        "shop.tasks.morning_report",
    ]
    assert codes == [0]

"""Every snippet of README and docs runs as printed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import django
import psycopg
import pytest
from django.db import connection

from tests.docs.pages import PAGES, ROOT, Block, blocks, headings, links, places
from tests.waiting import until

# Languages of blocks that show what is seen rather than what is typed.
SHOWN = {"", "text"}
KNOWN = SHOWN | {"python", "console", "sql", "ini", "toml"}

MANAGE = """
import os
import sys

from django.core.management import execute_from_command_line

os.environ["DJANGO_SETTINGS_MODULE"] = "project"
execute_from_command_line(sys.argv)
"""
# What a project has besides what a page shows of its settings.
PROJECT = """
import json
import os

SECRET_KEY = "of a test"
USE_TZ = True
ROOT_URLCONF = "urls"
STATIC_URL = "static/"
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
INSTALLED_APPS = ["relay", "shop"]
RELAY = {}
DATABASES = {"default": json.loads(os.environ["SNIPPET_DATABASE"])}
try:
    from settings import *
except ModuleNotFoundError as error:
    if error.name != "settings":
        raise
if "django.contrib.admin" not in INSTALLED_APPS:
    MIDDLEWARE = []  # it needs the admin's apps
RELAY = {**RELAY, "QUEUES": ["default", "slow", "critical", "low"]}
"""

# A process of relay's is connected and so has its signal handlers.
SERVED = (
    "SELECT FROM pg_stat_activity WHERE datname = current_database() "
    "AND application_name IN ('relay worker', 'relay scheduler')"
)


def runnable_pages() -> list[Path]:
    wanted = SHOWN | {"console"}
    return [
        page
        for page in PAGES
        if any(
            block.language not in wanted or "python manage.py" in block.text
            for block in blocks(page)
        )
    ]


def for_this_django(text: str) -> str:
    """Return the text for the backport of django.tasks, where Django has none."""
    if django.VERSION < (6, 0):
        return text.replace("from django.tasks import", "from django_tasks import")
    return text


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


class Project:
    """A project in a folder, made of a page's files, on a database of its own."""

    def __init__(
        self, folder: Path, database: dict[str, Any], page: list[Block]
    ) -> None:
        self.folder = folder
        self.database = database
        self.blocks = page
        self._workers: list[subprocess.Popen[bytes]] = []
        self._supervisors = 0
        files = {
            "manage.py": MANAGE,
            "project.py": PROJECT,
            "urls.py": "urlpatterns = []",
        }
        files |= {"shop/__init__.py": "", "shop/tasks.py": ""}
        files |= {
            block.file: for_this_django(block.text) for block in page if block.file
        }
        for name, text in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(dedent(text))

    def environment(self) -> dict[str, str]:
        return os.environ | {
            "SNIPPET_DATABASE": json.dumps(self.database),
            "DJANGO_SETTINGS_MODULE": "project",
            "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)]),
        }

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, *arguments: str) -> None:
        """Start a command that runs on, and wait until it has reached the database."""
        self._workers.append(
            subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.folder,
                env=self.environment(),
            )
        )
        with psycopg.connect(**parameters(self.database), autocommit=True) as own:
            until(lambda: own.execute(SERVED).fetchone() is not None)
            if "relay_worker" in arguments:
                self._supervisors += 1
                until(lambda: self._has_registered(own))

    def _has_registered(self, own: psycopg.Connection[Any]) -> bool:
        row = own.execute(
            "SELECT count(DISTINCT supervisor) FROM relay_worker"
        ).fetchone()
        return row is not None and row[0] >= self._supervisors

    def stop(self) -> list[int]:
        """Stop what was started, as a deploy would; return the exit codes."""
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        codes = [worker.wait(120) for worker in self._workers]
        self._workers.clear()
        return codes

    def console(self) -> None:
        """Run the commands of console blocks; those that run on go on."""
        for block in self.blocks:
            for line in block.text.splitlines() if block.language == "console" else ():
                words = line.split()
                if words[:2] == ["python", "manage.py"]:
                    runs_on = words[2] in ("relay_worker", "relay_scheduler")
                    runs_on = runs_on and "--sync" not in words
                    (self.start if runs_on else self.run)(*words[1:])
                else:
                    assert is_known_command(line), line

    def python(self, *, after: str = "") -> str:
        """Run the blocks that are no files, one after the other in one process."""
        loose = [
            for_this_django(block.text)
            for block in self.blocks
            if block.language == "python" and block.file is None
        ]
        script = self.folder / "loose.py"
        script.write_text(
            "\n".join(["import django", "django.setup()", *loose, dedent(after)])
        )
        return self.run("loose.py")

    def sql(self) -> None:
        with psycopg.connect(**parameters(self.database)) as own:
            for block in self.blocks:
                if block.language == "sql":
                    own.execute(block.text.encode())


def parameters(database: dict[str, Any], **others: Any) -> dict[str, Any]:
    """Return what psycopg takes to connect to a database of Django's settings."""
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password"}
    names |= {"HOST": "host", "PORT": "port"}
    given = {name: database[key] for key, name in names.items() if database[key]}
    return given | others


def is_known_command(line: str) -> bool:
    words = line.split()
    if words[:1] == ["make"]:
        targets = re.findall(
            r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE
        )
        return words[1] in targets
    if words[:4] == ["python", "-m", "pip", "install"]:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        return words[4].strip("'").partition("[")[0] in (".", project["name"])
    return words[:3] in (
        ["python", "-m", "tests.chaos"],
        ["python", "-m", "bench"],
        ["python", "-m", "relay.standalone.postgres"],
        ["python", "-m", "relay.standalone.demo"],
    )


@pytest.fixture
def database(django_db_setup: None) -> Iterator[dict[str, Any]]:
    settings = {
        key: connection.settings_dict[key]
        for key in ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT")
    }
    name = f"snippets_{os.getpid()}"
    server = parameters(settings, dbname="postgres")
    with psycopg.connect(**server, autocommit=True) as own:
        own.execute(f'CREATE DATABASE "{name}"'.encode())
    yield settings | {"NAME": name}
    with psycopg.connect(**server, autocommit=True) as own:
        own.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


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


def test_the_readme_leads_to_every_page() -> None:
    readme = ROOT / "README.md"

    assert {page for page in PAGES if page != readme} - set(links(readme)) == set()


@pytest.mark.slow
@pytest.mark.parametrize("page", runnable_pages(), ids=name_of)
def test_a_page_runs_as_printed(
    page: Path, tmp_path: Path, database: dict[str, Any]
) -> None:
    if django.VERSION < (6, 0) and "from django.tasks import" in page.read_text():
        pytest.importorskip("django_tasks")
    project = Project(tmp_path, database, blocks(page))
    project.run("manage.py", "migrate")

    try:
        project.python()
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

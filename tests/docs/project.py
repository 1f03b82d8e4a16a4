"""Projects made of pages: their files, their commands, a database of their own."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from textwrap import dedent
from typing import Any

import django
import psycopg

from tests.docs.pages import ROOT, Block
from tests.waiting import until

__all__ = ["Project", "for_this_django", "is_known_command", "parameters"]

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


def for_this_django(text: str) -> str:
    """Return the text for the backport of django.tasks, where Django has none."""
    if django.VERSION < (6, 0):
        return text.replace("from django.tasks import", "from django_tasks import")
    return text


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
                words = shlex.split(line)
                if words[:2] == ["python", "manage.py"]:
                    runs_on = words[2] in ("relay_worker", "relay_scheduler")
                    runs_on = runs_on and "--sync" not in words
                    (self.start if runs_on else self.run)(*words[1:])
                else:
                    assert is_known_command(line), line

    def python(self, *, before: str = "", after: str = "") -> str:
        """Run the blocks that are no files, one after the other in one process."""
        loose = [
            for_this_django(block.text)
            for block in self.blocks
            if block.language == "python" and block.file is None
        ]
        script = self.folder / "loose.py"
        script.write_text(
            "\n".join(
                ["import django", "django.setup()", before, *loose, dedent(after)]
            )
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
    words = shlex.split(line)
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

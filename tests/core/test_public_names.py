"""import relay: the names it gives, and what it must not do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import relay
from relay import exceptions

ROOT = Path(relay.__file__).resolve().parent.parent


def run(code: str, **environment: str) -> str:
    """Run code in a new interpreter without Django settings; what it printed."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DJANGO_SETTINGS_MODULE", "DATABASE_URL")
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=inherited | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_public_name_is_there() -> None:
    assert relay.__all__ == sorted(relay.__all__)
    for name in relay.__all__:
        assert getattr(relay, name) is not None


@pytest.mark.parametrize(
    "name",
    ["Backoff", "cron", "current_job", "enqueue", "enqueue_many", "task", "Retry"],
)
def test_a_name_of_the_documentation_is_public(name: str) -> None:
    assert name in relay.__all__


def test_what_a_user_may_catch_is_public() -> None:
    inner = {"StandaloneError"}  # never reaches a user's code

    assert set(exceptions.__all__) - inner <= set(relay.__all__)


def test_importing_relay_needs_no_settings_and_loads_no_models() -> None:
    printed = run(
        "import sys, relay\n"
        "from django.conf import settings\n"
        "assert not settings.configured\n"
        "print([name for name in sys.modules if name.startswith('relay.models')])"
    )

    assert printed == "[]\n"


def test_decorating_a_task_needs_no_settings() -> None:
    printed = run(
        "import relay\n"
        "@relay.task(name='a:b')\n"
        "def function(): return 1\n"
        "print(function.name, function())"
    )

    assert printed == "a:b 1\n"


SETTINGS = """
SECRET_KEY = "x"
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "none"}}
INSTALLED_APPS = [
    "django.contrib.auth", "django.contrib.contenttypes", "relay", "down_app",
]
"""

TASKS = """
from relay import enqueue, task

@task(queue="mail")
def send(to): ...

request = send.using(priority=1).job("her")
"""

WITHOUT_DATABASE = """
import psycopg
tried = []
def connect(*args, **kwargs):
    tried.append(1)
    raise psycopg.OperationalError("down")
psycopg.connect = connect
psycopg.Connection.connect = classmethod(connect)
import django
from django.core.management import call_command
django.setup()
call_command("check", verbosity=0)
from relay import tasks
assert "down_app.tasks.send" in tasks.all_tasks()
assert "mail" in tasks.known_queues()
assert tried == [], tried
"""


def test_failure_107_check_and_the_import_of_tasks_never_touch_the_database(
    tmp_path: Path,
) -> None:
    (tmp_path / "down_app").mkdir()
    (tmp_path / "down_app" / "__init__.py").touch()
    (tmp_path / "down_app" / "tasks.py").write_text(TASKS)
    (tmp_path / "down_settings.py").write_text(SETTINGS)

    run(
        WITHOUT_DATABASE,
        DJANGO_SETTINGS_MODULE="down_settings",
        PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}",
    )


def test_each_name_is_found_in_its_home() -> None:
    assert sorted(relay._HOME) == relay.__all__
    for name in relay.__all__:
        assert name in dir(relay)
    with pytest.raises(AttributeError, match="no attribute 'enqueu'"):
        getattr(relay, "enqueu")  # noqa: B009 - no name that mypy knows


def test_importing_relay_does_not_load_django() -> None:
    printed = run(
        "import sys, relay\n"
        "heavy = {name.partition('.')[0] for name in sys.modules}\n"
        "print(heavy & {'django', 'psycopg', 'asgiref', 'croniter'})"
    )

    assert printed == "set()\n"

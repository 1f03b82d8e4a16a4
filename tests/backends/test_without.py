"""Where there is no django.tasks, relay is as it was."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.backends.aliases import IS_BACKPORT
from tests.worker.harness import ROOT

WITHOUT = """
import sys
sys.modules["django_tasks"] = None
from django.conf import settings
settings.configure(INSTALLED_APPS=["relay"], DATABASES={{}}, TASKS={tasks})
import django, relay, relay.tasks
django.setup()
"""


def run(tasks: str, more: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT.format(tasks=tasks) + more],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_relay_needs_no_tasks_api() -> None:
    done = run("{}", "assert 'relay.backends' not in sys.modules")

    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not IS_BACKPORT, reason="Django has its own from 6.0 on")
def test_the_backend_says_what_to_install() -> None:
    done = run('{"default": {"BACKEND": "relay.backends.RelayBackend"}}')

    assert done.returncode != 0
    assert "pip install django-tasks" in done.stderr

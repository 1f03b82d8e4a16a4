"""relay's addresses in projects without users, or without the extra api."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT

SETTINGS = """
from testproject.settings import *

INSTALLED_APPS = ["relay", "testproject"]
MIDDLEWARE = []
ROOT_URLCONF = "relay.urls"
"""
ASK = """
import json
import django

django.setup()
from django.test import Client

answers = {}
for path in ("/healthz", "/readyz", "/metrics", "/v1/jobs", "/v1/nothing"):
    response = Client().get(path)
    answers[path] = [response.status_code, response.content.decode()]
print(json.dumps(answers))
"""
# As if Django REST framework were not installed.
WITHOUT = "import sys; sys.modules['rest_framework'] = None\n"


def asked(folder: Path, script: str) -> dict[str, tuple[int, str]]:
    """Ask in a process of its own, as a stranger: nothing needs the database."""
    (folder / "bare.py").write_text(SETTINGS)
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ
        | {
            "DJANGO_SETTINGS_MODULE": "bare",
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, tuple[int, str]] = json.loads(done.stdout)
    return found


def test_a_project_without_users_is_served_and_closed(tmp_path: Path) -> None:
    found = asked(tmp_path, ASK)

    assert {path: status for path, (status, _) in found.items()} == {
        "/healthz": 200,
        "/readyz": 401,
        "/metrics": 401,
        "/v1/jobs": 401,
        "/v1/nothing": 401,
    }


def test_without_its_extra_the_api_says_what_to_install(tmp_path: Path) -> None:
    found = asked(tmp_path, WITHOUT + ASK)

    assert found["/healthz"][0] == 200
    for path in ("/v1/jobs", "/v1/nothing"):
        assert found[path][0] == 404
        assert "django-relay[api]" in found[path][1]

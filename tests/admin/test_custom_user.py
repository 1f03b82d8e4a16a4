"""relay beside a user model of the host's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from django.conf import settings


@pytest.mark.slow
@pytest.mark.usefixtures("db")
def test_failure_131_a_user_model_with_uuid_keys_and_other_automatic_keys() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.admin.custom_user.act"],
        cwd=settings.BASE_DIR,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.admin.custom_user.settings",
            "RELAY_TEST_DATABASE": f"{settings.DATABASES['default']['NAME']}_person",
        },
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["history"] == [
        ["cancel", "ada@example.org"],
        ["replay", "ada@example.org"],
    ]
    assert answer["log"] == [answer["user"]] * 2
    assert answer["replays"] == 1

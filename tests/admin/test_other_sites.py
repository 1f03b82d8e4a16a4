"""relay in admin sites that are not Django's default one, and with django-unfold."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.exceptions import AlreadyRegistered

from relay.admin import register
from relay.models import (
    ApiToken,
    Audit,
    BulkOperation,
    Job,
    Occurrence,
    Queue,
    Schedule,
    Worker,
)

MODELS = {ApiToken, Audit, BulkOperation, Job, Occurrence, Queue, Schedule, Worker}
COUNT = """
import django
from django.conf import settings
from testproject import settings as given
settings.configure(
    **{name: getattr(given, name) for name in dir(given) if name.isupper()},
    RELAY={"ADMIN": False},
)
django.setup()
from django.contrib import admin
import relay.admin
print(sum(model._meta.app_label == "relay" for model in admin.site._registry))
relay.admin.register(admin.site)
print(sum(model._meta.app_label == "relay" for model in admin.site._registry))
"""


def run(*arguments: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=settings.BASE_DIR,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_all_pages_are_registered_with_any_site_and_of_any_class() -> None:
    class Own(admin.ModelAdmin):  # type: ignore[type-arg] # Django's takes none
        list_per_page = 7

    site = admin.AdminSite(name="operations")

    register(site, base=Own)

    assert set(site._registry) == MODELS
    assert all(isinstance(page, Own) for page in site._registry.values())
    with pytest.raises(AlreadyRegistered):
        register(site)


@pytest.mark.slow
def test_a_project_may_keep_relay_out_of_its_admin() -> None:
    assert run("-c", COUNT) == ["0", str(len(MODELS))]


@pytest.mark.slow
@pytest.mark.usefixtures("db")
def test_every_page_opens_and_acts_with_django_unfold() -> None:
    pytest.importorskip("unfold")

    lines = run(
        *("-m", "tests.admin.with_unfold.visit"),
        DJANGO_SETTINGS_MODULE="tests.admin.with_unfold.settings",
        RELAY_TEST_DATABASE=f"{settings.DATABASES['default']['NAME']}_unfold",
    )

    answer = json.loads(lines[-1])
    statuses = answer["statuses"]
    assert statuses == dict.fromkeys(statuses, 200)
    assert answer["hostile"] == []
    assert answer["is_unfold"]
    assert answer["unfold_pages"] == len(statuses)
    assert (answer["job"], answer["paused"]) == ("cancelled", True)
    assert answer["edited"] == {"args": [2], "kwargs": {}}
    assert answer["asks"]
    assert answer["buttons"]
    assert answer["suggests"]
    assert answer["secret"]
    assert answer["schedules"] == 2

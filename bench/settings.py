"""Settings of the measurements: the test project's, on a cluster of their own."""

from __future__ import annotations

from relay.standalone.postgres import database_settings, root_by_major
from testproject.settings import *  # noqa: F403 - the same project, another cluster
from testproject.settings import BASE_DIR, INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "bench"]
POSTGRES_ROOT = root_by_major(BASE_DIR / ".relay" / "bench")
DATABASES = {"default": database_settings(POSTGRES_ROOT)}

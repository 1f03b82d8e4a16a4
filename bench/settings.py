"""Settings of the measurements: the test project's, on a cluster of their own."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from relay.standalone.postgres import database_settings, root_by_major
from testproject.settings import *  # noqa: F403 - the same project, another cluster
from testproject.settings import BASE_DIR, INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "bench"]
POSTGRES_ROOT = root_by_major(BASE_DIR / ".relay" / "bench")
# python -m bench puts the address of a database of its own into DATABASE_URL.
DATABASES = {"default": database_settings(POSTGRES_ROOT)}
# relay's defaults, but for the measurement of pruning.
RELAY: dict[str, Any] = {}
if seconds := os.environ.get("BENCH_RETENTION_SECONDS"):
    RELAY["RETENTION_COMPLETED"] = timedelta(seconds=float(seconds))

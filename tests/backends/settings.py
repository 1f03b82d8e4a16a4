"""Settings of a worker that runs the tasks of these tests."""

from __future__ import annotations

from tests.backends import aliases
from tests.worker.settings import *  # noqa: F403 - all of it, and what stands below

INSTALLED_APPS = [*INSTALLED_APPS, "tests.backends"]  # noqa: F405 - of tests.worker
TASKS = {alias: values for alias, values in aliases.TASKS.items() if alias != "missing"}

"""Settings of the workers that these tests start; the harness fills the environment."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any

from relay import Backoff
from relay.standalone.postgres import parse_database_url
from testproject.settings import *  # noqa: F403 - all of it, and what stands below

DURATIONS = {
    "LEASE",
    "POLL_INTERVAL",
    "GRACE",
    "TIMEOUT_GRACE",
    "CANCEL_GRACE",
    "UNKNOWN_TASK_LIMIT",
    "RETENTION_COMPLETED",
}


def relay_settings(document: dict[str, Any]) -> dict[str, Any]:
    """Return settings.RELAY of JSON, in which durations are in seconds."""
    values = dict(document)
    for name in DURATIONS & set(values):
        values[name] = timedelta(seconds=values[name])
    if "BACKOFF" in values:
        base, cap = values["BACKOFF"]
        values["BACKOFF"] = Backoff(
            base=timedelta(seconds=base), cap=timedelta(seconds=cap), jitter=False
        )
    return values


INSTALLED_APPS = [*INSTALLED_APPS, "tests.worker"]  # noqa: F405 - of testproject
if app := os.environ.get("WORKER_TESTS_APP"):
    INSTALLED_APPS += [app]
if os.environ.get("WORKER_TESTS_POOL"):
    DATABASES["default"].setdefault("OPTIONS", {})["pool"] = True  # noqa: F405 - of testproject
if path := os.environ.get("WORKER_TESTS_WSGI"):
    WSGI_APPLICATION = path
if url := os.environ.get("WORKER_TESTS_JOBS"):
    DATABASES["jobs"] = parse_database_url(url)  # noqa: F405 - of testproject
    DATABASE_ROUTERS = ["relay.routers.RelayRouter"]
RELAY = relay_settings(json.loads(os.environ.get("WORKER_TESTS_RELAY", "{}")))
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "%(asctime)s %(process)d %(levelname)s %(name)s %(message)s"}
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "INFO"},
}

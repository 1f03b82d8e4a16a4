"""Settings of every process in a chaos run; the harness fills the environment."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import relay
from relay import Backoff
from tests.chaos.profiles import LEASE_SECONDS

CODE = Path(os.environ["RELAY_CHAOS_CODE"]).resolve()
if not Path(relay.__file__).resolve().is_relative_to(CODE):
    raise RuntimeError(f"relay was imported from {relay.__file__}, not from {CODE}")

SECRET_KEY = "only-for-the-chaos-run"
USE_TZ = True
TIME_ZONE = "UTC"
INSTALLED_APPS = ["relay", "tests.chaos"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.environ["RELAY_CHAOS_HOST"],
        "PORT": os.environ.get("RELAY_CHAOS_PORT", ""),
        "USER": os.environ["RELAY_CHAOS_USER"],
        "NAME": os.environ["RELAY_CHAOS_DATABASE"],
    }
}
KEEP = None
if seconds := os.environ.get("RELAY_CHAOS_KEEP_SECONDS"):
    KEEP = timedelta(seconds=float(seconds))
RELAY = {
    "LEASE": timedelta(
        seconds=float(os.environ.get("RELAY_CHAOS_LEASE_SECONDS", LEASE_SECONDS))
    ),
    "POLL_INTERVAL": timedelta(milliseconds=200),
    "GRACE": timedelta(seconds=1),
    "BACKOFF": Backoff(base=timedelta(seconds=0.2), cap=timedelta(seconds=1)),
    # The faults of a run must not make its jobs poison.
    "CRASH_LIMIT": 10_000,
    "LOSS_LIMIT": 10_000,
    # Nothing may vanish before the checker has seen it, unless a run keeps what does.
    "RETENTION_COMPLETED": KEEP,
    "RETENTION_FAILED": KEEP,
    # With both schedulers dead nothing may fire: that is what catch_up is for.
    "SCHEDULE_IN_WORKERS": False,
    "TRANSACTION_POOLER": bool(os.environ.get("RELAY_CHAOS_POOLER")),
}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "%(asctime)s %(process)d %(levelname)s %(name)s %(message)s"}
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {
        "handlers": ["stderr"],
        "level": os.environ.get("RELAY_CHAOS_LEVEL", "INFO"),
    },
}

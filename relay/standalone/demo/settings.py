"""The demo's Django project. Every process of one run reads the same environment."""

from __future__ import annotations

from datetime import timedelta

from django.core.management.utils import get_random_secret_key

from relay.retry import Backoff
from relay.standalone.demo.environment import data_folder
from relay.standalone.postgres import database_settings, root_by_major

POSTGRES_ROOT = root_by_major(data_folder() / "postgres")
DATABASES = {"default": database_settings(POSTGRES_ROOT, "demo")}

# Of this process: only the one that serves the admin signs anything.
SECRET_KEY = get_random_secret_key()
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
USE_TZ = True
TIME_ZONE = "UTC"
ROOT_URLCONF = "relay.standalone.demo.urls"
STATIC_URL = "static/"
LOGIN_URL = "admin:login"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

RELAY = {
    "QUEUES": ["demo"],
    "CONCURRENCY": 4,
    # Short, so that a takeover is worth watching. The default is 30 s.
    "LEASE": timedelta(seconds=3),
    "GRACE": timedelta(seconds=5),
    "BACKOFF": Backoff(base=timedelta(seconds=1), cap=timedelta(seconds=5)),
    # The schedule makes a job every two seconds for as long as the demo runs.
    "RETENTION_COMPLETED": timedelta(hours=1),
    # Leave it to relay_scheduler, which the demo starts to show it.
    "SCHEDULE_IN_WORKERS": False,
}

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "relay",
    "relay.standalone.demo",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
# Requests go to a file: the terminal is for the story. What workers and the scheduler
# write goes to a file each, as the demo starts them so.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "{asctime} {levelname} {message}", "style": "{"},
        "values": {
            "()": "relay.management.console.ExtraFormatter",
            "format": "{asctime} {levelname} {message}",
            "style": "{",
        },
    },
    "handlers": {
        "relay": {"class": "logging.StreamHandler", "formatter": "values"},
        "admin": {
            "class": "logging.FileHandler",
            "filename": data_folder() / "admin.log",
            "delay": True,
            "formatter": "line",
        },
    },
    "loggers": {
        "relay": {"handlers": ["relay"], "level": "INFO"},
        "django.server": {"handlers": ["admin"], "level": "INFO", "propagate": False},
        "django.request": {"handlers": ["admin"], "level": "ERROR"},
    },
}

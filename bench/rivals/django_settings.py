"""A Django project with nothing but django-tasks-db; connections stay open."""

from __future__ import annotations

import os

from relay.standalone.postgres import parse_database_url

SECRET_KEY = "only-for-the-measurements"  # noqa: S105 - protects nothing
USE_TZ = True
INSTALLED_APPS = ["django_tasks_db"]
# Without CONN_MAX_AGE it connects anew for every job.
DATABASES = {
    "default": parse_database_url(os.environ["DATABASE_URL"]) | {"CONN_MAX_AGE": None}
}
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}

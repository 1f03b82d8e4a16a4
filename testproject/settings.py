"""The smallest Django project that runs everything."""

from __future__ import annotations

import os
from pathlib import Path

from relay.standalone.postgres import database_settings, root_by_major

BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = "only-for-tests-and-the-load-test"  # noqa: S105 - protects nothing
DEBUG = False
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]
USE_TZ = True
TIME_ZONE = "UTC"
ROOT_URLCONF = "testproject.urls"
STATIC_URL = "static/"
LOGIN_URL = "admin:login"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "relay",
    "testproject",
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
# One cluster for each major version, so that a checkout serves several at once; runs of
# one version side by side need a folder each.
POSTGRES_ROOT = root_by_major(
    Path(os.environ.get("RELAY_TEST_ROOT") or BASE_DIR / ".relay" / "postgres")
)
DATABASES = {"default": database_settings(POSTGRES_ROOT)}
if name := os.environ.get("RELAY_TEST_DATABASE"):
    DATABASES["default"]["NAME"] = name

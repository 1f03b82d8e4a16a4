"""Where an embedded worker starts, and where it must not."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Collection
from typing import Final

from django.apps import apps
from django.conf import settings
from django.core.management import get_commands

from relay.conf import get_settings
from relay.engine.connection import check_vendor
from relay.exceptions import RelayError

__all__ = ["HELPER_MARK", "check_process", "why_not"]

# In the environment of the helper process, which loads the project as well.
HELPER_MARK: Final = "RELAY_EMBEDDED_HELPER"


def check_process() -> None:
    """Refuse a process in which no embedded worker can run.

    Raises:
        RelayError: with what to do.
    """
    if sys.platform == "win32":
        raise RelayError(
            "an embedded worker needs Linux or macOS: on Windows there are no datagram "
            "socket pairs to hand to its helper process"
        )
    if getattr(settings, "SETTINGS_MODULE", None) is None:
        raise RelayError(
            "the settings were made by settings.configure(), and the helper process "
            "that keeps the lease cannot load them: put them into a module and name "
            "it in DJANGO_SETTINGS_MODULE"
        )
    if threading.get_ident.__module__ != "_thread":
        raise RelayError(
            "threading is patched, as by gevent or eventlet, and a handler would stop "
            "the leases of all: run relay_worker instead"
        )
    check_vendor(get_settings().database)


def why_not(commands: Collection[str]) -> str | None:
    """Return why no worker starts in this process, which is right so; None if it may.

    Args:
        commands: management commands that serve the web.

    Raises:
        RelayError: the apps are not loaded yet.
    """
    if not apps.ready:
        raise RelayError(
            "the apps are not loaded yet: call start() after get_wsgi_application() or "
            "get_asgi_application(), never from an app"
        )
    if os.environ.get(HELPER_MARK):
        return "this is the helper process of another one"
    tests = sys.modules.get("django.test.utils")
    if tests is not None and hasattr(tests._TestState, "saved_data"):
        return "tests run here"
    command = _management_command()
    if command is None:
        return None
    if command not in commands:
        return f"manage.py {command} is no web server"
    if command == "runserver" and _is_reloader():
        return "this process only restarts the one that serves"
    return None


def _management_command() -> str | None:
    """Return the command of manage.py that runs here; None in a web server's own."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    return name if name in get_commands() else None


def _is_reloader() -> bool:
    return "--noreload" not in sys.argv and os.environ.get("RUN_MAIN") != "true"

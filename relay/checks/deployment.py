"""W004, W007, W008, W018 to W020: what check --deploy finds of who sees relay."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage
from django.db import connections
from django.http import HttpRequest
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils.module_loading import import_string

from relay.checks.messages import readable_settings, warning
from relay.key_settings import decode_key

__all__ = [
    "EXAMPLE_KEY",
    "check_exposure",
    "check_grace",
    "check_keys",
    "check_metrics_folder",
    "check_rate",
    "check_transport",
]

# Where prometheus_client keeps the sums of several processes.
FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
# What Kubernetes grants unless told otherwise. Source: terminationGracePeriodSeconds.
CONTAINER_GRACE: Final = timedelta(seconds=30)
# That of docs/howto/sensitive-arguments.md, which everybody can read.
EXAMPLE_KEY: Final = b"not a secret: it is on this page"
_VERIFIED: Final = ("verify-ca", "verify-full")
_CONTAINER_FILES: Final = ("/.dockerenv", "/run/.containerenv")
_OWN_COUNT: Final = ("locmem.LocMemCache", "dummy.DummyCache")


def check_exposure(**_: object) -> list[CheckMessage]:
    """W004: who is not logged in may see, or do, something."""
    return [*_check_access(), *_check_exporter()]


def _check_access() -> Iterator[CheckMessage]:
    relay = readable_settings()
    given = _given_to_anyone(relay.access) if relay and relay.access else ()
    if given:
        yield warning(
            "W004",
            f"RELAY['ACCESS'] gives {', '.join(sorted(given))} to a request without a "
            "user: everybody who reaches the dashboard or the API may do that",
            "Have it return an empty set unless request.user.is_authenticated.",
        )


def _given_to_anyone(path: str) -> set[str]:
    """Return what the callable of RELAY["ACCESS"] allows who is not logged in."""
    request: Any = HttpRequest()
    request.method, request.path = "GET", "/"
    request.META = {"REMOTE_ADDR": "192.0.2.1", "SERVER_NAME": "check.invalid"}
    request.session = {}
    if apps.is_installed("django.contrib.auth"):
        from django.contrib.auth.models import AnonymousUser  # here: it has models

        request.user = AnonymousUser()
    try:
        return {str(each) for each in import_string(path)(request) or ()}
    except Exception:  # an edge: any code; E012 tells of what cannot be imported
        return set()


def _check_exporter() -> Iterator[CheckMessage]:
    is_counting = find_spec("prometheus_client") is not None
    if not is_counting or not getattr(settings, "ROOT_URLCONF", None):
        return
    for address, view in _views(get_resolver().url_patterns):
        is_exporter = getattr(view, "__module__", None) == "django_prometheus.exports"
        # What a decorator closes has what it wraps.
        if is_exporter and not hasattr(view, "__wrapped__"):
            yield warning(
                "W004",
                f"/{address} of django_prometheus shows to everybody who reaches it "
                "what relay counts: names of queues and tasks, and their rates",
                "Take it away, as relay's own /metrics is closed and has the same; or "
                "keep it from the outside, and silence this.",
            )


def _views(
    patterns: list[URLPattern | URLResolver], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    for each in patterns:
        text = prefix + str(each.pattern).removeprefix("^").removesuffix("$")
        if isinstance(each, URLResolver):
            yield from _views(each.url_patterns, text)
        else:
            yield text, each.callback


def check_grace(**_: object) -> list[CheckMessage]:
    """W007: a container is killed before its workers have drained."""
    relay = readable_settings()
    if relay is None or relay.grace < CONTAINER_GRACE or not _is_in_container():
        return []
    return [
        warning(
            "W007",
            f"RELAY['GRACE'] is {relay.grace}, and this is a container, which is "
            f"killed {CONTAINER_GRACE.seconds} s after SIGTERM unless its manifest "
            "says otherwise: jobs that still run then are lost with their worker",
            "Set terminationGracePeriodSeconds (or stop_grace_period) 15 s above it, "
            "and silence this; or lower it.",
        )
    ]


def _is_in_container() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ or any(
        Path(file).exists() for file in _CONTAINER_FILES
    )


def check_metrics_folder(**_: object) -> list[CheckMessage]:
    """W008: the folder of the metrics of several processes is none, or not relay's."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder is None or find_spec("prometheus_client") is None:
        return []
    if not Path(folder).is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        reason = "is no folder in which this process may write: nothing is counted"
        remedy = "Make it, for this project alone, before its processes start."
    elif Path(folder).resolve() == Path(tempfile.gettempdir()).resolve():
        reason = "is where all programs of this machine may write: theirs are added"
        remedy = "Name a folder of this project's own."
    else:
        return []
    return [warning("W008", f"{FOLDER_VARIABLE} is {folder!r}, which {reason}", remedy)]


def check_rate(**_: object) -> list[CheckMessage]:
    """W018: each process counts for itself how much a caller submits."""
    relay = readable_settings()
    if relay is None or relay.api.submit_rate is None:
        return []
    caches: Mapping[str, Any] = settings.CACHES
    backend = str(caches.get("default", {}).get("BACKEND"))
    if not backend.endswith(_OWN_COUNT):
        return []
    return [
        warning(
            "W018",
            "RELAY['API']['SUBMIT_RATE'] bounds what a caller submits, and the default "
            f"cache is {backend}, which no other process sees: with several web "
            "processes more gets through",
            "Give CACHES['default'] one that processes share.",
        )
    ]


def check_transport(**_: object) -> list[CheckMessage]:
    """W019: the server of the database need not prove who it is."""
    relay = readable_settings()
    if relay is None:
        return []
    database = connections[relay.database].settings_dict
    host, options = str(database.get("HOST") or ""), database.get("OPTIONS") or {}
    is_near = host.startswith("/") or host in ("", "localhost", "127.0.0.1", "::1")
    mode = options.get("sslmode") or os.environ.get("PGSSLMODE", "prefer")
    if is_near or mode in _VERIFIED or "service" in options:
        return []
    return [
        warning(
            "W019",
            f"DATABASES[{relay.database!r}] is on {host}, with sslmode {mode!r}: who "
            "is on the way may read jobs, and answer in the server's place",
            "Set OPTIONS['sslmode'] to 'verify-full', and sslrootcert; or silence "
            "this where the way is safe, as in a tunnel.",
        )
    ]


def check_keys(**_: object) -> list[CheckMessage]:
    """W020: arguments are encrypted by a key that is published."""
    relay = readable_settings()
    keys: Mapping[str, Any] = relay.encryption_keys if relay else {}
    names = [
        name
        for name, key in keys.items()
        if not callable(key) and decode_key(key) == EXAMPLE_KEY
    ]
    return [
        warning(
            "W020",
            f"RELAY['ENCRYPTION_KEYS'] has under {name!r} the key that relay's "
            "documentation shows: what it encrypts everybody can read",
            "Make one of your own: openssl rand -base64 32; then relay_reencrypt.",
        )
        for name in names
    ]

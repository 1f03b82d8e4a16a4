"""DATABASE_URL as an entry of Django's DATABASES. Pure: no database."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from relay.exceptions import StandaloneError

__all__ = ["parse_database_url"]

ENGINE = "django.db.backends.postgresql"
# Parameters of libpq that stand elsewhere in Django's settings.
_SETTINGS_OF = {
    "host": "HOST",
    "port": "PORT",
    "user": "USER",
    "password": "PASSWORD",
    "dbname": "NAME",
}


def parse_database_url(url: str) -> dict[str, Any]:
    """Return Django's settings for postgresql://user:password@host:port/name?option=….

    The form is libpq's: parts are percent-encoded, a socket folder stands as
    host=%2Fpath among the options, other options go to libpq.

    Raises:
        StandaloneError: it is no address of a PostgreSQL database. The message
            does not repeat the address, which may hold a password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise StandaloneError(f"DATABASE_URL cannot be read: {error}") from None
    if parts.scheme not in ("postgres", "postgresql"):
        raise StandaloneError(
            f"DATABASE_URL begins with {parts.scheme!r}: relay needs PostgreSQL, as in "
            "postgresql://user:password@host:5432/name"
        )
    settings: dict[str, Any] = {
        "ENGINE": ENGINE,
        "NAME": unquote(parts.path.removeprefix("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": _host(parts),
        "PORT": str(port) if port else "",
    }
    for option, key in _SETTINGS_OF.items():
        if option in options:
            settings[key] = options.pop(option)
    if not settings["NAME"]:
        raise StandaloneError(
            "DATABASE_URL names no database: end its path with one, as in "
            "postgresql://user:password@host:5432/name"
        )
    if options:
        settings["OPTIONS"] = options
    return settings


def _host(parts: SplitResult) -> str:
    """Return the host as written: the lower case of .hostname breaks socket folders."""
    written = parts.netloc.rpartition("@")[2]
    if written.startswith("["):
        return parts.hostname or ""
    return unquote(written.partition(":")[0])

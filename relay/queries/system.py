"""What runs here, with which settings, on which database, and whether it is well."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import django
from django.conf import settings as project
from django.core import checks
from django.db import Error, connections

from relay.conf import get_settings
from relay.exceptions import ReadTimeout
from relay.models import Job
from relay.operations import Actor
from relay.queries.documents import (
    CheckDocument,
    ReadinessDocument,
    SystemDocument,
    TableDocument,
)
from relay.queries.reading import bounded_read, instant
from relay.queries.soundness import read_migrations
from relay.sensitive import MASK

__all__ = ["get_system", "health", "readiness", "settings_in_force"]

DISTRIBUTION: Final = "django-relay"

TABLES: Final = """
SELECT relname, pg_total_relation_size(relid), pg_indexes_size(relid), n_live_tup,
       n_dead_tup, greatest(last_vacuum, last_autovacuum)
FROM pg_stat_user_tables
WHERE schemaname = current_schema AND starts_with(relname, 'relay_')
ORDER BY relname
"""
# Of other roles' sessions only those are told of that this one may see. The statistics:
# relay_stat_place_idx, from its end.
SERVER: Final = """
SELECT current_setting('server_version'),
       (SELECT extract(epoch FROM clock_timestamp() - min(xact_start))::float8
        FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
          AND backend_type = 'client backend'),
       (SELECT extract(epoch FROM clock_timestamp() - at)::float8
        FROM relay_stat WHERE seconds = 60 ORDER BY at DESC LIMIT 1)
"""


def health() -> dict[str, str]:
    """Return that this process answers; nothing else is asked, nobody is refused."""
    return {"status": "ok"}


def readiness() -> ReadinessDocument:
    """Return whether this process can serve: the database answers, migrations are done.

    Nobody is refused, and nothing is told of either but that.
    """
    using = get_settings().database
    try:
        with bounded_read(using), connections[using].cursor() as cursor:
            cursor.execute("SELECT 1")
            missing = read_migrations(using)["missing"]
    except (Error, ReadTimeout):
        return {"status": "unavailable", "reasons": ["the database does not answer"]}
    if missing:
        return {"status": "unavailable", "reasons": ["migrations are not applied"]}
    return {"status": "ok", "reasons": []}


def get_system(actor: Actor) -> SystemDocument:
    """Return versions, settings in force, checks, migrations, and the tables' sizes.

    Of the encryption keys only the ids are told.

    Raises:
        NotAllowed: the actor lacks view_metrics.
        ReadTimeout: a statement took longer than 2 s.
    """
    actor.require("view_metrics", "get_system")
    using = get_settings().database
    with bounded_read(using, bitmaps=True), connections[using].cursor() as cursor:
        cursor.execute(SERVER)
        [(server, oldest, lag)] = cursor.fetchall()
        cursor.execute(TABLES)
        tables = cursor.fetchall()
    return {
        "version": _version(),
        "python": platform.python_version(),
        "django": django.get_version(),
        "postgresql": server,
        "database": using,
        "settings": _plain(settings_in_force()),
        "checks": _checks(using),
        "migrations": read_migrations(using),
        "tables": [_table(row) for row in tables],
        "oldest_transaction": oldest,
        "statistics_lag": lag,
    }


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"


def _table(row: tuple[Any, ...]) -> TableDocument:
    name, size, indexes, live, dead, vacuumed_at = row
    return {
        "name": name,
        "size_bytes": size,
        "index_bytes": indexes,
        "live_rows": live,
        "dead_rows": dead,
        "vacuumed_at": instant(vacuumed_at),
    }


def _checks(using: str) -> list[CheckDocument]:
    """Return what relay's own checks find, those that ask the database too.

    Those of check --deploy are for where DEBUG is off.
    """
    label = Job._meta.app_label
    found = [
        *checks.run_checks(tags=[label], include_deployment_checks=not project.DEBUG),
        *checks.run_checks(tags=[checks.Tags.database], databases=[using]),
    ]
    return [
        {
            "id": message.id,
            "level": "error" if message.is_serious() else "warning",
            "message": message.msg,
            "hint": message.hint,
        }
        for message in found
        if message.id is not None
        and message.id.startswith(f"{label}.")
        and not message.is_silenced()
    ]


def settings_in_force() -> dict[str, Any]:
    """Return what holds of RELAY, each by its key; of encryption keys only the ids.

    Parts with keys of their own are dicts; spans are timedeltas.
    """
    values = _values(get_settings())
    return {**values, "USE_TZ": project.USE_TZ}


def _values(part: Any) -> dict[str, Any]:
    """Return what a dataclass of settings says, each as settings.RELAY calls it."""
    named = str.upper if type(part).__name__.endswith("Settings") else str
    return {
        named(each.name): _value(getattr(part, each.name), is_shown=each.repr)
        for each in fields(part)
        if each.init
    }


def _value(value: Any, *, is_shown: bool) -> Any:
    if not is_shown:  # keys by their ids, which are no secret
        return list(value) if isinstance(value, Mapping) else MASK
    if is_dataclass(value) and not isinstance(value, type):
        return _values(value)
    if isinstance(value, Mapping):
        return {str(name): _value(item, is_shown=True) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_value(item, is_shown=True) for item in value]
    return value


def _plain(value: Any) -> Any:
    """Return a setting as JSON has it: spans as seconds, what it lacks as its repr."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return repr(value)

"""E001, W003, W010, W012, W013, W017: what only the database can tell."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

from django.apps import apps
from django.core.checks import CheckMessage
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Index, UniqueConstraint

from relay.checks.code import unknown_queue
from relay.checks.messages import error, readable_settings, warning
from relay.models import Job, Queue, Schedule, ScheduleSource
from relay.queries.soundness import read_migrations, read_skew
from relay.scheduler.lateness import read_lateness
from relay.scheduler.registry import read_unsynced
from relay.scheduler.validation import find_errors
from relay.tasks import all_tasks, known_queues

__all__ = ["check_database", "find_lasting"]

OLDEST_POSTGRESQL: Final = 15
# A small table. Served is a queue also by workers that are quiet for now.
SERVED: Final = """
SELECT DISTINCT unnest(queues) FROM relay_worker
WHERE state IN ('running', 'quiet') AND lease_expires_at > statement_timestamp()
"""


def check_database(
    *, databases: Sequence[str] | None = None, **_: object
) -> list[CheckMessage]:
    """E001, W003, W010, W012, W013 and W017: what only the database can tell."""
    relay = readable_settings()
    if relay is None or relay.database not in (databases or ()):
        return []
    connection = connections[relay.database]
    if connection.vendor != "postgresql":
        return []  # E001 has said so
    # migrate runs the database's checks before it does its work.
    is_under_way = sys.argv[1:2] == ["migrate"]
    found = find_lasting(connection, is_under_way=is_under_way)
    if any(each.id == "relay.E001" for each in found) or _find_unapplied(connection):
        return found
    return [*found, *_check_lateness(relay.database), *_check_served(connection)]


def find_lasting(
    connection: BaseDatabaseWrapper, *, is_under_way: bool = False
) -> list[CheckMessage]:
    """Return what is wrong until somebody changes it, whoever works at the moment.

    Args:
        is_under_way: migrate is about to put some of it right.
    """
    server = list(_check_server(connection))
    if server:
        return server
    missing = _find_unapplied(connection)
    if missing:
        return [] if is_under_way else [_unapplied(connection.alias, missing)]
    return [
        *_check_indexes(connection),
        *_check_autovacuum(connection),
        *_check_clock(connection),
        *_check_rows(connection.alias),
        *(() if is_under_way else _check_declared(connection.alias)),
    ]


def _check_server(connection: Any) -> Iterator[CheckMessage]:
    major = connection.pg_version // 10_000
    if major < OLDEST_POSTGRESQL:
        yield error(
            "E001",
            f"the server of DATABASES[{connection.alias!r}] is PostgreSQL {major}; "
            f"relay needs {OLDEST_POSTGRESQL} or newer",
            "Upgrade the server.",
        )


def _find_unapplied(connection: BaseDatabaseWrapper) -> list[str]:
    return read_migrations(connection.alias)["missing"]


def _unapplied(alias: str, names: Sequence[str]) -> CheckMessage:
    return warning(
        "W010",
        f"migrations of relay are not applied to {alias!r}: {', '.join(names)}",
        "Run manage.py migrate.",
    )


_READ_INDEXES: Final = """
SELECT named.relname, pg_index.indisvalid AND pg_index.indisready,
       pg_index.indrelid::regclass::text
FROM pg_index JOIN pg_class AS named ON named.oid = pg_index.indexrelid
WHERE pg_index.indrelid IN (
    SELECT to_regclass(quote_ident(name)) FROM unnest(%s::text[]) AS name
)
"""


def _wanted_indexes() -> dict[str, str]:
    """Return the tables of the indexes that relay's models have, by their names."""
    models = apps.get_app_config(Job._meta.app_label).get_models()
    return {
        index.name: model._meta.db_table
        for model in models
        for index in (*model._meta.indexes, *model._meta.constraints)
        if isinstance(index, Index | UniqueConstraint)
    }


def _check_indexes(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    wanted = _wanted_indexes()
    rows = _ask(connection, _READ_INDEXES, [sorted(set(wanted.values()))])
    is_valid = {name: is_sound for name, is_sound, _ in rows}
    for name, table in wanted.items():
        if name not in is_valid:
            yield warning(
                "W010",
                f"the index {name} of {table} is missing: queries read the whole "
                "table, and if it is a unique one, duplicates get in",
                "Create it as manage.py sqlmigrate relay shows.",
            )
        elif not is_valid[name]:
            yield warning(
                "W010",
                f"the index {name} of {table} is invalid, as a CREATE INDEX "
                "CONCURRENTLY that failed leaves it",
                f"Run REINDEX INDEX CONCURRENTLY {name}.",
            )
    for name, is_sound, table in rows:
        if not is_sound and name not in wanted:
            yield warning(
                "W010",
                f"the index {name} of {table} is invalid and not one of relay's, as a "
                "REINDEX CONCURRENTLY that failed leaves it: every write pays for it",
                f"Run DROP INDEX CONCURRENTLY {name}.",
            )


def _check_autovacuum(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    table = Job._meta.db_table
    [(is_on, options)] = _ask(
        connection,
        """
        SELECT current_setting('autovacuum')::boolean, coalesce(reloptions, '{}')
        FROM pg_class WHERE oid = to_regclass(quote_ident(%s))
        """,
        [table],
    )
    values = dict(option.split("=", 1) for option in options)
    if values.get("autovacuum_enabled", "true") in ("false", "off", "0", "no"):
        hint = f"Run ALTER TABLE {table} RESET (autovacuum_enabled)."
        yield _no_vacuum(f"autovacuum is off for {table}", hint)
    elif not is_on:
        hint = "Set autovacuum = on in the server's configuration."
        yield _no_vacuum("autovacuum is off in the server", hint)


def _no_vacuum(text: str, hint: str) -> CheckMessage:
    return warning(
        "W010", f"{text}: dead rows pile up, and every claim reads past them", hint
    )


def _check_clock(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    skew = read_skew(connection.alias)
    if skew is not None:
        yield warning(
            "W010",
            f"the clock of the database is {abs(skew):.1f} s "
            f"{'ahead of' if skew > 0 else 'behind'} this machine's: times computed "
            "here, such as run_at, are off by as much",
            "Let both follow NTP.",
        )


def _check_rows(alias: str) -> Iterator[CheckMessage]:
    queues = {
        *known_queues(),
        *Queue.objects.using(alias).values_list("name", flat=True),
    }
    for row in Schedule.objects.using(alias).filter(enabled=True).order_by("name"):
        errors = find_errors(row)
        if errors:
            reasons = "; ".join(f"{field}: {text}" for field, text in errors.items())
            yield _bad_row(f"the schedule {row.name!r} cannot be kept: {reasons}")
        # The next migrate disables what the code no longer declares.
        elif row.source != ScheduleSource.CODE and row.task not in all_tasks():
            yield _bad_row(
                f"the schedule {row.name!r} names the task {row.task!r}, which is not "
                "registered in this process"
            )
        if row.source != ScheduleSource.CODE and row.queue not in {None, *queues}:
            yield unknown_queue(row.name, str(row.queue))


def _check_lateness(alias: str) -> Iterator[CheckMessage]:
    for row in read_lateness(using=alias):
        if row.is_late:
            yield warning(
                "W013",
                f"the schedule {row.name!r} is late by {_whole(row.late_by)}",
                "Start workers or relay_scheduler: none seems to fire schedules.",
            )
        elif row.is_unsuccessful:
            yield warning(
                "W013",
                f"no job of the schedule {row.name!r} has completed for "
                f"{_whole(row.unsuccessful_for)}; it says success_within="
                f"{row.success_within}",
                "Look at its occurrences and failed jobs in the admin.",
            )


def _check_served(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    """W003: workers run, and none of them serves the queue of a task.

    Without any worker nothing is said: nothing runs them yet, as before a deploy.
    """
    served = {name for (name,) in _ask(connection, SERVED, [])}
    tasks: dict[str, list[str]] = {}
    for name, made in all_tasks().items():
        tasks.setdefault(made.queue, []).append(name)
    for queue in sorted(tasks.keys() - served) if served else ():
        names = sorted(tasks[queue])
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield warning(
            "W003",
            f"the task {names[0]!r}{others} puts jobs into the queue {queue!r}, which "
            "none of the workers that run serves",
            "Name it in the -q of a relay_worker, as docs/howto/queues.md#"
            "different-workers-for-different-queues shows.",
        )


def _check_declared(alias: str) -> Iterator[CheckMessage]:
    for name in read_unsynced(using=alias):
        yield warning(
            "W017",
            f"the schedule {name!r} is not in the database as the code declares it",
            "Run manage.py migrate, or relay_scheduler --sync: until then the old "
            "definition holds, and a new schedule does not fire.",
        )


def _whole(span: timedelta) -> timedelta:
    return timedelta(seconds=span // timedelta(seconds=1))


def _bad_row(text: str) -> CheckMessage:
    # A warning: migrate runs these checks, and no row must stop a deploy.
    return warning("W012", text, "Correct or disable the schedule in the admin.")


def _ask(
    connection: BaseDatabaseWrapper, query: str, values: Sequence[Any]
) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        return list(cursor.fetchall())

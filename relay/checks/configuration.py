"""E001, E005, E006, W001, W002, W005, W006, W009: what the settings alone tell."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.core.checks import CheckMessage
from django.db import connections

from relay.checks.messages import error, readable_settings, warning
from relay.conf import read_settings
from relay.engine.connection import OTHER_VENDOR_REMEDY, other_vendor
from relay.exceptions import SettingsError

__all__ = [
    "check_atomic_requests",
    "check_backend",
    "check_intervals",
    "check_kept_connections",
    "check_pool_size",
    "check_pooler",
    "check_retention",
    "check_settings",
    "check_test_mode",
    "check_time_zone",
]

# What psycopg_pool takes where OPTIONS["pool"] names no size.
POOL_SIZE: Final = 4


def check_settings(**_: object) -> list[CheckMessage]:
    """E005: each key of RELAY that is unknown or holds what cannot be used."""
    hint = "The keys and what each takes stand in docs/reference/settings.md."
    return [error("E005", text, hint) for text in _find_settings_errors()]


def _find_settings_errors() -> list[str]:
    values = getattr(settings, "RELAY", {})
    parts: list[object] = [values]
    if isinstance(values, Mapping):
        # Each key by itself first, so that the first mistake does not hide others.
        parts = [{key: value} for key, value in values.items()]
    found = list(filter(None, map(_settings_error, parts)))
    whole = _settings_error(values)
    return found or ([whole] if whole else [])


def _settings_error(values: object) -> str | None:
    try:
        read_settings(values)
    except SettingsError as error:
        return str(error)
    return None


def check_backend(**_: object) -> list[CheckMessage]:
    """E001: the database of the jobs is no PostgreSQL."""
    relay = readable_settings()
    fault = None if relay is None else other_vendor(relay.database)
    return [] if fault is None else [error("E001", fault, OTHER_VENDOR_REMEDY)]


def check_intervals(**_: object) -> list[CheckMessage]:
    """E006: an idle child would look as if its loop stood still."""
    from relay.worker.keeper import RENEW_FRACTION  # here: no web process runs these
    from relay.worker.parent import STALL_SECONDS

    relay = readable_settings()
    if relay is None:
        return []
    look = min(relay.poll_interval, relay.lease * RENEW_FRACTION)
    if look < timedelta(seconds=STALL_SECONDS):
        return []
    return [
        error(
            "E006",
            f"with RELAY['POLL_INTERVAL'] {relay.poll_interval} and RELAY['LEASE'] "
            f"{relay.lease} an idle worker's loop goes round every {look}, and one "
            f"that stands still for {STALL_SECONDS:g} s is killed",
            f"Give a POLL_INTERVAL below {STALL_SECONDS:g} s; the default is 1 s.",
        )
    ]


def check_pooler(**_: object) -> list[CheckMessage]:
    """W001: what looks like a pooler in transaction mode is not named as one."""
    relay = readable_settings()
    if relay is None or relay.transaction_pooler:
        return []
    database = connections[relay.database].settings_dict
    sign = _sign_of_pooler(database)
    if sign is None:
        return []
    return [
        warning(
            "W001",
            f"DATABASES[{relay.database!r}] looks like a pooler in transaction mode "
            f"({sign}), where LISTEN, session settings and prepared statements fail",
            "Set RELAY['TRANSACTION_POOLER'] = True, which polls instead; or name the "
            "server itself; or silence this if it is no such pooler.",
        )
    ]


def _sign_of_pooler(database: Mapping[str, Any]) -> str | None:
    host = str(database.get("HOST") or "").lower()
    if database.get("DISABLE_SERVER_SIDE_CURSORS"):
        return "DISABLE_SERVER_SIDE_CURSORS is set"
    if str(database.get("PORT") or "") == "6432":
        return "PORT is 6432, PgBouncer's"
    if "pgbouncer" in host or "pooler" in host:
        return f"HOST is {host}"
    return None


def check_atomic_requests(**_: object) -> list[CheckMessage]:
    """W001: requests are transactions of databases that hold no jobs."""
    relay = readable_settings()
    if relay is None or connections.settings[relay.database]["ATOMIC_REQUESTS"]:
        return []
    return [
        warning(
            "W001",
            f"DATABASES[{alias!r}]['ATOMIC_REQUESTS'] is on, and the jobs are in "
            f"{relay.database!r}: a job may start before the request that enqueued it "
            "has committed, and stays where that is rolled back",
            "Enqueue with using(on_commit=…), as docs/howto/several-databases.md"
            "#enqueue-after-the-commit-of-another-database shows, and silence this.",
        )
        for alias in connections
        if connections.settings[alias]["ATOMIC_REQUESTS"]
    ]


def check_pool_size(**_: object) -> list[CheckMessage]:
    """W002: Django's pool of connections is smaller than a child's slots."""
    relay = readable_settings()
    if relay is None:
        return []
    pool = connections[relay.database].settings_dict.get("OPTIONS", {}).get("pool")
    if not pool:
        return []
    sizes = pool if isinstance(pool, Mapping) else {}
    size = sizes.get("max_size") or sizes.get("min_size", POOL_SIZE)
    if size >= relay.concurrency:
        return []
    return [
        warning(
            "W002",
            f"the pool of DATABASES[{relay.database!r}] gives {size} connections to a "
            f"process and RELAY['CONCURRENCY'] is {relay.concurrency}: jobs wait for "
            "one another's connections, and fail when that takes too long",
            "Raise OPTIONS['pool']['max_size'] to RELAY['CONCURRENCY'] or above.",
        )
    ]


def check_kept_connections(**_: object) -> list[CheckMessage]:
    """W002: web processes keep connections, and do not look whether they still are."""
    relay = readable_settings()
    database = connections.settings[relay.database] if relay is not None else {}
    kept = database.get("CONN_MAX_AGE", 0)
    if kept == 0 or database.get("CONN_HEALTH_CHECKS"):
        return []
    return [
        warning(
            "W002",
            f"CONN_MAX_AGE of the jobs' database is {kept}, and CONN_HEALTH_CHECKS is "
            "off: after a restart or failover of the server each kept connection fails "
            "one request, and what that was to enqueue is lost",
            "Set CONN_HEALTH_CHECKS = True, as docs/howto/workers.md#connections has "
            "it for workers.",
        )
    ]


def check_test_mode(**_: object) -> list[CheckMessage]:
    """W009: what is for tests holds where there are none."""
    relay = readable_settings()
    if relay is None or relay.test_mode in (None, "off") or settings.DEBUG:
        return []
    return [
        warning(
            "W009",
            f"RELAY['TEST_MODE'] is {relay.test_mode!r}, and DEBUG is off: an enqueue "
            "runs its job at once or tells no worker, as only tests want it",
            "Set it in the settings of tests alone, as docs/howto/test-your-jobs.md"
            "#what-an-enqueue-does shows.",
        )
    ]


def check_retention(**_: object) -> list[CheckMessage]:
    """W005: finished jobs are kept for ever."""
    relay = readable_settings()
    if relay is None:
        return []
    return [
        warning(
            "W005",
            f"RELAY[{name.upper()!r}] is None: those jobs are never deleted, and the "
            "table grows for ever",
            "Give a timedelta, however long; a single task may say None for itself.",
        )
        for name in ("retention_completed", "retention_failed", "retention_cancelled")
        if getattr(relay, name) is None
    ]


def check_time_zone(**_: object) -> list[CheckMessage]:
    """W006: USE_TZ is off."""
    if settings.USE_TZ:
        return []
    return [
        warning(
            "W006",
            "USE_TZ is False: the times that Django reads of jobs are naive, in the "
            "zone of TIME_ZONE, and ambiguous when its clocks are set back",
            "Set USE_TZ = True.",
        )
    ]

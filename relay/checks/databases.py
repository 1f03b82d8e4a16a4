"""W014 and W015: what the project's routers and aliases do to relay's rows."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage
from django.db import DEFAULT_DB_ALIAS, connections, router

from relay.checks.messages import readable_settings, warning
from relay.models import Job
from relay.tasks import all_tasks

__all__ = ["check_autocommit", "check_routers"]

_ROUTER = (
    "Put 'relay.routers.RelayRouter' first in DATABASE_ROUTERS, or have your router "
    "do as it does."
)


def check_routers(**_: object) -> list[CheckMessage]:
    """W014: routers lead relay's models to another database than relay's own."""
    relay = readable_settings()
    if relay is None:
        return []
    return list(_check_routers(relay.database))


def _check_routers(alias: str) -> Iterator[CheckMessage]:
    label = Job._meta.app_label
    setting = f"RELAY['DATABASE'] is {alias!r}"
    for act, found in (
        ("Reads", router.db_for_read(Job)),
        ("Writes", router.db_for_write(Job)),
    ):
        if found != alias:
            yield warning(
                "W014",
                f"{act} of relay's models go to {found!r} by the routers, and "
                f"{setting}: a query of yours such as Job.objects.filter(...) would "
                "not meet the jobs as they are; relay itself asks its own database",
                _ROUTER,
            )
    if not router.allow_migrate(alias, label):
        yield warning(
            "W014",
            f"the routers keep relay's migrations from {alias!r}, and {setting}: its "
            "tables are never made",
            _ROUTER,
        )
    # What migrate works on where it is not told.
    if alias != DEFAULT_DB_ALIAS and router.allow_migrate(DEFAULT_DB_ALIAS, label):
        yield warning(
            "W014",
            f"migrate makes relay's tables in {DEFAULT_DB_ALIAS!r} too, and {setting}: "
            "nothing ever reads them there",
            _ROUTER,
        )


def check_autocommit(**_: object) -> list[CheckMessage]:
    """W015: a transactional task on an alias whose transactions Django does not end."""
    relay = readable_settings()
    if relay is None or connections[relay.database].settings_dict["AUTOCOMMIT"]:
        return []
    names = sorted(name for name, made in all_tasks().items() if made.transactional)
    if not names:
        return []
    return [
        warning(
            "W015",
            f"DATABASES[{relay.database!r}]['AUTOCOMMIT'] is False, where no "
            f"transactional task can run: {', '.join(names)}",
            "Set it to True, Django's default.",
        )
    ]

"""What the commands share: log lines, and reasons in place of tracebacks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connections
from psycopg import errors

from relay.conf import get_settings
from relay.engine.connection import is_outage
from relay.exceptions import SettingsError

__all__ = ["ExtraFormatter", "RelayCommand", "check_vendor", "explained", "show_logs"]

_ALWAYS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class RelayCommand(BaseCommand):
    """A command that reads settings.RELAY."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the command, unless settings.RELAY cannot be used.

        Raises:
            CommandError: it cannot; in one line, before the system checks tell more.
        """
        try:
            get_settings()
        except SettingsError as error:
            raise CommandError(str(error)) from error
        return super().execute(*args, **options)


class ExtraFormatter(logging.Formatter):
    """Adds each value of extra as name=value."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        values = (
            f" {name}={value}"
            for name, value in vars(record).items()
            if name not in _ALWAYS
        )
        return super().formatMessage(record) + "".join(values)


def show_logs(verbosity: int) -> None:
    """Write relay's log to stderr where LOGGING leaves it without a handler.

    Without this, Python writes warnings alone, and of those the bare message: no job,
    no reason. A project that handles the log itself is left as it is.

    Args:
        verbosity: of the command: 1 shows warnings, 2 every job and every fire.
    """
    names = [n for n in logging.root.manager.loggerDict if n.startswith("relay.")]
    if any(logging.getLogger(name).hasHandlers() for name in ["relay", *names]):
        return
    handler = logging.StreamHandler()
    handler.setFormatter(ExtraFormatter("{asctime} {levelname} {message}", style="{"))
    logger = logging.getLogger("relay")
    logger.addHandler(handler)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO if verbosity > 1 else logging.WARNING)


def check_vendor(alias: str) -> None:
    """Refuse a database that is no PostgreSQL.

    Raises:
        CommandError: it is another.
    """
    vendor = connections[alias].vendor
    if vendor != "postgresql":
        raise CommandError(
            f"DATABASES[{alias!r}] is {vendor}: relay needs PostgreSQL 15 or newer; "
            "name an alias that is, as RELAY['DATABASE']"
        )


@contextmanager
def explained(alias: str) -> Iterator[None]:
    """Give the reason and the remedy for what the database refuses.

    Raises:
        CommandError: relay's tables are missing, or the database is away.
    """
    try:
        yield
    except DatabaseError as error:
        if isinstance(error.__cause__, errors.UndefinedTable | errors.UndefinedColumn):
            raise CommandError(
                f"relay's tables in DATABASES[{alias!r}] are missing or of an older "
                f"release: run manage.py migrate ({str(error).splitlines()[0]})"
            ) from error
        if is_outage(error):
            raise CommandError(
                f"the database of DATABASES[{alias!r}] cannot be used: {error}"
            ) from error
        raise

"""What the commands ask of the database, with reasons in place of tracebacks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final, TypeVar

from django.core.management.base import CommandError
from django.db import DatabaseError, connections
from psycopg import errors

from relay.engine import connection
from relay.engine.connection import is_outage
from relay.exceptions import SettingsError
from relay.retry import Backoff

__all__ = ["check_vendor", "explained", "when_it_answers"]

logger = logging.getLogger("relay.worker")

T = TypeVar("T")

WAIT_FOR_DATABASE: Final = Backoff(
    base=timedelta(seconds=0.5), cap=timedelta(seconds=4)
)
REPORT_SECONDS: Final = 60.0


def check_vendor(alias: str) -> None:
    """Refuse a database that is no PostgreSQL.

    Raises:
        CommandError: it is another.
    """
    try:
        connection.check_vendor(alias)
    except SettingsError as error:
        raise CommandError(str(error)) from None


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


def when_it_answers(question: Callable[[str], T], alias: str) -> T:
    """Ask a database; where it is away, wait for it as a worker does."""
    reported_at = float("-inf")
    failures = 0
    while True:
        try:
            return question(alias)
        except DatabaseError as error:
            if not is_outage(error):
                raise
            if time.monotonic() - reported_at >= REPORT_SECONDS:
                reported_at = time.monotonic()
                logger.warning("the database is away: waiting for it: %s", error)
        finally:
            connections[alias].close()
        failures += 1
        time.sleep(WAIT_FOR_DATABASE.delay(failures).total_seconds())

"""The checks that a worker or scheduler makes as it starts, beside its work."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from django.core.checks import CheckMessage
from django.db import DatabaseError, connections

from relay.checks.configuration import check_test_mode
from relay.checks.database import find_lasting
from relay.exceptions import ReadTimeout
from relay.queries.reading import bounded_read

__all__ = ["log_findings"]

logger: Final = logging.getLogger("relay.checks")


def log_findings(alias: str) -> None:
    """Log as warnings what the checks find wrong in the database of the jobs.

    It is for a thread of its own: it takes one connection, of no pool and closed at
    the end, and statements end after 2 s. What goes wrong meanwhile is nobody's
    failure: the worker itself tells of a database that is away.
    """
    # A pool of Django's would open more, and keep them.
    own = connections[alias].copy()
    own.settings_dict["OPTIONS"].pop("pool", None)
    connections[alias] = own
    try:
        for found in _find(alias):
            if found.id and not found.is_silenced():
                logger.warning(
                    "check: %s",
                    found.msg,
                    extra={
                        "event": "checks.found",
                        "check": found.id,
                        "hint": found.hint,
                    },
                )
    except (DatabaseError, ReadTimeout) as error:
        logger.info(
            "checks could not be made: %s", error, extra={"event": "checks.not_made"}
        )
    finally:
        own.close()


def _find(alias: str) -> Iterator[CheckMessage]:
    yield from check_test_mode()
    with bounded_read(alias):
        yield from find_lasting(connections[alias])

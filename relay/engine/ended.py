"""Who waits for the end of a job, and that it has come: hints between processes.

A caller that waits says so (NOTIFY relay_awaited); keepers pass it to their children,
and the child that writes the end of such a job says so after the commit (NOTIFY
relay_ended). A finish that nobody waits for costs nothing. Source:
docs/explanation/waiting.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

import psycopg

__all__ = [
    "AWAITED_CHANNEL",
    "ENDED_CHANNEL",
    "notify_awaited",
    "notify_ended",
    "parse_ids",
]

AWAITED_CHANNEL: Final = "relay_awaited"
ENDED_CHANNEL: Final = "relay_ended"
# A payload is at most 8,000 bytes, and an id takes 33 of them.
_MOST: Final = 200

_NOTIFY: Final = (
    "SELECT pg_notify(%(channel)s, payload) "
    "FROM unnest(%(payloads)s::text[]) AS payload"
)


def notify_awaited(connection: psycopg.Connection[object], ids: Iterable[UUID]) -> None:
    """Say that somebody waits for the end of these jobs.

    Raises:
        psycopg.Error: nothing was sent.

    Transaction: its own.
    """
    _notify(connection, AWAITED_CHANNEL, ids)


def notify_ended(connection: psycopg.Connection[object], ids: Iterable[UUID]) -> None:
    """Say that attempts of these jobs have ended, after the commit that wrote it.

    Raises:
        psycopg.Error: nothing was sent.

    Transaction: its own; must not be that of the finish, which would make all commits
    of the database wait for one another.
    """
    _notify(connection, ENDED_CHANNEL, ids)


def _notify(
    connection: psycopg.Connection[object], channel: str, ids: Iterable[UUID]
) -> None:
    values = {"channel": channel, "payloads": list(_payloads(list(ids)))}
    connection.execute(_NOTIFY, values)


def _payloads(ids: list[UUID]) -> Iterator[str]:
    for first in range(0, len(ids), _MOST):
        yield " ".join(job_id.hex for job_id in ids[first : first + _MOST])


def parse_ids(text: str) -> list[UUID]:
    """Return the ids of a payload; none if it is no list of ids."""
    try:
        return [UUID(hex=each) for each in text.split()]
    except ValueError:
        return []

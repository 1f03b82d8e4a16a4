"""For which jobs somebody waits, as a child knows it, and telling them of an end."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Final
from uuid import UUID

import psycopg

from relay.engine.connection import EngineConnection
from relay.engine.ended import notify_ended, parse_ids

__all__ = ["Waiters", "write_awaited"]

logger = logging.getLogger("relay.worker")

_HEAD: Final = b"await\n"
# Who waits says so again sooner than this.
REMEMBERED_SECONDS: Final = 10.0
# What is beyond that is found by those who wait, by looking.
MOST_AWAITED: Final = 20_000


def write_awaited(payload: bytes) -> bytes:
    """Return the datagram that passes a payload of relay_awaited to a child."""
    return _HEAD + payload


class Waiters:
    """The jobs that are awaited somewhere, whoever will run them, and their ends here.

    Attributes:
        is_awaited: whether there are any: where not, a finish has nothing to do here.
    """

    def __init__(self) -> None:
        # In the order of their times: one that is named again goes to the end.
        self._awaited: dict[UUID, float] = {}
        self._ended: set[UUID] = set()

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for any job, as far as this child knows."""
        return bool(self._awaited)

    def read(self, datagram: bytes) -> bool:
        """Take in a datagram from the keeper; False if it is of another kind."""
        if not datagram.startswith(_HEAD):
            return False
        now = time.monotonic()
        self._forget(now)
        for job_id in parse_ids(datagram[len(_HEAD) :].decode("ascii", "replace")):
            self._awaited.pop(job_id, None)
            if len(self._awaited) < MOST_AWAITED:
                self._awaited[job_id] = now
        return True

    def _forget(self, now: float) -> None:
        while self._awaited:
            oldest = next(iter(self._awaited))
            if now - self._awaited[oldest] < REMEMBERED_SECONDS:
                return
            del self._awaited[oldest]

    def note(self, ids: Iterable[UUID]) -> None:
        """Take in whose ends are in the database now."""
        self._ended.update(self._awaited.keys() & set(ids))

    def tell(self, connection: EngineConnection) -> None:
        """Tell those who wait; where that fails they find out by looking.

        Raises:
            psycopg.Error: the connection is lost.
        """
        self._forget(time.monotonic())
        if not self._ended:
            return
        ended, self._ended = self._ended, set()
        try:
            notify_ended(connection, ended)
        except psycopg.Error as error:
            if connection.closed:
                raise
            logger.warning(
                "those who wait for jobs could not be told of their ends",
                extra={"event": "worker.waiters_untold", "error": str(error)},
            )

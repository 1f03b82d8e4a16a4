"""Wake-ups, heard by each child over the connection with which it claims.

Through another process each would be a millisecond's sixth later.
Source: docs/explanation/wakeups.md, "Heard".
"""

from __future__ import annotations

from collections.abc import Collection

import psycopg

from relay import counts
from relay.conf import OWN_QUEUE, get_settings
from relay.engine.claim import Marks
from relay.engine.connection import EngineConnection
from relay.engine.wakeup import CHANNEL, parse
from relay.worker.pace import Sweeps

__all__ = ["Hearing"]


class Hearing:
    """What one child has heard and not acted on.

    Args:
        queues: those that it serves.
    """

    def __init__(self, queues: Collection[str]) -> None:
        settings = get_settings()
        self._is_wanted = settings.notify and not settings.transaction_pooler
        self._queues = frozenset((OWN_QUEUE, *queues))
        self._connection: EngineConnection | None = None
        self._hints: list[tuple[str, int, int]] = []

    @property
    def has_news(self) -> bool:
        """Whether take() would tell something."""
        return bool(self._hints)

    @property
    def readers(self) -> list[EngineConnection]:
        """What to wait for; call read() when it can be read."""
        connection = self._connection
        return [] if connection is None or connection.closed else [connection]

    def listen(self, connection: EngineConnection) -> None:
        """Listen over a new connection, in place of the one before.

        What was sent in between is lost: look once.

        Raises:
            psycopg.Error: the connection was lost.
        """
        self.lose()
        if self._is_wanted:
            connection.add_notify_handler(self._hear)
            connection.execute(f"LISTEN {CHANNEL}".encode(), prepare=False)
            self._connection = connection

    def lose(self) -> None:
        """Forget the connection: it is closed."""
        self._connection = None

    def read(self) -> None:
        """Take in what has arrived; between two exchanges.

        Raises:
            psycopg.Error: the connection was lost.
        """
        if (connection := self._connection) is not None:
            connection.pgconn.consume_input()
            while (notification := connection.pgconn.notifies()) is not None:
                self._note(notification.extra.decode("utf-8", "replace"))

    def take(self, marks: Marks, sweeps: Sweeps) -> bool:
        """Lower the marks to what was heard of; tell whether anything was.

        relay's own jobs are looked for with a sweep: the next claim is one.
        """
        hints, self._hints = self._hints, []
        for hint in hints:
            if hint[0] == OWN_QUEUE:
                sweeps.hasten()
            else:
                marks.hint(*hint)
        return bool(hints)

    def _hear(self, notification: psycopg.Notify) -> None:
        # Called by psycopg in the middle of an exchange, when no mark may move.
        self._note(notification.payload)

    def _note(self, text: str) -> None:
        hint = parse(text)
        if hint is not None and hint[0] in self._queues:
            self._hints.append(hint)
            counts.add("relay_notify_total", "received")

"""What others announce to a worker, heard by its keeper; its children hear wake-ups.

A hint only: whatever is lost here is found by looking.
"""

from __future__ import annotations

import logging
import random
import socket
from collections.abc import Callable, Sequence

import psycopg

from relay.conf import get_settings
from relay.engine.connection import EngineConnection, connect
from relay.engine.ended import AWAITED_CHANNEL
from relay.engine.wakeup import CANCEL_CHANNEL
from relay.worker.waiters import write_awaited

__all__ = ["Listener"]

logger = logging.getLogger("relay.worker")


class Listener:
    """Requests to stop, and waits: LISTEN over a connection of its own.

    Args:
        children: one datagram socket a child.
        on_cancel: called when somebody has asked for some job to be stopped.
    """

    def __init__(
        self,
        children: Sequence[socket.socket],
        *,
        on_cancel: Callable[[], None],
    ) -> None:
        settings = get_settings()
        self._database = settings.database
        self._sockets = children
        self._on_cancel = on_cancel
        self._is_wanted = settings.notify and not settings.transaction_pooler
        self._was_listening = False
        self._listen_at = 0.0
        self.connection: EngineConnection | None = None

    @property
    def due_at(self) -> float | None:
        """When listen() will try again; None while it listens, or must not."""
        is_due = self._is_wanted and self.connection is None
        return self._listen_at if is_due else None

    def listen(self, now: float) -> None:
        """See to it that the connection is there, tried about once a second."""
        if self.due_at is None or now < self._listen_at:
            return
        spread = random.uniform(0.5, 1.5)  # noqa: S311 - only spreads load
        self._listen_at = now + spread
        listener: EngineConnection | None = None
        try:
            listener = connect(self._database, role="listen", name="listen")
            for channel in (CANCEL_CHANNEL, AWAITED_CHANNEL):
                listener.execute(f"LISTEN {channel}".encode())
        except psycopg.Error:
            if listener is not None:
                listener.close()
            return  # the work connection reports the outage; polling goes on
        self.connection = listener
        if self._was_listening:
            logger.info("listening again", extra={"event": "worker.listening"})
        self._was_listening = True

    def read(self) -> None:
        """Take in what has arrived and pass it on."""
        if (listener := self.connection) is None:
            return
        try:
            listener.pgconn.consume_input()
            while (notification := listener.pgconn.notifies()) is not None:
                if notification.relname == CANCEL_CHANNEL.encode():
                    self._on_cancel()
                    continue
                self.nudge(write_awaited(notification.extra))
        except psycopg.Error as error:
            listener.close()
            self.connection = None
            logger.warning(
                "LISTEN lost: looking for requests to stop until it is back",
                extra={"event": "worker.listen_lost", "error": str(error)},
            )

    def nudge(self, text: bytes) -> None:
        """Wake every child, with what it is to know."""
        for child in self._sockets:
            try:
                child.send(text)
            except OSError:
                continue  # it has unread ones, or it is gone

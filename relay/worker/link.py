"""One connection to the database that is made anew after every trouble."""

from __future__ import annotations

import logging
import random
import time
from typing import Any, Final

import psycopg

from relay.conf import get_settings
from relay.engine.connection import EngineConnection, Role, connect

__all__ = ["LONGEST_BACKOFF_SECONDS", "Link"]

logger = logging.getLogger("relay.worker")

# Reconnecting: from the first to the longest wait, doubled and jittered.
FIRST_BACKOFF_SECONDS: Final = 0.05
LONGEST_BACKOFF_SECONDS: Final = 2.0
# Trouble is reported this often.
REPORT_SECONDS: Final = 60.0


class Link:
    """Connects, and after trouble again, a little later each time.

    No job is ever charged for what happens here.

    Args:
        role, name: what the connection is for.
        trouble: what the log says when it is lost.
        event: the log's event.
        fields: what else the log says.
        longest_seconds: the longest wait before it is tried again.

    Attributes:
        connection: None until connected() is called, and after lose().
        retry_at: when to call connected() again, by the monotonic clock.
    """

    def __init__(
        self,
        *,
        role: Role,
        name: str,
        trouble: str,
        event: str,
        fields: dict[str, Any] | None = None,
        longest_seconds: float = LONGEST_BACKOFF_SECONDS,
    ) -> None:
        self._role = role
        self._name = name
        self._trouble = trouble
        self._fields = {"event": event, **(fields or {})}
        self._longest_seconds = longest_seconds
        self._backoff_seconds = FIRST_BACKOFF_SECONDS
        self._reported_at = float("-inf")
        self._failures = 0
        self.connection: EngineConnection | None = None
        self.retry_at = 0.0

    def connected(self) -> EngineConnection:
        """Return the connection, made now if there is none.

        Raises:
            psycopg.Error: it cannot be made; call lose() with it.
        """
        if self.connection is None:
            alias = get_settings().database
            self.connection = connect(alias, role=self._role, name=self._name)
        return self.connection

    def is_sound(self) -> None:
        """Say that a write went through: only that shows that the server takes them."""
        self._backoff_seconds = FIRST_BACKOFF_SECONDS
        self._failures = 0

    def lose(self, error: psycopg.Error) -> None:
        """Drop the connection; retry_at says when to try again."""
        self.close()
        spread = random.uniform(0.5, 1)  # noqa: S311 - only spreads load
        self.retry_at = time.monotonic() + self._backoff_seconds * spread
        self._backoff_seconds = min(2 * self._backoff_seconds, self._longest_seconds)
        self._failures += 1
        self.report(self._trouble, error)

    def report(self, message: str, error: psycopg.Error) -> None:
        """Log trouble, but not more often than once a minute."""
        now = time.monotonic()
        if now - self._reported_at >= REPORT_SECONDS:
            self._reported_at = now
            known = {"failures": self._failures, "error": str(error)}
            backoff_s = max(0.0, self.retry_at - now)
            fields = {**self._fields, **known, "backoff_s": backoff_s}
            logger.warning(message, extra=fields)

    def close(self) -> None:
        """Close the connection if there is one."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

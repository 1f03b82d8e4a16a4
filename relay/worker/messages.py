"""What the parent and the keeper tell each other: one JSON object a datagram."""

from __future__ import annotations

import json
import socket
from collections import deque
from typing import Any, Final

__all__ = ["Channel", "datagrams"]

_LARGEST_BYTES: Final = 1 << 20


def datagrams() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a datagram socket pair. Neither blocks."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for end in pair:
        end.setblocking(False)
    return pair


class Channel:
    """One end of a datagram socket pair. Nothing blocks, nothing sent is dropped.

    What the other end has no room for waits here for the next flush().
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST_BYTES)
        self._end = end
        self._outbox: deque[bytes] = deque()

    def fileno(self) -> int:
        """Return the descriptor, for select()."""
        return self._end.fileno()

    def send(self, **message: Any) -> None:
        """Send a message, or keep it for flush()."""
        self._outbox.append(json.dumps(message).encode())
        self.flush()

    def flush(self) -> None:
        """Send what has been waiting."""
        while self._outbox:
            try:
                self._end.send(self._outbox[0])
            except OSError:
                return  # no room; macOS has another name for it than Linux
            self._outbox.popleft()

    def forget(self) -> None:
        """Drop what waits: the process it was meant for is gone."""
        self._outbox.clear()

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages that have arrived."""
        messages: list[dict[str, Any]] = []
        try:
            while True:
                messages.append(json.loads(self._end.recv(_LARGEST_BYTES)))
        except (BlockingIOError, ConnectionError):
            return messages

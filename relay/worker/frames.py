"""What a child and its isolated processes tell each other: plain data, no pickle.

A frame is its length and one JSON document. A process whose memory a handler has
corrupted can send nonsense, but nothing that would run here.
"""

from __future__ import annotations

import json
import re
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Final, get_args
from uuid import UUID

from relay.engine.claim import ClaimedJob
from relay.engine.finish import Outcome
from relay.progress import Progress

__all__ = [
    "Answer",
    "Attempt",
    "Frames",
    "pack_answer",
    "pack_attempt",
    "pack_progress",
    "unpack",
    "unpack_attempt",
]

_HEAD: Final = struct.Struct("=Q")
_CHUNK_BYTES: Final = 1 << 18
# It is stored: nothing that PostgreSQL refuses may come from a process gone astray.
_SPAN: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What an isolated process is to do.

    Attributes:
        memory_limit: bytes the handler may take, or None.
    """

    job: ClaimedJob
    worker_id: UUID
    memory_limit: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of it.

    Attributes:
        is_worn: whether the process is to be replaced before the next attempt.
        log: what is to be kept of what it has logged, or None.
        span: of the attempt, where somebody traces; see relay.traces.
    """

    outcome: Outcome
    is_worn: bool
    log: str | None = None
    span: str | None = None


def pack_attempt(attempt: Attempt) -> bytes:
    """Return the frame of an attempt."""
    return _pack(
        [
            [_plain(value) for value in attempt.job],
            str(attempt.worker_id),
            attempt.memory_limit,
        ]
    )


def unpack_attempt(document: bytes) -> Attempt:
    """Return the attempt that a frame holds."""
    values, worker_id, memory_limit = json.loads(document)
    return Attempt(
        job=ClaimedJob._make(map(_value, values)),
        worker_id=UUID(worker_id),
        memory_limit=memory_limit,
    )


def pack_answer(answer: Answer) -> bytes:
    """Return the frame of an answer."""
    outcome = answer.outcome
    values = {
        field.name: _plain(getattr(outcome, field.name)) for field in fields(outcome)
    }
    rest = (answer.is_worn, answer.log, answer.span)
    return _pack([type(outcome).__name__, values, *rest])


def pack_progress(progress: Progress) -> bytes:
    """Return the frame of what a handler tells before its answer."""
    return _pack(
        [
            Progress.__name__,
            {field.name: getattr(progress, field.name) for field in fields(progress)},
        ]
    )


def unpack(document: bytes) -> Answer | Progress:
    """Return the progress or the answer that a frame holds."""
    name, values, *rest = json.loads(document)
    if name == Progress.__name__:
        return Progress(**values)
    is_worn, log, span = rest
    kind = {kind.__name__: kind for kind in get_args(Outcome)}[name]
    outcome: Outcome = kind(**{name: _value(pair) for name, pair in values.items()})
    is_span = isinstance(span, str) and _SPAN.fullmatch(span) is not None
    return Answer(
        outcome=outcome, is_worn=is_worn, log=log, span=span if is_span else None
    )


def _plain(value: Any) -> list[Any]:
    """Return a field's value and of which type it is, where JSON has it not."""
    if isinstance(value, UUID):
        return [str(value), "uuid"]
    if isinstance(value, datetime):
        return [value.isoformat(), "datetime"]
    if isinstance(value, timedelta):
        return [value // timedelta(microseconds=1), "timedelta"]
    return [value]


def _value(pair: list[Any]) -> Any:
    return pair[0] if len(pair) == 1 else _TYPES[pair[1]](pair[0])


_TYPES: Final[dict[str, Callable[[Any], Any]]] = {
    "uuid": UUID,
    "datetime": datetime.fromisoformat,
    "timedelta": lambda value: timedelta(microseconds=value),
}


def _pack(document: Any) -> bytes:
    text = json.dumps(document, separators=(",", ":")).encode()
    return _HEAD.pack(len(text)) + text


class Frames:
    """Reads frames from a stream, however they are cut."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._bytes = bytearray()

    def read(self) -> bytes:
        """Take in what has arrived until a frame is whole, and return it.

        On a blocking socket it waits for one.

        Raises:
            BlockingIOError: the socket does not block, and there is no more yet.
            EOFError: the other end is gone.
        """
        while (frame := self.take()) is None:
            chunk = self._end.recv(_CHUNK_BYTES)
            if not chunk:
                raise EOFError
            self._bytes += chunk
        return frame

    def take(self) -> bytes | None:
        """Return the next frame if it has arrived whole, without asking the socket.

        To be called before anybody waits for the socket: what has been read with an
        earlier frame does not make it readable.
        """
        if len(self._bytes) < _HEAD.size:
            return None
        end = _HEAD.size + _HEAD.unpack_from(self._bytes)[0]
        if len(self._bytes) < end:
            return None
        frame = bytes(self._bytes[_HEAD.size : end])
        del self._bytes[:end]
        return frame

"""How the keeper tells a child which of its jobs are to stop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from uuid import UUID

__all__ = ["read_cancels", "write_cancels"]

_HEAD: Final = b"cancel\n"
# A line is at most 48 bytes: a datagram stays well below every system's limit.
_MOST: Final = 500


def write_cancels(jobs: Sequence[tuple[UUID, int]]) -> Iterator[bytes]:
    """Return the datagrams that name these jobs and their attempts."""
    for first in range(0, len(jobs), _MOST):
        lines = [f"{job} {attempt}" for job, attempt in jobs[first : first + _MOST]]
        yield _HEAD + "\n".join(lines).encode()


def read_cancels(datagram: bytes) -> list[tuple[UUID, int]]:
    """Return the jobs that a datagram names; none if it is a wake-up."""
    if not datagram.startswith(_HEAD):
        return []
    pairs = (line.split() for line in datagram[len(_HEAD) :].decode().splitlines())
    return [(UUID(job), int(attempt)) for job, attempt in pairs]

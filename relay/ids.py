"""UUIDv7 identifiers, made by the client; and ids as people and clients write them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from uuid import UUID

__all__ = ["read_id", "uuid7", "uuid7s"]


def uuid7() -> UUID:
    """Return a new UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, 74 random bits.

    Ids order lists, never execution: two made in one millisecond are in no order.
    """
    return _made(time.time_ns(), os.urandom(10))


def uuid7s(count: int) -> Iterator[UUID]:
    """Make so many UUIDv7 as they are asked for, all with the time of the first."""
    now, random = time.time_ns(), os.urandom(10 * count)
    for start in range(0, 10 * count, 10):
        yield _made(now, random[start : start + 10])


def _made(now_ns: int, random: bytes) -> UUID:
    milliseconds, bits = now_ns // 1_000_000, int.from_bytes(random, "big")
    return UUID(
        int=(milliseconds & 0xFFFF_FFFF_FFFF) << 80
        | 0x7000 << 64
        | (bits >> 68) << 64
        | 0b10 << 62
        | bits & 0x3FFF_FFFF_FFFF_FFFF
    )


def read_id(text: UUID | str) -> UUID | None:
    """Return the id that a text is, of any version; None if it is none."""
    try:
        return text if isinstance(text, UUID) else UUID(text)
    except ValueError:
        return None

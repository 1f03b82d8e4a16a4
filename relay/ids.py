"""UUIDv7 identifiers, made by the client."""

from __future__ import annotations

import os
import time
from uuid import UUID

__all__ = ["uuid7"]


def uuid7() -> UUID:
    """Return a new UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, 74 random bits.

    Ids order lists, never execution: two made in one millisecond are in no order.
    """
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    return UUID(
        int=(milliseconds & 0xFFFF_FFFF_FFFF) << 80
        | 0x7000 << 64
        | (random >> 68) << 64
        | 0b10 << 62
        | random & 0x3FFF_FFFF_FFFF_FFFF
    )

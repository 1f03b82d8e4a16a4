"""How much of the full size a test runs at: RELAY_TEST_SCALE, or --full for all."""

from __future__ import annotations

import os

__all__ = ["scale", "scaled"]

DEFAULT_SCALE = 10


def scale() -> int:
    """Return the divisor of full sizes: 10 unless RELAY_TEST_SCALE says otherwise."""
    written = os.environ.get("RELAY_TEST_SCALE", str(DEFAULT_SCALE))
    if not written.isascii() or not written.isdigit() or int(written) < 1:
        raise ValueError(
            f"RELAY_TEST_SCALE is {written!r}: give a whole number of at least 1"
        )
    return int(written)


def scaled(full: int, *, least: int = 1) -> int:
    """Return a full size divided by the scale, but at least the least."""
    return max(least, full // scale())

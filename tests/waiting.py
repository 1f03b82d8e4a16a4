"""The one place where tests wait: asked again and again, for so long at most."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["WAIT_SECONDS", "until"]

LOOK_SECONDS = 0.01
# For a machine at its slowest: only a test that fails waits so long. Where tests are
# meant to fail, as on the mutants of tests/chaos, it may be less.
WAIT_SECONDS = float(os.environ.get("RELAY_TEST_WAIT_SECONDS", "60"))
T = TypeVar("T")


def until(
    condition: Callable[[], T | None],
    *,
    seconds: float = WAIT_SECONDS,
    what: str | None = None,
) -> T:
    """Return what the condition returns once that is true, asked again and again."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            name = what or getattr(condition, "__name__", "it")
            raise AssertionError(f"did not come true within {seconds} s: {name}")
        time.sleep(LOOK_SECONDS)
    return value

"""python -m tests.chaos.timing.skewed FILE MODULE ...: run it by a clock that is wrong.

The file says by how much, in seconds; it is read again every second, so that the clock
can be made to step. The monotonic clock stays right.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

__all__ = ["LEASE_SECONDS", "library"]

# Of workers that run so: one that a busy machine keeps.
LEASE_SECONDS: Final = 6.0


def library() -> Path | None:
    """Return Debian's libfaketime, if it is installed."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


def main() -> None:
    file, *arguments = sys.argv[1:]
    os.environ |= {
        "LD_PRELOAD": str(library()),
        "FAKETIME_TIMESTAMP_FILE": file,
        "FAKETIME_CACHE_DURATION": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    os.execv(sys.executable, [sys.executable, "-m", *arguments])


if __name__ == "__main__":
    main()

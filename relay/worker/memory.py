"""How much memory a process takes."""

from __future__ import annotations

import os
import resource

__all__ = ["resident_bytes"]


def resident_bytes() -> int:
    """Return this process's resident memory."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        # Where there is no /proc the peak has to do; macOS counts it in bytes.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

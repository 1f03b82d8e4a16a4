"""Starting threads, also where the system has none left to give.

A limit on threads is often a container's, and passes: what needs one tries again, and
no job that runs meanwhile ends for it.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

__all__ = ["begin"]

logger = logging.getLogger("relay.worker")

# That none can be started is reported this often by one process.
REPORT_SECONDS: Final = 60.0

_reported_at = float("-inf")


def begin(thread: threading.Thread) -> bool:
    """Start a thread; False where there is none left: then throw this one away."""
    try:
        thread.start()
    except RuntimeError as error:
        _report(error)
        return False
    return True


def _report(error: RuntimeError) -> None:
    global _reported_at
    now = time.monotonic()
    if now - _reported_at >= REPORT_SECONDS:
        _reported_at = now
        logger.error(
            "no thread could be started: what waits for one is handed back",
            extra={"event": "worker.start_failed", "error": str(error)},
        )

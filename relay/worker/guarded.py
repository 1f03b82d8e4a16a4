"""Where no exception from outside may arrive: it would cost the process a lock.

Python's own logging, conditions and imports take locks in functions of Python: an
exception between such a lock and the try that releases it leaves it taken for ever, and
with it every thread that logs. A handler that logs a lot is found there most of the
time, as it waits for the lock there. Source: docs/explanation/cancelling.md.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from types import CodeType
from typing import Final

from relay.exceptions import SoftTimeout

__all__ = ["is_guarded", "let_through_logging"]

_PLACES: Final = (
    (logging, "_acquireLock"),  # until Python 3.13
    (logging, "_releaseLock"),
    (logging.Manager, "getLogger"),
    (logging.Handler, "acquire"),
    (logging.Handler, "release"),
    (logging.Handler, "handle"),
    (threading.Condition, "__enter__"),
    (threading.Condition, "__exit__"),
    (threading.Condition, "_acquire_restore"),
    (threading.Condition, "_release_save"),
)
_CODES: Final[frozenset[CodeType]] = frozenset(
    getattr(owner, name).__code__ for owner, name in _PLACES if hasattr(owner, name)
)
_IMPORTS: Final = "<frozen importlib._bootstrap>"


def is_guarded(thread: int) -> bool:
    """Tell whether a thread is where no exception may arrive.

    What it finds holds until the caller lets another thread run.
    """
    frame = sys._current_frames().get(thread)
    code = None if frame is None else frame.f_code
    return code is not None and (code in _CODES or code.co_filename == _IMPORTS)


@functools.cache
def let_through_logging() -> None:
    """Let a soft timeout pass that arrives while a record is written.

    logging's handlers keep every Exception to themselves, and the warning, which is
    given once, would be lost. The others are no Exceptions.
    """
    keep = logging.Handler.handleError

    @functools.wraps(keep)
    def handle(self: logging.Handler, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, SoftTimeout):
            raise error
        keep(self, record)

    logging.Handler.handleError = handle  # type: ignore[method-assign] # that is the point

"""Where no exception from outside may arrive: it would cost the process a lock.

Python's own logging, conditions and imports take and release locks in functions of
Python: an exception between such a lock and the try that releases it leaves it taken
for ever, and with it every thread that logs. A handler that logs a lot is found there
most of the time, as it waits for the lock there.
Source: docs/explanation/cancelling.md.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import sys
import threading
from itertools import compress, starmap
from operator import attrgetter
from types import CodeType
from typing import Any, Final

from relay.exceptions import SoftTimeout

__all__ = [
    "let_through_logging",
    "make_conditions_whole",
    "raise_unless_guarded",
    "take_back",
]

_PLACES: Final = (
    (logging, "_acquireLock"),  # until Python 3.13
    (logging, "_releaseLock"),
    (logging.Manager, "getLogger"),
    (logging.Handler, "acquire"),
    (logging.Handler, "release"),
    (logging.Handler, "handle"),
    (threading.Condition, "_acquire_restore"),
    (threading.Condition, "_release_save"),
)
_CODES: Final[frozenset[CodeType]] = frozenset(
    getattr(owner, name).__code__ for owner, name in _PLACES if hasattr(owner, name)
)
_IMPORTS: Final = "<frozen importlib._bootstrap>"
_GUARDED: Final[frozenset[object]] = _CODES | {_IMPORTS}
_code_and_file = attrgetter("f_code", "f_code.co_filename")

_set_async_exc = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_async_exc.argtypes = [ctypes.c_ulong, ctypes.py_object]
_set_async_exc.restype = ctypes.c_int
# In place of an exception: takes one back that has not arrived yet.
_NONE: Final[Any] = ctypes.py_object()


def raise_unless_guarded(thread: int, error: type[BaseException]) -> bool:
    """Raise an exception in a running thread, or tell that none may arrive there now.

    One that has not arrived yet is replaced.
    """
    # No bytecode is run between the look and the call, so no other thread runs there:
    # after a look on its own this thread may lose its turn, and what it saw is past.
    frames = map(dict.__getitem__, starmap(sys._current_frames, [()]), [thread])
    is_free = map(_GUARDED.isdisjoint, map(_code_and_file, frames))
    return any(map(_set_async_exc, compress([thread], is_free), [error]))


def take_back() -> None:
    """Take back what was raised in this thread and has not arrived yet."""
    _set_async_exc(threading.get_ident(), _NONE)


class _OfTheLock:
    """A method of conditions that is their lock's own, without a function of Python."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._function = getattr(threading.Condition, name)

    def __get__(
        self, condition: threading.Condition | None, owner: type | None = None
    ) -> Any:
        if condition is None:
            return self._function
        return getattr(condition._lock, self._name)  # type: ignore[attr-defined]


@functools.cache
def make_conditions_whole() -> None:
    """Let no exception from outside arrive before a condition has released its lock.

    From Python 3.13 on it arrives later than where the thread was seen: with the next
    function that is called, and at the end of a with block that is __exit__().
    """
    for name in ("__enter__", "__exit__"):
        setattr(threading.Condition, name, _OfTheLock(name))


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

"""Fork a process of the worker's: it ends with its parent and shares no handlers."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final

from relay import traces

__all__ = ["die_with", "end_of", "fork", "warn_of_threads"]

logger = logging.getLogger("relay.worker")

_PR_SET_PDEATHSIG: Final = 1
# How threads are called that start anew in a forked process: OpenTelemetry's SDK.
_FORKING: Final = "Otel"


def warn_of_threads() -> None:
    """Log a warning if threads run that no forked process will have."""
    main = threading.main_thread()
    names = [each.name for each in threading.enumerate() if each is not main]
    if lost := [name for name in names if not name.startswith(_FORKING)]:
        logger.warning(
            "threads were started before the worker forks: they are not in its "
            "children, and a lock they hold stays locked there",
            extra={"event": "worker.threads", "threads": lost},
        )


def fork(
    run: Callable[[], int], *, death_signal: signal.Signals = signal.SIGKILL
) -> int:
    """Fork a process that runs this and ends with the code it returns.

    It dies with its parent, has no Python exit handlers of the parent's, and starts
    with the signals' default handlers: none can reach the parent's by mistake.

    Args:
        death_signal: what the kernel sends it (Linux) when the thread that calls
            this, or all of its process, has ended.
    """
    _flush_output()
    parent = os.getpid()
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        pid = os.fork()
        if pid == 0:
            _begin(parent, run, death_signal)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    return pid


def end_of(code: int, what: str = "the worker process") -> str:
    """Return in words how a process ended, from its exit code."""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"{what} died of {name}"
    return f"{what} ended with code {code}"


def _begin(parent: int, run: Callable[[], int], death_signal: signal.Signals) -> None:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Ctrl-C in a terminal reaches the whole group, as its end does: the parent
        # alone decides.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        die_with(parent, death_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
        code = run()
    except BaseException:  # an edge: the process ends here, whatever happened
        logger.exception("worker process failed", extra={"event": "worker.failed"})
    finally:
        with contextlib.suppress(Exception):
            traces.flush()
        with contextlib.suppress(Exception):
            logging.shutdown()
        _flush_output()
        os._exit(code)


def _flush_output() -> None:
    """Write out what is buffered; a stream may be closed, full or not there."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()


def die_with(parent: int, death_signal: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent dies (Linux)."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # it died in between

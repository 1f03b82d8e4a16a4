"""The event loop of a child: it goes on whatever a job does to it."""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from relay.worker.sessions import clean_connections
from relay.worker.threads import begin

__all__ = ["end_event_loop", "new_event_loop", "start_event_loop"]

logger = logging.getLogger("relay.worker")

T = TypeVar("T")

# Those that relay itself ends; any other end is a job's doing.
_ending: Final[weakref.WeakSet[asyncio.AbstractEventLoop]] = weakref.WeakSet()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop for coroutine handlers.

    What jobs hand to its default executor, as asyncio.to_thread does, runs with
    database connections that are cleaned before and after, as a job's own are.
    """
    loop = asyncio.new_event_loop()
    loop.set_default_executor(_CleaningExecutor(thread_name_prefix="relay-to-thread"))
    return loop


def start_event_loop() -> asyncio.AbstractEventLoop | None:
    """Start an event loop in a thread of its own; None if there is no thread left."""
    loop = new_event_loop()
    thread = threading.Thread(
        target=_run_for_ever, args=(loop,), name="relay-event-loop", daemon=True
    )
    if begin(thread):
        return loop
    loop.close()
    return None


def end_event_loop(loop: asyncio.AbstractEventLoop) -> None:
    """End a loop and its thread. From any thread; no job may run in it any more."""
    _ending.add(loop)
    loop.call_soon_threadsafe(loop.stop)


def _run_for_ever(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop, and again if a job stopped it or let sys.exit() escape into it."""
    while loop not in _ending:
        try:
            loop.run_forever()
        except BaseException:  # an edge: no job may end the loop of the others
            logger.exception(
                "a job's error escaped into the event loop",
                extra={"event": "worker.loop_broken"},
            )
        else:
            if loop in _ending:
                break
            logger.error(
                "a job stopped the event loop: it goes on",
                extra={"event": "worker.loop_stopped"},
            )
    loop.close()


class _CleaningExecutor(ThreadPoolExecutor):
    """Cleans the connections of its threads around each call."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return super().submit(_cleaned, fn, *args, **kwargs)


def _cleaned(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    clean_connections()
    try:
        return function(*args, **kwargs)
    finally:
        clean_connections()

"""The one embedded worker of a process: started once, drained at its exit."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - its exit is to come after ours
import logging
import os
import threading
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Final, TypedDict

from asgiref.sync import sync_to_async

from relay.conf import check_queue_name, get_settings
from relay.engine.weight import LARGEST_WEIGHT
from relay.exceptions import RelayError, UnknownQueue
from relay.tasks import known_queues
from relay.worker.embedded.where import check_process, why_not
from relay.worker.embedded.worker import EmbeddedWorker
from relay.worker.options import LoopOptions

__all__ = ["GRACE", "StartOptions", "astop", "start", "stop"]

logger = logging.getLogger("relay.worker")

# With what comes after it, below the 30 s after which gunicorn and Kubernetes kill.
# Source: docs/howto/embedded-worker.md, "Stop and deploy".
GRACE: Final = timedelta(seconds=10)
LARGEST_CONCURRENCY: Final = 1_000


class StartOptions(TypedDict, total=False):
    """What start() takes."""

    queues: Iterable[str] | Mapping[str, int] | None
    concurrency: int | None
    strict: bool
    grace: timedelta
    name: str | None
    commands: Collection[str]


class _State:
    """What this process has; a forked one starts anew."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.worker: EmbeddedWorker | None = None
        # Of the process this one was forked from: kept, as whatever collects it would
        # close what is not this process's.
        self.inherited: list[EmbeddedWorker] = []


_state = _State()
_is_hooked = False


def start(
    queues: Iterable[str] | Mapping[str, int] | None = None,
    *,
    concurrency: int | None = None,
    strict: bool = False,
    grace: timedelta = GRACE,
    name: str | None = None,
    commands: Collection[str] = ("runserver",),
) -> EmbeddedWorker | None:
    """Start a worker in this web process, in threads; it starts claiming soon after.

    Call it in wsgi.py or asgi.py after the application was made. A second call with
    the same arguments returns the worker that runs. Nothing is started, and None
    returned, in management commands, in runserver's reloader and in tests.

    The worker drains when the process exits. A process forked from this one has no
    worker until it calls start() itself.

    Args:
        queues: those to serve, with weights if it is a mapping; each must be named in
            RELAY["QUEUES"] or by a task. All of those unless given.
        concurrency: jobs that run at once; RELAY["CONCURRENCY"] unless given.
        strict: always look at the queues in the order given.
        grace: how long running jobs may go on once the process exits or stop() is
            called; two seconds more pass until those that go on are left behind.
        name: a label of the worker's row; host-pid unless given.
        commands: management commands that are web servers.

    Raises:
        UnknownQueue: neither settings nor a task name the queue.
        RelayError: this process cannot run a worker, or runs one with other arguments.
        ValueError: an argument is out of its range.
    """
    reason = why_not(commands)
    if reason is not None:
        logger.info(
            "no embedded worker is started: %s", reason, extra={"event": "worker.none"}
        )
        return None
    check_process()
    options = LoopOptions(
        queues=_checked_queues(queues),
        is_strict=strict,
        concurrency=_checked_concurrency(concurrency),
    )
    _check_grace(grace)
    with _state.lock:
        running = _state.worker
        if running is not None and not running.has_ended:
            if running.is_like(options, grace=grace, name=name):
                return running
            raise RelayError(
                "an embedded worker with other arguments runs in this process: call "
                "start() at one place, or stop() first"
            )
        _register_exit()
        _state.worker = EmbeddedWorker(options, grace=grace, name=name)
        _state.worker.start()
        return _state.worker


def stop() -> bool:
    """Drain this process's worker, if it has one: see EmbeddedWorker.stop()."""
    worker = _state.worker
    return worker is None or worker.stop()


async def astop() -> bool:
    """Drain this process's worker, as stop() does, beside the event loop."""
    return await sync_to_async(stop, thread_sensitive=False)()


def _checked_queues(queues: Iterable[str] | Mapping[str, int] | None) -> dict[str, int]:
    known = known_queues()
    if queues is None:
        return dict.fromkeys(sorted(known), 1)
    if isinstance(queues, str):
        raise ValueError(f"queues is {queues!r}: give a list of names, or a mapping")
    weights = dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(queues, 1)
    if not weights:
        raise ValueError("queues is empty: name at least one, or leave it out")
    for name, weight in weights.items():
        if check_queue_name(name) not in known:
            raise UnknownQueue(
                f"unknown queue {name!r}: name it in RELAY['QUEUES'] or in a task; "
                f"known: {', '.join(sorted(known))}"
            )
        if not _is_whole(weight, LARGEST_WEIGHT):
            raise ValueError(
                f"weight {weight!r} of queue {name!r} is not in 1..{LARGEST_WEIGHT}"
            )
    return weights


def _checked_concurrency(concurrency: int | None) -> int:
    if concurrency is None:
        return get_settings().concurrency
    if not _is_whole(concurrency, LARGEST_CONCURRENCY):
        raise ValueError(
            f"concurrency is {concurrency!r}: give a whole number from 1 to "
            f"{LARGEST_CONCURRENCY}"
        )
    return concurrency


def _check_grace(grace: object) -> None:
    if not (isinstance(grace, timedelta) and timedelta(0) <= grace <= timedelta(1)):
        raise ValueError(f"grace is {grace!r}: give a timedelta from 0 to one day")


def _is_whole(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


# --- the process's exit, and its forks ----------------------------------------------


def _register_exit() -> None:
    """Have the exit of this process drain, and a fork of it forget; once.

    It drains before the threads of concurrent.futures are told to end, as a coroutine
    may go on calling sync_to_async(); what atexit runs comes after that. These
    functions run last in, first out, and that module registers its own at import.
    """
    global _is_hooked
    if _is_hooked:
        return
    register = getattr(threading, "_register_atexit", atexit.register)
    register(_at_exit)
    os.register_at_fork(after_in_child=_after_fork)
    _is_hooked = True


def _at_exit() -> None:
    stop()


def _after_fork() -> None:
    global _state
    worker, inherited = _state.worker, _state.inherited
    _state = _State()
    _state.inherited = inherited
    if worker is not None:
        worker.disown()
        inherited.append(worker)

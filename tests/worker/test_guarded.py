"""An exception from outside arrives where it costs nobody a lock, and is not lost."""

from __future__ import annotations

import io
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from relay.exceptions import Cancelled, SoftTimeout
from relay.ids import uuid7
from relay.worker.guarded import is_guarded, let_through_logging
from relay.worker.interruption import Interruptible
from tests.waiting import until


class Stream(io.StringIO):
    """What a handler writes to: calls the function with each line."""

    def __init__(self, note: Callable[[], object]) -> None:
        super().__init__()
        self._note = note

    def write(self, text: str) -> int:
        self._note()
        return len(text)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(6) as pool:
        yield pool


def logger_on(note: Callable[[], object]) -> tuple[logging.Logger, logging.Handler]:
    logger, handler = (
        logging.Logger("of this test"),
        logging.StreamHandler(Stream(note)),
    )
    logger.addHandler(handler)
    return logger, handler


def assert_free(lock: Any) -> None:
    assert lock.acquire(timeout=60)
    lock.release()


def call(
    threads: ThreadPoolExecutor, function: Callable[[], object]
) -> tuple[Interruptible, Future[Any], int]:
    begun: Future[int] = Future()
    interruptible = Interruptible(uuid7())

    def handler() -> None:
        begun.set_result(threading.get_ident())
        while True:
            function()

    answer: Future[Any] = threads.submit(interruptible.call, handler, [], {})
    return interruptible, answer, begun.result(timeout=60)


def test_a_handler_that_waits_for_the_lock_of_the_log_leaves_it_free(
    threads: ThreadPoolExecutor,
) -> None:
    logger, handler = logger_on(lambda: None)
    assert handler.lock is not None
    with handler.lock:
        interruptible, answer, thread = call(threads, lambda: logger.warning("x"))
        until(lambda: is_guarded(thread), what="it waits for the lock")
        assert not interruptible.interrupt()
    until(interruptible.interrupt)

    with pytest.raises(Cancelled):
        answer.result(timeout=60)
    assert_free(handler.lock)


def test_a_handler_that_waits_for_a_queues_lock_leaves_it_free(
    threads: ThreadPoolExecutor,
) -> None:
    shared: queue.Queue[int] = queue.Queue()
    with shared.mutex:
        interruptible, answer, thread = call(threads, lambda: shared.put(1))
        until(lambda: is_guarded(thread), what="it waits for the lock")
        assert not interruptible.interrupt()
    until(interruptible.interrupt)

    with pytest.raises(Cancelled):
        answer.result(timeout=60)
    assert_free(shared.mutex)


def test_handlers_that_only_log_are_all_reached_and_none_keeps_the_lock(
    threads: ThreadPoolExecutor,
) -> None:
    let_through_logging()
    logger, handler = logger_on(lambda: time.sleep(0.0001))
    assert handler.lock is not None
    for _ in range(5):
        calls = [call(threads, lambda: logger.warning("x")) for _ in range(6)]
        for interruptible, _, _ in calls:
            until(interruptible.warn)

        for _, answer, _ in calls:
            with pytest.raises(SoftTimeout):
                answer.result(timeout=60)
        assert_free(handler.lock)


def test_a_warning_that_arrives_while_a_record_is_written_is_not_swallowed(
    threads: ThreadPoolExecutor,
) -> None:
    let_through_logging()
    writing = threading.Event()

    def write() -> None:
        writing.set()
        while True:
            pass

    logger, handler = logger_on(write)
    interruptible, answer, _ = call(threads, lambda: logger.warning("x"))
    assert writing.wait(timeout=60)
    until(interruptible.warn)

    with pytest.raises(SoftTimeout):
        answer.result(timeout=60)
    assert_free(handler.lock)

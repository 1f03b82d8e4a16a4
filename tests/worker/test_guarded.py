"""An exception from outside arrives where it costs nobody a lock, and is not lost."""

from __future__ import annotations

import io
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from relay.exceptions import Cancelled, SoftTimeout
from relay.ids import uuid7
from relay.worker.guarded import (
    _GUARDED,
    let_through_logging,
    make_conditions_whole,
)
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


@pytest.fixture
def often_switched() -> Iterator[None]:
    """Let threads take the interpreter from each other as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def logger_on(note: Callable[[], object]) -> tuple[logging.Logger, logging.Handler]:
    logger, handler = (
        logging.Logger("of this test"),
        logging.StreamHandler(Stream(note)),
    )
    logger.addHandler(handler)
    return logger, handler


def assert_free(lock: Any) -> None:
    is_free = lock.acquire(timeout=60)
    lock.release()  # also where not, for those who wait
    assert is_free


def is_guarded(thread: int) -> bool:
    code = sys._current_frames()[thread].f_code
    return not _GUARDED.isdisjoint((code, code.co_filename))


def take(condition: threading.Condition) -> None:
    with condition:
        threading.get_ident()


def call(
    threads: ThreadPoolExecutor, function: Callable[[], object]
) -> tuple[Interruptible, Future[Any], int]:
    begun: Future[int] = Future()
    interruptible = Interruptible(uuid7())

    def handler() -> None:
        begun.set_result(threading.get_ident())
        while not threads._shutdown:
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


@pytest.mark.parametrize("kind", [threading.Lock, threading.RLock])
def test_handlers_that_share_a_condition_all_end_and_leave_its_lock_free(
    threads: ThreadPoolExecutor, often_switched: None, kind: Callable[[], Any]
) -> None:
    make_conditions_whole()
    for _ in range(50):
        condition = threading.Condition(kind())
        calls = [call(threads, partial(take, condition)) for _ in range(3)]
        try:
            for interruptible, _, _ in calls:
                until(interruptible.interrupt)
        finally:
            assert_free(condition)
        for _, answer, _ in calls:
            with pytest.raises(Cancelled):
                answer.result(timeout=60)


def test_a_condition_stays_what_it_was_for_all_that_enter_it() -> None:
    make_conditions_whole()
    condition = threading.Condition(threading.Lock())
    with ExitStack() as stack:
        assert stack.enter_context(condition)
        condition.notify()
        assert not condition.acquire(blocking=False)
        assert not condition.wait(0.001)
    with pytest.raises(ZeroDivisionError), condition:
        raise ZeroDivisionError
    assert_free(condition)


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

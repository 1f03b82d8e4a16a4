"""An exception from outside: in the handler, once, or nowhere."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from relay.exceptions import Cancelled, JobTimeout, SoftTimeout
from relay.ids import uuid7
from relay.worker.interruption import Interruptible


def make() -> Interruptible:
    return Interruptible(uuid7())


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def busy() -> Iterator[None]:
    """Let threads change as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def spin(begun: threading.Event) -> None:
    begun.set()
    ends_at = time.monotonic() + 90
    while time.monotonic() < ends_at:
        pass
    raise AssertionError("nobody stopped it")


def spin_in_thread(
    thread: ThreadPoolExecutor, interruptible: Interruptible
) -> Future[Any]:
    begun = threading.Event()
    answer: Future[Any] = thread.submit(interruptible.call, spin, [begun], {})
    assert begun.wait(timeout=60)
    return answer


def test_a_handler_is_stopped_in_the_middle_of_a_loop(
    thread: ThreadPoolExecutor,
) -> None:
    interruptible = make()
    answer = spin_in_thread(thread, interruptible)

    interruptible.interrupt()

    with pytest.raises(Cancelled):
        answer.result(timeout=60)
    assert interruptible.is_cancelled


def test_except_exception_does_not_swallow_it(thread: ThreadPoolExecutor) -> None:
    interruptible, begun = make(), threading.Event()

    def handler() -> str:
        try:
            spin(begun)
        except Exception:
            return "swallowed"
        return "ended"

    answer = thread.submit(interruptible.call, handler, [], {})
    assert begun.wait(timeout=60)
    interruptible.interrupt()

    with pytest.raises(Cancelled):
        answer.result(timeout=60)


def test_a_handler_that_cleans_up_is_not_interrupted_again(
    thread: ThreadPoolExecutor,
) -> None:
    interruptible, begun = make(), threading.Event()
    cleaning, may_end = threading.Event(), threading.Event()

    def handler() -> str:
        try:
            spin(begun)
        except Cancelled:
            cleaning.set()
            while not may_end.is_set():
                pass
        return "cleaned up"

    answer = thread.submit(interruptible.call, handler, [], {})
    assert begun.wait(timeout=60)
    interruptible.interrupt()
    assert cleaning.wait(timeout=60)
    interruptible.interrupt()
    may_end.set()

    assert answer.result(timeout=60) == "cleaned up"


def test_what_was_cancelled_before_it_began_does_not_begin() -> None:
    interruptible = make()
    interruptible.interrupt()

    with pytest.raises(Cancelled):
        interruptible.call(pytest.fail, ["it began"], {})


def test_what_has_ended_is_not_interrupted_nor_is_what_follows_in_its_thread() -> None:
    interruptible = make()
    assert interruptible.call(lambda: "done", [], {}) == "done"

    interruptible.interrupt()

    assert sum(range(10_000)) == 49_995_000  # nothing arrives here


@pytest.mark.usefixtures("busy")
def test_j17_it_never_leaves_the_handler_whenever_it_is_raised(
    thread: ThreadPoolExecutor,
) -> None:
    """One thread runs short handlers one after another; this one fires at each."""
    current: list[Interruptible] = [make()]
    outside: list[BaseException] = []
    ends = {"whole": 0, "stopped": 0}
    lengths = itertools.cycle(range(0, 30_000, 700))

    def handler(length: int) -> None:
        for _ in range(length):
            pass

    def run() -> None:
        ends_at = time.monotonic() + 60
        while min(ends.values()) < 300 and time.monotonic() < ends_at:
            current[0] = mine = make()
            try:
                mine.call(handler, [next(lengths)], {})
            except Cancelled:
                ends["stopped"] += 1
            else:
                ends["whole"] += 1
            try:
                for _ in range(100):
                    pass
            except Cancelled as error:
                outside.append(error)

    answer = thread.submit(run)
    fired = current[0]
    while not answer.done():
        if current[0] is not fired:
            fired = current[0]
            fired.interrupt()
    answer.result(timeout=60)

    assert outside == []
    assert min(ends.values()) > 0


def test_a_warned_handler_goes_on_and_is_stopped_later(
    thread: ThreadPoolExecutor,
) -> None:
    interruptible, begun, warned = make(), threading.Event(), threading.Event()

    def handler() -> None:
        try:
            spin(begun)
        except SoftTimeout:
            spin(warned)

    answer = thread.submit(interruptible.call, handler, [], {})
    assert begun.wait(timeout=60)
    interruptible.warn()
    assert warned.wait(timeout=60)
    interruptible.warn()
    interruptible.time_out()

    with pytest.raises(JobTimeout):
        answer.result(timeout=60)
    assert interruptible.is_timed_out


def test_a_handler_that_was_stopped_is_neither_warned_nor_stopped_again(
    thread: ThreadPoolExecutor,
) -> None:
    interruptible, begun = make(), threading.Event()
    cleaning, may_end = threading.Event(), threading.Event()

    def handler() -> str:
        try:
            spin(begun)
        except JobTimeout:
            cleaning.set()
            while not may_end.is_set():
                pass
        return "cleaned up"

    answer = thread.submit(interruptible.call, handler, [], {})
    assert begun.wait(timeout=60)
    interruptible.time_out()
    assert cleaning.wait(timeout=60)
    interruptible.warn()
    interruptible.interrupt()
    may_end.set()

    assert answer.result(timeout=60) == "cleaned up"


@pytest.mark.parametrize(
    ("act", "error"),
    [(Interruptible.warn, SoftTimeout), (Interruptible.time_out, JobTimeout)],
)
def test_what_ran_out_of_time_before_it_began_does_not_begin(
    act: Any, error: type[BaseException]
) -> None:
    interruptible = make()
    act(interruptible)

    with pytest.raises(error):
        interruptible.call(pytest.fail, ["it began"], {})


@pytest.mark.slow
@pytest.mark.usefixtures("busy")
def test_two_interruptions_never_leave_the_handler_whenever_they_are_raised(
    thread: ThreadPoolExecutor,
) -> None:
    """As above, with a warning and an end fired at each handler."""
    current: list[Interruptible] = [make()]
    outside: list[BaseException] = []
    ends = {"whole": 0, "warned": 0, "stopped": 0}
    lengths = itertools.cycle(range(0, 30_000, 700))

    def handler(length: int) -> bool:
        was_warned = False
        for _ in range(3):
            try:
                for _ in range(length):
                    pass
            except SoftTimeout:
                was_warned = True
        return was_warned

    def run() -> None:
        ends_at = time.monotonic() + 60
        while min(ends.values()) < 60 and time.monotonic() < ends_at:
            current[0] = mine = make()
            try:
                was_warned = mine.call(handler, [next(lengths)], {})
            except SoftTimeout:
                ends["warned"] += 1
            except JobTimeout:
                ends["stopped"] += 1
            else:
                ends["warned" if was_warned else "whole"] += 1
            try:
                for _ in range(100):
                    pass
            except (SoftTimeout, JobTimeout) as error:
                outside.append(error)

    answer = thread.submit(run)
    fired = current[0]
    pauses = itertools.cycle(range(0, 9_000, 500))
    while not answer.done():
        if current[0] is not fired:
            fired = current[0]
            fired.warn()
            pause = next(pauses)
            for _ in range(pause):
                pass
            if pause % 1_000:
                fired.time_out()
    answer.result(timeout=60)

    assert outside == []
    assert min(ends.values()) > 0


def test_a_coroutine_is_warned_where_it_waits_and_may_go_on() -> None:
    interruptible = make()

    async def handler() -> str:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        loop.call_soon(interruptible.warn_task)
        with pytest.raises(SoftTimeout) as caught:
            await asyncio.sleep(30)
        assert type(caught.value).__name__ == "SoftTimeout"
        assert task is not None
        assert task.cancelling() == 0
        async with asyncio.timeout(30):
            await asyncio.sleep(0)
        return "went on"

    assert asyncio.run(interruptible.wait_warned(handler)) == "went on"


def test_a_warned_coroutine_takes_down_those_it_waits_for() -> None:
    interruptible = make()
    ended: list[str] = []

    async def member() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            ended.append("member")

    async def handler() -> None:
        asyncio.get_running_loop().call_later(0.05, interruptible.warn_task)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(member())
        finally:
            ended.append("handler")

    with pytest.raises(SoftTimeout):
        asyncio.run(interruptible.wait_warned(handler))
    assert ended == ["member", "handler"]


def test_a_warned_coroutine_is_stopped_later_by_a_cancellation() -> None:
    interruptible = make()

    async def handler() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(interruptible.warn_task)
        with pytest.raises(SoftTimeout):
            await asyncio.sleep(30)
        loop.call_soon(interruptible.time_out_task)
        await asyncio.sleep(30)

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError) as caught:
            await interruptible.wait_warned(handler)
        assert not isinstance(caught.value, SoftTimeout)

    asyncio.run(main())
    assert interruptible.is_timed_out


def test_what_a_warned_coroutine_would_do_else_is_as_ever() -> None:
    interruptible = make()

    async def handler(number: int) -> int:
        await asyncio.sleep(0)
        with pytest.raises(ZeroDivisionError):
            await asyncio.gather(asyncio.sleep(0), fail())
        return number + 1

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    assert asyncio.run(interruptible.wait_warned(handler, 1)) == 2


def test_a_coroutine_is_stopped_where_it_waits() -> None:
    interruptible = make()

    async def handler() -> None:
        asyncio.get_running_loop().call_soon(interruptible.interrupt_task)
        await asyncio.sleep(90)

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            await interruptible.wait(handler)
        interruptible.interrupt_task()
        await asyncio.sleep(0)  # what follows is not stopped

    asyncio.run(main())


def test_a_coroutine_that_was_cancelled_before_it_began_does_not_begin() -> None:
    interruptible = make()

    async def handler() -> None:
        pytest.fail("it began")

    async def main() -> None:
        interruptible.interrupt_task()
        with pytest.raises(asyncio.CancelledError):
            await interruptible.wait(handler)

    asyncio.run(main())

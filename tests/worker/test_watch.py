"""Attempts are interrupted when their time is up, and only then."""

from __future__ import annotations

import asyncio
import threading
from contextvars import copy_context
from datetime import timedelta
from typing import Any

from relay import Task
from relay.engine.claim import ClaimedJob
from relay.exceptions import JobTimeout, SoftTimeout
from relay.ids import uuid7
from relay.worker.interruption import Interruptible
from relay.worker.watch import UNWATCHED, Watch


def handler() -> None: ...


def limited(soft: float | None = None) -> Task[..., Any]:
    seconds = None if soft is None else timedelta(seconds=soft)
    return Task(handler, name="tests.watch", soft_timeout=seconds)


def job(timeout: float | None = None) -> ClaimedJob:
    milliseconds = None if timeout is None else int(timeout * 1_000)
    return ClaimedJob(
        uuid7(), "tests.watch", "default", 0, 1, 1, {}, 0, 0, 3, milliseconds
    )


def begin(
    watch: Watch, attempt: Interruptible, of: ClaimedJob, made: Task[..., Any]
) -> None:
    """Begin in a context of its own, as jobs run: it holds the statements' limit."""
    copy_context().run(watch.begin, attempt, of, made)


class Told(Interruptible):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__(uuid7())
        self.acts: list[str] = []
        self.told = threading.Event()

    def warn(self) -> None:
        self._note("warn")

    def time_out(self) -> None:
        self._note("time out")

    def _note(self, act: str) -> None:
        self.acts.append(act)
        self.told.set()


def test_an_attempt_is_warned_and_then_ended() -> None:
    watch, attempt = Watch(), Told()

    begin(watch, attempt, job(0.2), limited(0.1))
    assert attempt.told.wait(timeout=60)
    attempt.told.clear()
    assert len(attempt.acts) == 2 or attempt.told.wait(timeout=60)

    assert attempt.acts == ["warn", "time out"]


def test_an_earlier_moment_wakes_a_watch_that_sleeps_for_a_later_one() -> None:
    watch, late, early = Watch(), Told(), Told()

    begin(watch, late, job(3_600), limited())
    begin(watch, early, job(0.05), limited())

    assert early.told.wait(timeout=60)
    assert late.acts == []


def test_an_attempt_that_has_ended_is_not_told_and_leaves_nothing_behind() -> None:
    watch, ended, marker = Watch(), Told(), Told()

    begin(watch, ended, job(3_600), limited(3_599))
    watch.end(ended)
    begin(watch, marker, job(0.05), limited())
    assert marker.told.wait(timeout=60)
    watch.end(marker)

    assert ended.acts == []
    assert watch._limits == {}


def test_a_soft_timeout_after_the_end_warns_nobody() -> None:
    watch, attempt = Watch(), Told()

    begin(watch, attempt, job(0.05), limited(0.06))

    assert attempt.told.wait(timeout=60)
    assert attempt.acts == ["time out"]


def test_a_watch_has_no_thread_before_the_first_limit() -> None:
    def watches() -> int:
        return sum(thread.name == "relay-watch" for thread in threading.enumerate())

    before = watches()
    Watch()
    UNWATCHED.begin(Told(), job(0.01), limited())

    assert watches() == before


def test_a_coroutine_is_told_in_its_own_loop() -> None:
    watch, attempt = Watch(), Interruptible(uuid7())

    async def wait() -> None:
        try:
            await asyncio.sleep(30)
        except SoftTimeout:
            await asyncio.sleep(30)

    async def main() -> bool:
        loop = asyncio.get_running_loop()
        watch.begin(attempt, job(0.2), limited(0.1), loop)
        try:
            await attempt.wait_warned(wait)
        except asyncio.CancelledError:
            return attempt.is_timed_out
        return False

    assert asyncio.run(main())


def test_a_plain_handler_is_ended_in_its_thread() -> None:
    watch, attempt = Watch(), Interruptible(uuid7())
    ends: list[BaseException] = []

    def spin() -> None:
        while True:
            pass

    def run() -> None:
        watch.begin(attempt, job(0.1), limited())
        try:
            attempt.call(spin, [], {})
        except JobTimeout as error:
            ends.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(timeout=60)

    assert len(ends) == 1

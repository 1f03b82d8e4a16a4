"""The helpers as methods: a mixin for unittest, and what the pytest fixture gives."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, TypeVar, cast
from unittest import TestResult

from relay.tasks import Task
from relay.testing.asserting import (
    approx,
    assert_enqueued,
    assert_idempotent,
    assert_roundtrips,
    enqueued,
    refute_enqueued,
)
from relay.testing.clock import assert_schedule, fire_due_schedules, travel
from relay.testing.faults import expire_leases, fail_next, simulate_crash
from relay.testing.live import live_worker, wait_for
from relay.testing.modes import Mode, mode
from relay.testing.running import drain, perform, run_job

__all__ = ["RelayHelpers", "RelayTestMixin"]

T = TypeVar("T")


class RelayHelpers:
    """All of relay.testing as methods; what lasts, lasts until the test's end."""

    approx = staticmethod(approx)
    assert_enqueued = staticmethod(assert_enqueued)
    assert_idempotent = staticmethod(assert_idempotent)
    assert_roundtrips = staticmethod(assert_roundtrips)
    assert_schedule = staticmethod(assert_schedule)
    drain = staticmethod(drain)
    enqueued = staticmethod(enqueued)
    expire_leases = staticmethod(expire_leases)
    fire_due_schedules = staticmethod(fire_due_schedules)
    live_worker = staticmethod(live_worker)
    mode = staticmethod(mode)
    perform = staticmethod(perform)
    refute_enqueued = staticmethod(refute_enqueued)
    run_job = staticmethod(run_job)
    simulate_crash = staticmethod(simulate_crash)
    wait_for = staticmethod(wait_for)

    def _last(self, manager: AbstractContextManager[T]) -> T:
        raise NotImplementedError

    def travel(
        self, by: timedelta | None = None, *, using: str | None = None, **parts: float
    ) -> None:
        """Let so much of relay's time pass; see relay.testing.travel."""
        self._last(travel(by, using=using, **parts))

    def fail_next(
        self,
        task: Task[..., Any] | str,
        error: BaseException | type[BaseException],
        *,
        times: int = 1,
    ) -> None:
        """Let the task fail so many times; see relay.testing.fail_next."""
        self._last(fail_next(task, error, times=times))


class RelayTestMixin(RelayHelpers):
    """For test cases of unittest and Django: stands before them in the bases.

    Attributes:
        relay_mode: what an enqueue does in these tests.
    """

    relay_mode: Mode = "manual"

    def run(self: Any, result: TestResult | None = None) -> TestResult | None:
        """Run one test in the mode."""
        with mode(self.relay_mode):
            return super().run(result)  # type: ignore[misc,no-any-return] # of the TestCase beside it

    def _last(self, manager: AbstractContextManager[T]) -> T:
        test: Any = self  # a TestCase beside it
        return cast("T", test.enterContext(manager))

"""Test code that enqueues jobs, without a worker: inside a plain TestCase.

Source: docs/howto/test-your-jobs.md.
"""

from __future__ import annotations

from relay.testing.asserting import (
    approx,
    assert_enqueued,
    assert_idempotent,
    assert_roundtrips,
    enqueued,
    refute_enqueued,
)
from relay.testing.cases import RelayHelpers, RelayTestMixin
from relay.testing.client import ApiClient
from relay.testing.clock import assert_schedule, fire_due_schedules, travel
from relay.testing.fake import FakeWorker
from relay.testing.faults import expire_leases, fail_next, simulate_crash
from relay.testing.live import live_worker, wait_for
from relay.testing.modes import Mode, mode
from relay.testing.running import Drained, Outcome, drain, perform, run_job

__all__ = [
    "ApiClient",
    "Drained",
    "FakeWorker",
    "Mode",
    "Outcome",
    "RelayHelpers",
    "RelayTestMixin",
    "approx",
    "assert_enqueued",
    "assert_idempotent",
    "assert_roundtrips",
    "assert_schedule",
    "drain",
    "enqueued",
    "expire_leases",
    "fail_next",
    "fire_due_schedules",
    "live_worker",
    "mode",
    "perform",
    "refute_enqueued",
    "run_job",
    "simulate_crash",
    "travel",
    "wait_for",
]

"""The helpers as methods of a test case."""

from __future__ import annotations

from datetime import timedelta

from django.test import TestCase, TransactionTestCase

from relay import testing
from relay.engine import enqueue
from relay.testing import RelayHelpers, RelayTestMixin
from tests.testing import tasks


class TestMixin(RelayTestMixin, TestCase):
    def test_jobs_wait_for_drain(self) -> None:
        job = tasks.send.enqueue("her")

        self.assert_enqueued(tasks.send, args={"to": "her"}, count=1)
        assert tasks.ran == []
        assert self.drain().completed == 1
        assert job.state == "completed"

    def test_a_travel_lasts_until_the_test_s_end(self) -> None:
        tasks.note.using(run_in=timedelta(hours=1)).enqueue(1)

        self.travel(hours=2)

        assert self.drain().completed == 1

    def test_a_failure_lasts_until_it_is_called_for(self) -> None:
        self.fail_next(tasks.note, TimeoutError)
        tasks.note.enqueue(1)

        assert self.drain(with_retries=True).ran == 2

    def test_a_block_may_have_another_mode(self) -> None:
        with self.mode("inline"):
            tasks.note.enqueue(1)

        assert tasks.ran == [1]


class TestInlineMixin(RelayTestMixin, TestCase):
    relay_mode = "inline"

    def test_jobs_run_at_once(self) -> None:
        tasks.note.enqueue(1)

        assert tasks.ran == [1]


class TestLiveMixin(RelayTestMixin, TransactionTestCase):
    def test_a_worker_runs_beside_the_test(self) -> None:
        with self.live_worker():
            self.wait_for(tasks.note.enqueue(1))


def test_the_mode_ends_with_the_test() -> None:
    assert enqueue.insert.__module__ == "relay.engine.enqueue"


def test_every_helper_is_a_method_too() -> None:
    apart = {"ApiClient", "Drained", "FakeWorker", "Mode", "Outcome"}
    apart |= {"RelayHelpers", "RelayTestMixin"}

    for name in set(testing.__all__) - apart:
        assert hasattr(RelayHelpers, name), name

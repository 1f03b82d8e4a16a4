"""A worker in threads beside the test."""

from __future__ import annotations

import threading
from datetime import timedelta
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import override_settings

from relay import Backoff, JobHandle, testing
from relay.exceptions import RelayError
from relay.models import Job, Worker
from relay.testing import expire_leases, live_worker, simulate_crash
from tests.testing import tasks
from tests.waiting import WAIT_SECONDS, until

wait_for = partial(testing.wait_for, timeout=WAIT_SECONDS)


@pytest.mark.django_db(transaction=True)
class TestLiveWorker:
    def test_it_runs_what_is_committed(self, ran: list[object]) -> None:
        with live_worker():
            with transaction.atomic():
                job = tasks.note.enqueue(1)
                assert ran == []
            wait_for(job)
            assert tasks.anote.enqueue("her").result(timeout=WAIT_SECONDS) == 1

        assert User.objects.count() == 1
        assert set(Worker.objects.values_list("state", flat=True)) == {"stopped"}

    def test_it_leaves_a_transactional_job_as_that_finished_itself(self) -> None:
        with live_worker():
            job, lost = tasks.transact.enqueue("a"), tasks.transact.enqueue("b", True)
            wait_for(job)
            wait_for(lost, "retrying")
            assert tasks.note.enqueue(1).result(timeout=WAIT_SECONDS) == 1

        assert job.result() == "a"
        assert list(User.objects.values_list("username", flat=True)) == ["a"]

    def test_it_promotes_what_becomes_due_and_takes_back_what_was_lost(self) -> None:
        lost = tasks.note.enqueue("lost")
        simulate_crash(lost)

        with live_worker():
            soon = tasks.note.using(run_in=timedelta(milliseconds=50)).enqueue("soon")
            wait_for(soon)
            expire_leases()
            wait_for(lost)

    def test_it_serves_the_named_queues_alone(self) -> None:
        with live_worker(["mail"]):
            left = tasks.note.enqueue(1)
            wait_for(tasks.send.enqueue("her"))

        assert left.state == "queued"

    def test_it_runs_as_many_at_once_as_told(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        both = threading.Barrier(2, timeout=WAIT_SECONDS)
        monkeypatch.setattr(tasks.note, "function", lambda value: both.wait() >= 0)

        with live_worker(concurrency=2):
            jobs = [tasks.note.enqueue(1), tasks.note.enqueue(2)]
            for job in jobs:
                wait_for(job)

    def test_it_tells_of_a_handler_that_does_not_end(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("relay.testing.live.STOP_SECONDS", 0.05)
        begun, end = threading.Event(), threading.Event()

        def begin(begun: threading.Event) -> JobHandle[object]:
            job = tasks.note.enqueue(1)
            begun.wait(WAIT_SECONDS)
            return job

        def stay(value: object) -> None:
            begun.set()
            end.wait(WAIT_SECONDS)

        monkeypatch.setattr(tasks.note, "function", stay)

        with (
            pytest.raises(RelayError, match=r"still runs after 0\.05 s"),
            live_worker(),
        ):
            job = begin(begun)
        end.set()
        wait_for(job)
        for thread in threading.enumerate():
            if thread.name == "relay live_worker":
                thread.join(WAIT_SECONDS)

    def test_an_error_of_its_own_comes_out(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failed = threading.Event()

        def fail(*args: object, **kwargs: object) -> None:
            failed.set()
            raise RuntimeError("no claim")

        monkeypatch.setattr("relay.testing.live.send_claim", fail)

        with pytest.raises(RuntimeError, match="no claim"), live_worker():
            failed.wait(WAIT_SECONDS)

    @override_settings(
        RELAY={"BACKOFF": Backoff(base=timedelta(hours=1), jitter=False)}
    )
    def test_waiting_in_vain_says_what_the_job_is(self) -> None:
        with live_worker():
            job = tasks.broken.enqueue("bad")
            until(lambda: job.state == "retrying")
            with pytest.raises(
                AssertionError, match=r"retrying, after 1 attempts, .*b"
            ):
                wait_for(job, timeout=0.1)
        Job.objects.all().delete()
        with pytest.raises(AssertionError, match="it is gone"):
            wait_for(job, timeout=0)


@pytest.mark.django_db
class TestInsideATransaction:
    def test_the_remedy_is_named(self) -> None:
        job = tasks.note.enqueue(1)

        with pytest.raises(RelayError, match="or run the jobs with drain"):
            wait_for(job)
        with pytest.raises(RelayError, match=r"django_db\(transaction=True\)"):
            live_worker().__enter__()

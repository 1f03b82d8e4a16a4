"""What a handler is told of its job, made when it asks."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from datetime import UTC, datetime
from typing import TypeVar

import pytest

from relay import RelayError, current_job
from relay.context import Facts, Requests, enter
from relay.ids import uuid7

T = TypeVar("T")


def in_a_job(requests: Requests, call: Callable[[], T]) -> T:
    """Call a function as the handler of a job."""
    deadline = datetime(2999, 1, 1, tzinfo=UTC)
    facts: Facts = (uuid7(), "t", "q", 2, 1, 25, uuid7(), deadline, requests)

    def run() -> T:
        enter(facts)
        return call()

    return Context().run(run)


def test_each_asking_gets_an_equal_job() -> None:
    first, second = in_a_job(Requests(), lambda: (current_job(), current_job()))

    assert first == second
    assert hash(first) == hash(second)
    assert (first.task, first.queue, first.attempt, first.failures) == ("t", "q", 2, 1)
    assert first.max_retries == 25
    assert first.deadline == datetime(2999, 1, 1, tzinfo=UTC)


def test_jobs_of_two_contexts_differ() -> None:
    assert in_a_job(Requests(), current_job) != in_a_job(Requests(), current_job)


def test_what_is_asked_of_the_job_reaches_all_of_them() -> None:
    requests = Requests()
    first, second = in_a_job(requests, lambda: (current_job(), current_job()))

    requests.is_cancelled = True

    assert first.is_cancelled
    assert second.is_cancelled


def test_they_share_the_steps_that_were_met() -> None:
    first, second = in_a_job(
        Requests(),
        lambda: (current_job()._step("a"), current_job()._step("b")),
    )

    assert first.met is second.met


def test_outside_a_job_there_is_none() -> None:
    with pytest.raises(RelayError, match="no job is running here"):
        Context().run(current_job)

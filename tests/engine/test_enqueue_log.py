"""Each job that is enqueued is logged at DEBUG; nobody looks for each otherwise."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relay import Unique, enqueue_many, task
from relay.engine import enqueue_log
from tests.log_page import read_log_page

pytestmark = pytest.mark.django_db

LATER = datetime(2999, 1, 1, tzinfo=UTC)
PAGE = read_log_page()


@task(name="tests.told.one")
def one(number: int = 0) -> None: ...


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "relay.engine")
    return caplog


def read(heard: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    found = [vars(record) for record in heard.records if record.name == "relay.engine"]
    for each in found:
        level, fields = PAGE[each["event"]]
        assert each["levelname"] == level
        assert fields <= set(each)
    return found


def test_a_plain_job_is_told_of(heard: pytest.LogCaptureFixture) -> None:
    job = one.enqueue(7)

    [told] = read(heard)
    assert (told["event"], told["job_id"]) == ("job.enqueued", str(job.id))
    assert (told["task"], told["queue"]) == ("tests.told.one", "default")
    assert (told["run_at"], told["delay_s"], told["unique_key"]) == (None, None, None)


def test_what_is_due_later_says_when(heard: pytest.LogCaptureFixture) -> None:
    one.using(run_at=LATER, priority=5).enqueue()
    one.using(run_in=timedelta(minutes=2)).enqueue()

    first, second = read(heard)
    assert (first["run_at"], first["priority"]) == (LATER.isoformat(), 5)
    assert (second["run_at"], second["delay_s"]) == (None, 120.0)


def test_a_key_that_is_held_is_told_with_the_job_that_holds_it(
    heard: pytest.LogCaptureFixture,
) -> None:
    unique = one.using(unique=Unique())

    first = unique.enqueue(1)
    unique.enqueue(1)
    enqueue_many([unique.job(1), unique.job(2), one.job(3)])

    told = read(heard)
    assert [each["event"] for each in told] == [
        "job.enqueued",
        "job.deduplicated",
        "job.enqueued",
        "job.deduplicated",
        "job.enqueued",
    ]
    held = [each for each in told if each["event"] == "job.deduplicated"]
    assert {each["job_id"] for each in held} == {str(first.id)}
    assert len({each["unique_key"] for each in (told[0], *held)}) == 1


@pytest.mark.parametrize("options", [{}, {"tags": ["a"]}])
def test_each_of_many_is_told_of(
    options: dict[str, Any], heard: pytest.LogCaptureFixture
) -> None:
    made = one.using(**options) if options else one

    jobs = enqueue_many(made.job(number) for number in range(120))

    assert [each["job_id"] for each in read(heard)] == [str(job.id) for job in jobs]


def test_whether_to_tell_is_asked_once_for_a_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def asks(level: int) -> bool:
        asked.append(level)
        return False

    monkeypatch.setattr(enqueue_log.logger, "isEnabledFor", asks)

    one.enqueue()
    enqueue_many(one.job(number) for number in range(500))

    assert asked == [logging.DEBUG] * 2

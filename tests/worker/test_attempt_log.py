"""What reaches a logging handler of a failed attempt: all that Sentry needs."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from relay import Cancel, Retry, Snooze, task
from relay.models import Job
from relay.testing import drain, live_worker, wait_for

pytestmark = pytest.mark.django_db

error: BaseException = ValueError("of the test")


@task(name="tests.log.plain", max_retries=1)
def plain() -> None:
    raise error


@task(name="tests.log.coroutine", max_retries=1)
async def coroutine() -> None:
    await asyncio.sleep(0)
    raise error


@task(name="tests.log.secret", max_retries=1, sensitive=("card",))
def secret(card: str) -> None:
    raise ValueError(f"no money on {card}")


@task(name="tests.log.late", max_retries=5, retry_until=timedelta(microseconds=1))
def late() -> None:
    raise error


class Sentry(logging.Handler):
    """Collects as error trackers do: errors are events, what is below goes along."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def events(self) -> list[logging.LogRecord]:
        return [one for one in self.records if one.levelno >= logging.ERROR]


@pytest.fixture
def sentry() -> Iterator[Sentry]:
    handler = Sentry()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


@pytest.mark.parametrize("made", [plain, coroutine])
def test_a_failure_is_logged_with_the_error_itself(made: Any, sentry: Sentry) -> None:
    job = made.using(max_retries=0).enqueue()

    drain()

    [event] = sentry.events
    assert (event.name, event.levelname) == ("relay.worker", "ERROR")
    assert event.exc_info is not None
    kind, raised, frames = event.exc_info
    assert (kind, raised) == (ValueError, error)
    assert frames is not None
    assert frames.tb_frame.f_code.co_name == made.function.__name__  # none of relay's
    told = vars(event)
    assert told["job_id"] == str(job.id)
    assert (told["task"], told["queue"], told["attempt"]) == (made.name, "default", 1)


@pytest.mark.parametrize("made", [plain, coroutine])
def test_a_failure_that_is_retried_wakes_nobody(made: Any, sentry: Sentry) -> None:
    made.enqueue()

    drain(with_retries=True)

    first, second = [one for one in sentry.records if one.exc_info]
    assert (first.levelname, vars(first)["event"]) == ("WARNING", "job.retrying")
    assert (second.levelname, vars(second)["event"]) == ("ERROR", "job.failed")
    assert sentry.events == [second]


@pytest.mark.parametrize("asked", [Snooze(timedelta(hours=1)), Cancel("enough")])
def test_what_a_handler_asks_for_is_no_error(
    asked: BaseException, sentry: Sentry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "error", asked)
    plain.enqueue()

    drain()

    assert sentry.events == []
    assert not any(record.exc_info for record in sentry.records)


def test_a_retry_that_is_asked_for_shows_its_cause(
    sentry: Sentry, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Retry(after=timedelta(hours=1))
    asked.__cause__ = ConnectionError("the bank is closed")
    monkeypatch.setitem(globals(), "error", asked)
    plain.enqueue()

    drain()

    [record] = [one for one in sentry.records if one.exc_info]
    assert record.levelname == "WARNING"
    assert "the bank is closed" in logging.Formatter().format(record)


def test_of_sensitive_arguments_no_error_and_no_frame_is_handed_out(
    sentry: Sentry,
) -> None:
    key = base64.b64encode(bytes(32)).decode()
    with override_settings(RELAY={"ENCRYPTION_KEYS": {"a": key}}):
        secret.using(max_retries=0).enqueue("4111-1111")

        drain()

    [event] = sentry.events
    assert event.exc_info is None
    told = vars(event)
    assert "ValueError: no money on •••" in told["traceback"]
    assert "4111-1111" not in repr(told)


@pytest.mark.django_db(transaction=True)
def test_a_job_that_only_the_database_fails_is_logged_as_failed(
    sentry: Sentry,
) -> None:
    with live_worker():
        job = late.enqueue()
        wait_for(job, "failed")

    events = [vars(event)["event"] for event in sentry.events]
    assert events == ["job.failed"]
    assert Job.objects.get().error_class == "ValueError"

"""Each job that is enqueued is logged at DEBUG; nobody looks for each otherwise."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError
from django.test import override_settings

from relay import StateConflict, Unique, enqueue, enqueue_many, operations, task
from relay.engine import enqueue as insertion
from relay.engine import enqueue_log
from relay.ids import uuid7
from relay.logging import of_request
from relay.models import Job
from relay.operations import Actor
from relay.testing import drain
from tests.log_page import read_log_page
from tests.meters import Sums

pytestmark = pytest.mark.django_db

LATER = datetime(2999, 1, 1, tzinfo=UTC)
PAGE = read_log_page()


@task(name="tests.told.one")
def one(number: int = 0) -> None: ...


@task(name="tests.told.parent")
def parent() -> None:
    one.enqueue()


@task(name="tests.told.secret", sensitive=("card",))
def secret(card: str, password: str, note: str = "", *keys: str) -> None: ...


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


def ready_row(number: int) -> insertion.ReadyRow:
    arguments = json.dumps({"args": [number], "kwargs": {}})
    return (uuid7(), "tests.told.one", "default", 0, 25, arguments)


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


def test_of_many_that_are_told_of_a_part_at_a_time_is_kept(
    heard: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insertion, "LOGGED_ROWS", 60)
    taken: list[int] = []

    def calls() -> Iterator[insertion.ReadyRow]:
        for number in range(150):
            # By now those of the parts before are told of, and let go of.
            taken.append(number - len(heard.records))
            yield ready_row(number)

    insertion.insert_ready(calls(), using="default")

    assert max(taken) == 59
    assert len(read(heard)) == Job.objects.count() == 150


def test_many_that_are_told_of_are_inserted_all_or_none(
    heard: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insertion, "LOGGED_ROWS", 2)
    rows = [ready_row(number) for number in range(5)]

    with pytest.raises(IntegrityError):
        insertion.insert_ready([*rows, rows[0]], using="default")

    assert Job.objects.count() == 0


def test_a_replay_is_counted_and_told_of_as_any_job(
    heard: pytest.LogCaptureFixture, sums: Sums
) -> None:
    job = one.using(priority=3).enqueue(7)
    drain()
    heard.clear()

    with override_settings(RELAY={"LOG_ARGS": True}):
        new = job.replay()
        with pytest.raises(StateConflict):
            job.replay()

    [told] = read(heard)
    assert (told["event"], told["job_id"]) == ("job.enqueued", str(new.id))
    assert (told["task"], told["priority"]) == ("tests.told.one", 3)
    assert json.loads(told["arguments"]) == {"args": [7], "kwargs": {}}
    enqueued = sums.of("relay_jobs_enqueued_total")
    assert enqueued == {("default", "tests.told.one"): 2}


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


def test_it_is_told_what_an_enqueue_comes_from(
    heard: pytest.LogCaptureFixture,
) -> None:
    actor = Actor(name="ada", source="cli", request_id="r-1")

    parent.enqueue()
    operations.enqueue_job(actor, "tests.told.one", [1])
    with of_request("r-2"):
        one.enqueue()
    with of_request(None):
        enqueue_many([one.job()] * 2)

    found = [(each["source"], each["request_id"]) for each in read(heard)]
    assert found == [
        ("code", None),
        ("cli", "r-1"),
        ("code", "r-2"),
        ("code", None),
        ("code", None),
    ]


def test_a_request_goes_with_its_jobs_and_with_theirs(
    heard: pytest.LogCaptureFixture,
) -> None:
    with of_request("r" * 200):
        parent.using(meta={"tenant": 7}).enqueue()
        enqueue_many([parent.job()])

    drain()

    told = read(heard)
    cut = "r" * 127 + "…"
    assert [each["source"] for each in told] == ["code", "code", "job", "job"]
    assert {each["request_id"] for each in told} == {cut}
    found = Job.objects.filter(task="tests.told.one").values_list("meta", flat=True)
    assert list(found) == [{"otel": {"request_id": cut}}] * 2


def test_without_a_request_a_job_carries_nothing() -> None:
    one.enqueue()
    enqueue_many([one.job()])

    assert set(Job.objects.values_list("meta", flat=True)) == {None}


def test_arguments_are_told_of_where_they_are_asked_for(
    heard: pytest.LogCaptureFixture,
) -> None:
    one.enqueue(7)
    with override_settings(RELAY={"LOG_ARGS": True}):
        one.enqueue(8)
        enqueue_many([one.job(9)])

    first, second, third = read(heard)
    assert "arguments" not in first
    assert json.loads(second["arguments"]) == {"args": [8], "kwargs": {}}
    assert json.loads(third["arguments"]) == {"args": [9], "kwargs": {}}


def test_no_secret_is_told_among_them(heard: pytest.LogCaptureFixture) -> None:
    key = base64.b64encode(bytes(32)).decode()
    with override_settings(
        RELAY={
            "LOG_ARGS": True,
            "ENCRYPTION_KEYS": {"a": key},
            "REDACTED_NAMES": "pass",
        }
    ):
        secret.enqueue("4111", "hunter2", "shown", "also")
        secret.enqueue(card="4111", password="hunter2")
        enqueue("elsewhere.pay", "4111", kwargs={"passphrase": {"a": "hunter2"}})

    first, second, third = [json.loads(each["arguments"]) for each in read(heard)]
    assert first == {"args": ["•••", "•••", "shown", "also"], "kwargs": {}}
    assert second == {"args": [], "kwargs": {"card": "•••", "password": "•••"}}
    assert third == {"args": ["•••"], "kwargs": {"passphrase": "•••"}}
    assert "4111" not in heard.text
    assert "hunter2" not in heard.text


def test_of_long_ones_the_beginning_is_told(heard: pytest.LogCaptureFixture) -> None:
    with override_settings(RELAY={"LOG_ARGS": True}):
        enqueue("elsewhere.pay", kwargs={"text": "x" * 5_000})

    [told] = read(heard)
    assert len(told["arguments"]) == 1_000
    assert told["arguments"].endswith("x…")

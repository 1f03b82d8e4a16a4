"""Events and fields of logs: a contract with whoever reads them."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import time
from collections.abc import Iterator
from contextvars import copy_context
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from relay import Cancel, Retry, Snooze, current_job, origin, task
from relay.logging import JobContext, JSONFormatter, KeyValueFormatter, of_request
from relay.testing import drain
from tests.log_page import read_log_page

OF_A_JOB = {"job_id", "task", "queue", "attempt", "failures", "max_retries"}

own = logging.getLogger("shop.tasks")


@task(name="tests.fields.act", max_retries=1)
def act(how: str) -> None:
    own.warning("acting", extra={"how": how, "attempt": "mine"})
    if how == "late":
        time.sleep(0.002)
    if how in ("fail", "late"):
        raise ValueError('no = "way"\n')
    if how == "retry":
        raise Retry(after=timedelta(days=1))
    if how == "snooze":
        raise Snooze(timedelta(days=1))
    if how == "cancel":
        raise Cancel


@task(name="tests.fields.rest")
def rest() -> None:
    time.sleep(0.002)


@task(name="tests.fields.arest")
async def arest() -> None:
    await asyncio.sleep(0.002)


@task(name="tests.fields.acoroutine")
async def acoroutine() -> None:
    own.warning("acting")


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What a handler with JSONFormatter writes, from DEBUG on."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(JSONFormatter())
    relay, root = logging.getLogger("relay"), logging.getLogger()
    level = relay.level
    relay.setLevel(logging.DEBUG)
    root.addHandler(handler)
    yield text
    root.removeHandler(handler)
    relay.setLevel(level)


def read(lines: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("how", "event"),
    [
        ("complete", "job.completed"),
        ("fail", "job.failed"),
        ("retry", "job.retrying"),
        ("snooze", "job.snoozed"),
        ("cancel", "job.cancelled"),
    ],
)
def test_the_end_of_an_attempt_has_the_fields_of_the_page(
    how: str, event: str, lines: io.StringIO
) -> None:
    act.using(max_retries=0 if how == "fail" else 1).enqueue(how)

    drain()

    found = {line["event"]: line for line in read(lines) if "event" in line}
    for name in ("job.started", event):
        level, fields = read_log_page()[name]
        line = found[name]
        general = {"time", "level", "logger", "message", "event", "worker_id"}
        assert set(line) - general - {"exception"} == fields
        assert line["level"] == level
    assert ("exception" in found[event]) == (how in ("fail", "retry"))


@pytest.mark.django_db
def test_a_line_of_the_projects_own_says_of_which_job_it_is(lines: io.StringIO) -> None:
    first, second = act.enqueue("complete"), acoroutine.enqueue()

    drain()
    own.warning("outside")

    mine = [line for line in read(lines) if line["logger"] == "shop.tasks"]
    assert {line.get("job_id") for line in mine} == {
        str(first.id),
        str(second.id),
        None,
    }
    one = next(line for line in mine if line.get("task") == "tests.fields.act")
    assert set(one) >= OF_A_JOB | {"worker_id"}
    assert (one["how"], one["attempt"]) == ("complete", "mine")


@pytest.mark.django_db
def test_lines_of_a_job_name_the_request_that_it_comes_of(lines: io.StringIO) -> None:
    with of_request("r-1"):
        act.enqueue("complete")
        acoroutine.enqueue()
        own.warning("enqueued")

    drain()
    own.warning("outside")

    found = read(lines)
    named = [line for line in found if line.get("request_id") == "r-1"]
    events = [line.get("event") for line in named]
    assert events.count("job.started") == events.count("job.completed") == 2
    mine = [line["message"] for line in named if line["logger"] == "shop.tasks"]
    assert sorted(mine) == ["acting", "acting", "enqueued"]
    assert "request_id" not in found[-1]


@pytest.mark.django_db
def test_a_line_of_another_job_has_nothing_of_the_running_one(
    lines: io.StringIO,
) -> None:
    @task(name="tests.fields.enqueues")
    def enqueues() -> None:
        act.enqueue("complete")

    enqueues.enqueue()

    drain()

    events = [line for line in read(lines) if line.get("event") == "job.enqueued"]
    assert [line["source"] for line in events] == ["code", "job"]
    assert "attempt" not in events[1]
    assert "worker_id" not in events[1]


@pytest.mark.django_db
@override_settings(RELAY={"LOG_ARGS": True, "REDACTED_NAMES": "how"})
def test_an_attempt_tells_its_arguments_where_they_are_asked_for(
    lines: io.StringIO,
) -> None:
    act.using(max_retries=0).enqueue("fail")

    drain()

    name = "arguments"
    told = {line["event"]: line[name] for line in read(lines) if name in line}
    assert told.keys() == {"job.enqueued", "job.started", "job.failed"}
    assert {json.dumps(json.loads(text)["args"]) for text in told.values()} == {
        json.dumps(["•••"])
    }


@pytest.mark.parametrize(
    "carried", ['["request_id"]', '{"request_id": 7}', "request_id"]
)
def test_a_request_that_cannot_be_read_names_none(carried: str) -> None:
    copy_context().run(origin.take_over, carried)

    assert origin.request_id() is None


def record(**extra: Any) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "a", "levelname": "INFO", "msg": "x %s", "args": ("y",), "created": 0}
    )
    vars(made).update(extra)
    return made


def test_key_and_value_are_quoted_where_they_must_be() -> None:
    line = KeyValueFormatter().format(record(bare="a.b/c", none=None, odd='a="b"\n'))

    assert line == (
        'time=1970-01-01T00:00:00.000Z level=INFO logger=a message="x y" bare=a.b/c '
        'none="" odd="a=\\"b\\"\\n"'
    )


def test_json_takes_whatever_is_given_as_a_field() -> None:
    line = JSONFormatter().format(record(number=float("nan"), thing={1, 2} & {1}))

    assert json.loads(line)["number"] == "nan"
    assert json.loads(line)["thing"] == "{1}"


def test_a_traceback_is_one_field() -> None:
    try:
        raise ValueError("of the test")
    except ValueError as error:
        one = record(exc_info=(type(error), error, error.__traceback__))

    line = JSONFormatter().format(one)

    assert "\n" not in line
    assert json.loads(line)["exception"].endswith("ValueError: of the test")


def test_the_filter_leaves_a_record_outside_of_jobs_as_it_is() -> None:
    one = record()

    assert JobContext().filter(one)

    assert not OF_A_JOB & set(vars(one))


@pytest.mark.django_db
def test_the_log_of_a_job_keeps_its_own_fields(lines: io.StringIO) -> None:
    @task(name="tests.fields.tells")
    def tells() -> None:
        current_job().log.warning("told")

    job = tells.enqueue()

    drain()

    [line] = [line for line in read(lines) if line["logger"] == "relay.job"]
    assert (line["job_id"], line["attempt"]) == (str(job.id), 1)


@pytest.mark.django_db
@override_settings(RELAY={"SLOW_JOB": timedelta(milliseconds=1)})
@pytest.mark.parametrize("how", ["plain", "coroutine", "fail"])
def test_an_attempt_that_runs_long_is_told_of(how: str, lines: io.StringIO) -> None:
    made = {"plain": rest, "coroutine": arest, "fail": act}[how]
    made.using(max_retries=0).enqueue(*(["late"] if how == "fail" else []))

    drain()

    [slow] = [line for line in read(lines) if line.get("event") == "job.slow"]
    level, fields = read_log_page()["job.slow"]
    assert slow["level"] == level
    assert set(slow) >= fields
    assert slow["duration_s"] >= slow["threshold_s"] == 0.001


@pytest.mark.django_db
@pytest.mark.parametrize("slow", [None, timedelta(hours=1)])
def test_others_are_not(slow: timedelta | None, lines: io.StringIO) -> None:
    with override_settings(RELAY={"SLOW_JOB": slow}):
        rest.enqueue()

        drain()

    assert "job.slow" not in {line.get("event") for line in read(lines)}

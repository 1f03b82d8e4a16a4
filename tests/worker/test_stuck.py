"""When a child is lost to a job that does not stop."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.test import override_settings

from relay import Backoff, task
from relay.engine.claim import ClaimedJob
from relay.ids import uuid7
from relay.worker.shared import SharedState, SlotTable
from relay.worker.stuck import Stuck, in_hand, read_timed_out, verdict_if_killed

UNTIL = datetime(2999, 1, 1, tzinfo=UTC)
AGAIN = (8.0, 0.0)
HOUR = timedelta(hours=1)


@task(
    name="tests.stuck.plain", backoff=Backoff(base=timedelta(seconds=8), jitter=False)
)
def plain() -> None: ...


@task(name="tests.stuck.for_an_hour", backoff=timedelta(0), retry_until=HOUR)
def for_an_hour() -> None: ...


@task(name="tests.stuck.until_then", backoff=timedelta(0), retry_until=UNTIL)
def until_then() -> None: ...


@pytest.fixture(autouse=True)
def told() -> Iterator[list[int]]:
    """Take in the SIGTERM that a child would get."""
    found: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: found.append(number))
    yield found
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def table() -> SlotTable:
    made = SharedState(1, 8).tables[0]
    made.reset(uuid7())
    return made


def begin(table: SlotTable, *, late_by: float | None = None) -> tuple[int, UUID]:
    job_id = uuid7()
    entry = table.begin(job_id.bytes, 1)
    if late_by is not None:
        table.limit(entry, time.monotonic() - late_by, AGAIN)
    return entry, job_id


def stuck(**settings: Any) -> Stuck:
    relay = {"GRACE": HOUR, "CANCEL_GRACE": timedelta(0), **settings}
    with override_settings(RELAY=relay):
        return Stuck()


def test_a_child_whose_jobs_have_time_left_is_left_alone(
    table: SlotTable, told: list[int]
) -> None:
    begin(table)
    begin(table, late_by=-3_600)

    assert not stuck().must_kill(os.getpid(), table)
    assert told == []


def test_a_child_with_nothing_but_late_jobs_is_killed_at_once(table: SlotTable) -> None:
    begin(table, late_by=1)
    begin(table, late_by=2)

    assert stuck().must_kill(os.getpid(), table)


def test_a_child_with_others_is_told_to_drain_once_and_killed_when_they_have_ended(
    table: SlotTable, told: list[int]
) -> None:
    watching = stuck()
    begin(table, late_by=1)
    other, _ = begin(table)

    assert not watching.must_kill(os.getpid(), table)
    assert not watching.must_kill(os.getpid(), table)
    assert told == [signal.SIGTERM]

    table.end(other)
    assert watching.must_kill(os.getpid(), table)


def test_a_child_is_killed_when_the_grace_of_the_others_is_over(
    table: SlotTable,
) -> None:
    begin(table, late_by=1)
    begin(table)

    assert stuck(GRACE=timedelta(0)).must_kill(os.getpid(), table)


def test_nobody_is_killed_for_a_handler_that_has_ended(table: SlotTable) -> None:
    """Its end may not be written yet, as while the database is away."""
    entry, _ = begin(table, late_by=1)
    table.note_over(entry)

    assert not stuck().must_kill(os.getpid(), table)
    assert in_hand(table)["timed_out"] == []


def test_a_place_that_is_used_again_has_no_limit_of_the_job_before(
    table: SlotTable,
) -> None:
    entry, _ = begin(table, late_by=1)
    table.end(entry)
    begin(table)

    assert not stuck().must_kill(os.getpid(), table)


def test_a_cancelled_job_that_goes_on_costs_its_child(table: SlotTable) -> None:
    watching = stuck()
    _, job_id = begin(table)

    watching.note_cancels(table.worker_id, [(str(job_id), 1)])

    assert watching.must_kill(os.getpid(), table)


def test_a_cancelled_job_has_its_grace_and_another_attempt_is_another(
    table: SlotTable,
) -> None:
    patient, watching = stuck(CANCEL_GRACE=HOUR), stuck()
    _, job_id = begin(table)

    patient.note_cancels(table.worker_id, [(str(job_id), 1)])
    watching.note_cancels(table.worker_id, [(str(job_id), 2)])

    assert not patient.must_kill(os.getpid(), table)
    assert not watching.must_kill(os.getpid(), table)


def test_what_the_keeper_names_no_more_is_forgotten(table: SlotTable) -> None:
    watching = stuck()
    _, job_id = begin(table)
    watching.note_cancels(table.worker_id, [(str(job_id), 1)])
    watching.note_cancels(table.worker_id, [])

    assert not watching.must_kill(os.getpid(), table)


def test_the_late_ones_are_told_apart_from_those_that_a_death_interrupts(
    table: SlotTable,
) -> None:
    _, late = begin(table, late_by=1)
    _, other = begin(table)

    found = in_hand(table)

    assert found["timed_out"] == [[str(late), 1, *AGAIN]]
    assert found["started"] == [(str(other), 1)]


@pytest.mark.parametrize(
    ("name", "failures", "verb", "delay_seconds", "until"),
    [
        ("plain", 0, "retry", 8.0, None),
        ("plain", 3, "fail", 0.0, None),
        ("for_an_hour", 0, "retry", 0.0, HOUR),
        ("until_then", 0, "retry", 0.0, UNTIL),
    ],
)
def test_a_killed_job_ends_by_its_task_s_rules(
    table: SlotTable,
    name: str,
    failures: int,
    verb: str,
    delay_seconds: float,
    until: object,
) -> None:
    job = ClaimedJob(
        uuid7(), f"tests.stuck.{name}", "default", 0, 1, 4, {}, failures, 0, 3, 1_000
    )
    table.limit(table.begin(job.id.bytes, 4), 1.0, verdict_if_killed(job))

    [settled] = read_timed_out(in_hand(table))

    assert (settled.id, settled.attempt, settled.is_charged) == (job.id, 4, True)
    assert (settled.verb, settled.delay_seconds) == (verb, delay_seconds)
    assert settled.until == until
    assert settled.error_class == "JobTimeout"

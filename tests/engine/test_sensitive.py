"""Sensitive arguments in rows: run, replayed, moved, and without a key."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings

from relay import (
    ArgumentError,
    DecodeError,
    JobHandle,
    MissingKey,
    ScheduleError,
    SettingsError,
    TaskFailed,
    Unique,
    cron,
    enqueue,
    enqueue_many,
    task,
)
from relay.models import Attempt, Job, JobState, Schedule
from relay.scheduler import acts, registry
from relay.testing import assert_enqueued, drain, perform, run_job

pytestmark = pytest.mark.django_db(transaction=True)

CANARY = "canary-4111-1111"


def key(number: int) -> str:
    return base64.b64encode(bytes([number]) * 32).decode()


OLD: dict[str, Any] = {"ENCRYPTION_KEYS": {"old": key(1)}}
NEW: dict[str, Any] = {"ENCRYPTION_KEYS": {"new": key(2), "old": key(1)}}
ONLY_NEW: dict[str, Any] = {"ENCRYPTION_KEYS": {"new": key(2)}}

seen: list[Any] = []


@pytest.fixture(autouse=True)
def keys() -> Iterator[None]:
    seen.clear()
    with override_settings(RELAY=OLD):
        yield


@task(name="tests.sensitive_rows.pay", sensitive=("card",), max_retries=0)
def pay(order: int, card: Any = "none") -> None:
    seen.append(card)


@task(name="tests.sensitive_rows.apay", sensitive=("card",))
async def apay(card: Any) -> None:
    seen.append(card)


@task(name="tests.sensitive_rows.decline", sensitive=("card",), max_retries=0)
def decline(card: str) -> None:
    raise ValueError(f"{card} was declined")


@task(name="tests.sensitive_rows.session", sensitive=True)
def session(user: str) -> dict[str, str]:
    return {"of": user, "secret": CANARY}


def stored(handle: JobHandle[Any]) -> str:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT job::text FROM relay_job AS job WHERE id = %s", [handle.id]
        )
        return str(cursor.fetchone()[0])


def key_of(handle: JobHandle[Any]) -> str:
    return str(Job.objects.get(pk=handle.id).args["args"][1]["key"])


def test_a_handler_is_given_what_its_row_does_not_show() -> None:
    handle = pay.enqueue(7, CANARY)
    other = apay.enqueue({"number": CANARY})

    assert CANARY not in stored(handle) + stored(other)
    assert drain().completed == 2
    assert seen == [CANARY, {"number": CANARY}]


def test_many_enqueued_at_once_are_encrypted_each_for_itself() -> None:
    request = pay.job(1, CANARY)
    handles = enqueue_many([request, request, session.job("ada")])

    assert len({handle.id for handle in handles}) == 3
    assert not any(CANARY in stored(handle) for handle in handles)
    assert drain().completed == 3
    assert seen == [CANARY, CANARY]


def test_a_unique_job_is_encrypted() -> None:
    unique = Unique(on=("order",))
    handle = pay.using(unique=unique).enqueue(7, CANARY)

    assert pay.using(unique=unique).enqueue(7, "other").id == handle.id
    assert CANARY not in stored(handle)
    assert drain().completed == 1
    assert seen == [CANARY]


def test_by_name_without_the_code_what_is_named_is_encrypted() -> None:
    handle = enqueue("far.away", 7, kwargs={"card": CANARY}, sensitive=("card",))
    whole = enqueue("far.away", CANARY, sensitive=True)

    assert CANARY not in stored(handle) + stored(whole)
    assert Job.objects.get(pk=handle.id).args["args"] == [7]
    with pytest.raises(ArgumentError, match="pass card by name"):
        enqueue("far.away", 7, CANARY, sensitive=("card",))


def test_by_name_with_the_code_what_the_task_names_is_encrypted() -> None:
    assert CANARY not in stored(enqueue(pay.name, 7, CANARY))


def test_a_result_is_encrypted_and_read_by_its_handle() -> None:
    handle = session.enqueue("ada")
    drain()

    assert CANARY not in stored(handle)
    assert handle.result(timeout=0) == {"of": "ada", "secret": CANARY}
    with override_settings(RELAY=ONLY_NEW), pytest.raises(MissingKey):
        handle.result(timeout=0)


def test_a_handlers_error_is_stored_without_the_value() -> None:
    handle = decline.enqueue(CANARY)
    drain()

    attempt = Attempt.objects.get(job_id=handle.id)
    assert attempt.error_message == "••• was declined"
    assert "••• was declined" in str(attempt.traceback)
    assert CANARY not in str(attempt.traceback)
    with pytest.raises(TaskFailed) as failed:
        handle.result(timeout=0)
    assert CANARY not in str(failed.value)


def test_without_its_key_a_job_is_handed_back_and_runs_when_the_key_is_there() -> None:
    handle = pay.enqueue(7, CANARY)

    with override_settings(RELAY=ONLY_NEW):
        outcome = run_job(handle)
    assert outcome.state == JobState.RETRYING
    assert isinstance(outcome.error, MissingKey)
    job = Job.objects.get(pk=handle.id)
    assert (job.failures, job.error_class) == (0, "MissingKey")
    assert "'old' is not in" in str(job.error_message)

    assert run_job(handle).state == JobState.COMPLETED
    assert seen == [CANARY]


def test_an_envelope_moved_to_another_row_fails_that_job_alone() -> None:
    one, other = pay.enqueue(1, CANARY), pay.enqueue(2, "harmless")
    Job.objects.filter(pk=other.id).update(args=Job.objects.get(pk=one.id).args)

    assert run_job(one).state == JobState.COMPLETED
    outcome = run_job(other)

    assert outcome.state == JobState.FAILED
    assert isinstance(outcome.error, DecodeError)
    assert seen == [CANARY]


def test_a_replay_and_its_replay_can_be_read_and_take_the_current_key() -> None:
    first = pay.enqueue(7, CANARY)
    drain()

    with override_settings(RELAY=NEW):
        second = first.replay()
        assert key_of(second) == "new"
        assert drain().completed == 1
        third = second.replay()
        assert drain().completed == 1

    assert seen == [CANARY] * 3
    assert key_of(first) == "old"
    assert CANARY not in stored(third)


def test_a_replay_without_the_key_is_refused_and_changes_nothing() -> None:
    handle = pay.enqueue(7, CANARY)
    drain()

    with override_settings(RELAY=ONLY_NEW), pytest.raises(MissingKey):
        handle.replay()

    assert Job.objects.count() == 1


def test_a_replay_of_a_moved_envelope_is_refused() -> None:
    one, other = pay.enqueue(1, CANARY), pay.enqueue(2, "harmless")
    drain()
    Job.objects.filter(pk=other.id).update(args=Job.objects.get(pk=one.id).args)

    with pytest.raises(DecodeError):
        other.replay()

    assert Job.objects.count() == 2


def test_without_keys_nothing_is_enqueued() -> None:
    with override_settings(RELAY={}), pytest.raises(SettingsError):
        pay.enqueue(7, CANARY)

    assert not Job.objects.exists()


# --- schedules: their rows are not encrypted -----------------------------------------


def test_a_schedule_may_not_give_sensitive_arguments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_declared", {})

    with pytest.raises(ScheduleError, match="sensitive") as refused:
        cron("* * * * *", args=(1, CANARY))(pay)
    assert CANARY not in str(refused.value)
    cron("* * * * *", args=(1,))(pay)


def test_a_schedules_row_that_gives_them_is_not_fired() -> None:
    row = Schedule.objects.create(
        name="bad",
        task=pay.name,
        cron="* * * * *",
        args={"args": [1], "kwargs": {"card": CANARY}},
    )

    with pytest.raises(ScheduleError, match="sensitive"):
        acts.run_now(row.id, actor=None, using="default")


# --- relay.testing -------------------------------------------------------------------


def test_assertions_compare_what_the_handler_would_be_given() -> None:
    pay.enqueue(7, CANARY)

    assert_enqueued(pay, args={"order": 7, "card": CANARY})
    with pytest.raises(AssertionError):
        assert_enqueued(pay, args={"card": "another"})


def test_an_attempt_without_a_row_runs_as_ever() -> None:
    assert perform(pay, 7, CANARY).state == JobState.COMPLETED
    assert perform(session, "ada").result == {"of": "ada", "secret": CANARY}

"""Retention: what tasks, queues and settings say, and which of them holds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from relay import ArgumentError, Retention, SettingsError, task
from relay.conf import get_settings, read_settings
from relay.engine import rules
from relay.exceptions import RelayError
from relay.retention import DEFAULT

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def test_the_defaults_are_a_day_and_a_month() -> None:
    assert get_settings().retention == Retention(
        completed=DAY, failed=30 * DAY, cancelled=30 * DAY, result=None
    )


def test_a_bare_time_is_that_of_completed_jobs() -> None:
    assert Retention.of(HOUR) == Retention(completed=HOUR)
    assert Retention.of(None) == Retention(completed=None)
    assert Retention.of(DEFAULT) == Retention()


def test_a_task_comes_before_its_queue_and_that_before_the_settings(
    settings: Any,
) -> None:
    settings.RELAY = {
        "QUEUES": {"mail": {"RETENTION": Retention(failed=None, result=HOUR)}},
        "RETENTION_CANCELLED": 2 * DAY,
    }

    said = rules.retention(Retention(result=None, completed=timedelta(0)), "mail")

    assert said == Retention(
        completed=timedelta(0), failed=None, cancelled=2 * DAY, result=None
    )
    assert rules.retention(Retention(), "default") == get_settings().retention


def test_queues_are_names_or_a_dict_with_what_holds_for_their_jobs() -> None:
    plain = read_settings({"QUEUES": ["a", "b"]})
    told = read_settings({"QUEUES": {"a": {}, "b": {"RETENTION": HOUR}}})

    assert plain.queues == told.queues == ("a", "b")
    assert plain.queue_retention == {}
    assert told.queue_retention == {
        "a": Retention(),
        "b": Retention(completed=HOUR),
    }


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"QUEUES": {"a": HOUR}}, r"RELAY\['QUEUES'\]\['a'\] is .*: give a dict"),
        ({"QUEUES": {"a": {"retention": HOUR}}}, "nothing but RETENTION"),
        ({"QUEUES": {"a": {"RETENTION": 60}}}, r"\['a'\]: retention=60: give"),
        ({"QUEUES": {"a b": {}}}, "'a b' cannot name a queue"),
        ({"RETENTION_CANCELLED": 60}, r"RELAY\['RETENTION_CANCELLED'\] is 60"),
        ({"RETENTION_RESULT": -DAY}, "RETENTION_RESULT"),
        ({"RETENTION": Retention()}, "unknown key 'RETENTION'"),
        ({"QUEUE_RETENTION": {}}, "unknown key 'QUEUE_RETENTION'"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_kept_are_refused(values: Any, named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        read_settings(values)


@pytest.mark.parametrize("field", ["completed", "failed", "cancelled", "result"])
@pytest.mark.parametrize("value", [60, -DAY, "1 day", True])
def test_a_retention_is_a_time_or_none(field: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=f"{field}=.*: give a timedelta of 0"):
        Retention(**{field: value})


def test_what_a_task_says_of_its_jobs_is_declared_as_it_is_registered() -> None:
    made = task(name="tests.retention.declared", retention=Retention(failed=HOUR))
    made(kept_apart)

    assert '"tests.retention.declared": 3600.0' in rules.keeps()

    task(name="tests.retention.declared")(kept_apart)
    assert "tests.retention.declared" not in rules.keeps()


def kept_apart() -> None: ...


# --- on_failure ----------------------------------------------------------------------


@task(name="tests.retention.follower")
def follower(failure: object) -> None: ...


@task(name="tests.retention.two")
def takes_two(failure: object, more: int) -> None: ...


@task(name="tests.retention.secret", sensitive=True)
def secret(failure: object) -> None: ...


@pytest.mark.parametrize(
    ("on_failure", "named"),
    [
        (None, "on_failure=None of .*: give a task, defined above"),
        (kept_apart, "give a task"),
        ("tests.retention.follower", "give a task"),
        (takes_two, "cannot be called with a relay.Failure alone .*more"),
        (secret, "is declared with sensitive="),
    ],
    ids=str,
)
def test_what_cannot_follow_a_failure_is_refused(on_failure: Any, named: str) -> None:
    with pytest.raises(RelayError, match=named):
        task(name="tests.retention.followed", on_failure=on_failure)(kept_apart)

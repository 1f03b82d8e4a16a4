"""What Django expects of a run (tests/tasks/test_immediate_backend.py), in a worker."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.contenttypes.models import ContentType
from django.dispatch import receiver

from relay import ArgumentError, codec
from relay.backends import JobCancelled, RelayBackend
from relay.engine import control
from relay.handles import JobHandle
from relay.models import Attempt, Job
from tests.backends import tasks
from tests.backends.api import (
    LIBRARY,
    TaskResultStatus,
    default_task_backend,
    task_started,
)
from tests.backends.conftest import Work

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])


def check_ended(result: Any, status: Any) -> None:
    assert result.status == status
    assert result.is_finished is True
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.last_attempted_at == result.started_at
    assert result.attempts == len(result.worker_ids) == 1


@pytest.mark.parametrize(
    "made", [tasks.noop, tasks.noop_bare, tasks.noop_async], ids=lambda made: made.name
)
def test_a_task_runs_and_its_result_can_be_read(made: Any, work: Work) -> None:
    result = made.enqueue(1, two=3)

    work()

    assert result.status == TaskResultStatus.READY
    result.refresh()
    check_ended(result, TaskResultStatus.SUCCESSFUL)
    assert result.return_value is None
    assert result.task == made
    assert (result.args, result.kwargs) == ([1], {"two": 3})
    assert result.errors == []
    assert made.get_result(result.id) == result


@pytest.mark.parametrize(
    "made", [tasks.answer, tasks.answer_async], ids=lambda made: made.name
)
def test_a_task_of_async_code_gives_its_return_value(made: Any, work: Work) -> None:
    result = async_to_sync(made.aenqueue)()

    work()

    async_to_sync(result.arefresh)()
    check_ended(result, TaskResultStatus.SUCCESSFUL)
    assert result.return_value == 42


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (tasks.value_error, ValueError),
        (tasks.value_error_async, ValueError),
        (tasks.system_exit, SystemExit),
        (tasks.keyboard_interrupt, KeyboardInterrupt),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_an_error_fails_the_task_and_is_kept_and_logged(
    made: Any, error: type[BaseException], work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    result = made.enqueue()

    with caplog.at_level(logging.ERROR, LIBRARY):
        work()

    message = f"This task failed due to {error.__name__}"
    (record,) = [each for each in caplog.records if each.name == LIBRARY]
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == message
    result.refresh()
    check_ended(result, TaskResultStatus.FAILED)
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value
    (kept,) = result.errors
    assert kept.exception_class is error
    assert kept.traceback.endswith(f"{error.__name__}: {message}\n")
    assert kept.traceback.count("File ") == 1  # the task's own frame, none of relay's
    assert made.get_result(result.id) == result


def test_an_error_within_an_error_is_kept(work: Work) -> None:
    result = tasks.nested_error.enqueue()

    work()

    result.refresh()
    check_ended(result, TaskResultStatus.FAILED)
    assert result._return_value is None
    assert result.errors[0].exception_class is ValueError
    assert 'ValueError(ValueError("This task failed"))' in result.errors[0].traceback


def test_an_error_of_ones_own_class_is_found_behind_its_cause(work: Work) -> None:
    result = tasks.own_error.enqueue()

    work()

    result.refresh()
    assert result.errors[0].exception_class is tasks.OwnError


def test_a_return_value_that_is_no_json_fails_the_task(work: Work) -> None:
    result = tasks.unserialisable.enqueue()

    work()

    result.refresh()
    check_ended(result, TaskResultStatus.FAILED)
    assert issubclass(result.errors[0].exception_class, TypeError)
    assert "Unsupported type" in result.errors[0].traceback
    assert "result['when'][0]" in result.errors[0].traceback


def test_the_log_tells_of_each_step(
    work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, LIBRARY):
        good = tasks.noop.enqueue()
        work()
        bad = tasks.value_error.enqueue()
        work()

    lines = [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == LIBRARY
    ]
    path = "path=tests.backends.tasks."
    assert lines == [
        ("DEBUG", f"Task id={good.id} {path}noop enqueued backend=default"),
        ("INFO", f"Task id={good.id} {path}noop state=RUNNING"),
        ("INFO", f"Task id={good.id} {path}noop state=SUCCESSFUL"),
        ("DEBUG", f"Task id={bad.id} {path}value_error enqueued backend=default"),
        ("INFO", f"Task id={bad.id} {path}value_error state=RUNNING"),
        ("ERROR", f"Task id={bad.id} {path}value_error state=FAILED"),
    ]
    assert "NoneType" not in caplog.text


def test_a_context_knows_its_task(work: Work) -> None:
    result = tasks.task_id.enqueue()

    work()

    result.refresh()
    assert result.return_value == result.id


def test_a_context_counts_the_running_attempt(work: Work) -> None:
    result = tasks.check_context.enqueue(1)
    coroutine = tasks.check_context_async.enqueue(attempt=1)

    work()

    result.refresh()
    coroutine.refresh()
    assert result.return_value == ["RUNNING", [1], {}, result.worker_ids]
    assert coroutine.return_value == 1


def test_a_context_is_no_argument_at_enqueue() -> None:
    with pytest.raises(ArgumentError, match="missing a required argument: 'attempt'"):
        tasks.check_context.enqueue()


def test_a_plain_call_of_a_task_that_takes_context_is_the_functions(work: Work) -> None:
    with pytest.raises(TypeError):
        tasks.check_context.call(1)


# --- signals -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "last"),
    [
        (tasks.noop, "SUCCESSFUL"),
        (tasks.noop_async, "SUCCESSFUL"),
        (tasks.value_error, "FAILED"),
        (tasks.value_error_async, "FAILED"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_signals_come_from_the_backends_class(
    made: Any, last: str, work: Work, told: list[Any]
) -> None:
    made.enqueue()
    work()

    assert told == [
        ("task_enqueued", RelayBackend, "READY"),
        ("task_started", RelayBackend, "RUNNING"),
        ("task_finished", RelayBackend, last),
    ]


def test_a_receiver_sees_the_whole_result(work: Work) -> None:
    seen: list[Any] = []

    @receiver(task_started)
    def look(task_result: Any, **_: Any) -> None:
        seen.append(task_result)

    try:
        result = tasks.add.using(priority=4).enqueue(1, b=2)
        work()
    finally:
        task_started.disconnect(look)

    (given,) = seen
    assert given.id == result.id
    assert given.enqueued_at == result.enqueued_at
    assert (given.args, given.kwargs, given.task.priority) == ([1], {"b": 2}, 4)
    assert given.status == TaskResultStatus.SUCCESSFUL  # it is one object to the end
    assert given.return_value == 3


@pytest.mark.parametrize(
    "made", [tasks.answer, tasks.answer_async], ids=lambda made: made.name
)
def test_a_receiver_that_fails_or_asks_the_database_changes_no_job(
    made: Any, work: Work
) -> None:
    counted: list[int] = []

    @receiver(task_started)
    def count(**_: Any) -> None:
        counted.append(ContentType.objects.count())
        raise RuntimeError("of a receiver")

    try:
        result = made.enqueue()
        work()
    finally:
        task_started.disconnect(count)

    result.refresh()
    assert result.return_value == 42
    assert len(counted) == 1


def test_a_coroutine_may_use_the_orm(work: Work) -> None:
    result = tasks.uses_the_orm.enqueue()

    work()

    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL, result.errors


# --- retries -------------------------------------------------------------------------


def make_due(job_id: str) -> None:
    Job.objects.filter(pk=job_id).update(state="queued")


def test_a_task_that_will_run_again_is_ready_and_keeps_its_errors(
    work: Work, told: list[Any]
) -> None:
    result = tasks.value_error.using(backend="patient").enqueue()

    work()
    result.refresh()
    assert result.status == TaskResultStatus.READY
    assert result.finished_at is None
    assert result.attempts == len(result.errors) == 1
    first_started_at = result.started_at

    for _ in range(3):
        make_due(result.id)
        work()

    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert result.attempts == len(result.errors) == 4
    assert {error.exception_class for error in result.errors} == {ValueError}
    assert len(set(result.worker_ids)) == 1
    assert result.started_at == first_started_at < result.last_attempted_at
    assert [(name, status) for name, _, status in told] == [
        ("task_enqueued", "READY"),
        *[("task_started", "RUNNING")] * 4,
        ("task_finished", "FAILED"),
    ]


def test_a_context_counts_attempts(work: Work) -> None:
    result = tasks.check_context.using(backend="patient").enqueue(2)

    work()
    make_due(result.id)
    work()

    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert [error.exception_class for error in result.errors] == [AssertionError]
    assert result.return_value[3] == result.worker_ids
    assert result.attempts == 2


def test_skip_retry_is_final(work: Work, told: list[Any]) -> None:
    result = tasks.skip_retry.using(backend="patient").enqueue()

    work()

    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert result.errors[0].exception_class_path == "relay.exceptions.SkipRetry"
    assert told[-1][0] == "task_finished"


# --- ends without a run --------------------------------------------------------------


def test_a_cancelled_job_is_failed_and_says_so() -> None:
    result = tasks.noop.enqueue()

    JobHandle(Job.objects.get().pk, "noop").cancel()

    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert result.is_finished
    assert [error.exception_class for error in result.errors] == [JobCancelled]


def test_lost_workers_are_errors_of_the_task() -> None:
    result = tasks.noop.enqueue()
    Attempt.objects.create(
        job_id=result.id, attempt=1, outcome="lost", error_class="WorkerLost"
    )
    Attempt.objects.create(
        job_id=result.id, attempt=2, outcome="crash", error_class="WorkerDied"
    )
    Job.objects.update(
        state="failed", attempt=3, error_class="PoisonJob", error_message="too often"
    )

    result.refresh()

    assert result.status == TaskResultStatus.FAILED
    assert [error.exception_class.__name__ for error in result.errors] == [
        "WorkerLost",
        "WorkerDied",
        "PoisonJob",
    ]
    assert result.worker_ids == ["unknown"] * 3


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("blocked", "READY"),
        ("scheduled", "READY"),
        ("queued", "READY"),
        ("retrying", "READY"),
        ("running", "RUNNING"),
        ("completed", "SUCCESSFUL"),
        ("failed", "FAILED"),
        ("cancelled", "FAILED"),
    ],
)
def test_every_state_has_a_status(state: str, status: str) -> None:
    result = tasks.noop.enqueue()
    Job.objects.update(state=state, worker_id=result.id)

    result.refresh()

    assert result.status == status


def test_a_retried_job_is_ready_again(work: Work) -> None:
    result = tasks.value_error.enqueue()
    work()

    control.retry(Job.objects.get().pk, actor=None, using="default")

    result.refresh()
    assert result.status == TaskResultStatus.READY
    assert len(result.errors) == 1


def test_the_order_is_by_priority(work: Work) -> None:
    results = {
        priority: tasks.noop.using(priority=priority).enqueue()
        for priority in (0, -100, 100, 7)
    }

    outcomes = work()

    assert [str(outcome.id) for outcome in outcomes] == [
        results[priority].id for priority in (100, 7, 0, -100)
    ]


def test_values_of_relays_own_api_are_seen_as_they_are(work: Work) -> None:
    value = {"in": timedelta(hours=1)}
    handle = tasks.stacked.relay.enqueue(value)

    work()

    result = default_task_backend.get_result(str(handle.id))
    assert result.args == [value]
    assert result.return_value == value
    assert codec.decode(Job.objects.get().result) == value

"""What Django's tests/tasks/test_tasks.py checks, against relay's aliases."""

from __future__ import annotations

import dataclasses
import pickle
from datetime import datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import override_settings
from django.utils import timezone
from django.utils.module_loading import import_string

from relay.backends import RelayBackend, RelayTask
from tests.backends import tasks
from tests.backends.api import (
    HAS_PICKLING,
    TASKS,
    InvalidTask,
    InvalidTaskBackend,
    Task,
    TaskError,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    default_task_backend,
    task,
    task_backends,
)

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])

pickling = pytest.mark.skipif(not HAS_PICKLING, reason="tasks pickle from Django 6.1")


def test_the_alias_gives_relays_backend() -> None:
    assert default_task_backend == task_backends["default"]
    assert isinstance(task_backends["default"], RelayBackend)
    assert default_task_backend.alias == "default"
    assert default_task_backend.options == {"max_retries": 0}


def test_the_backend_supports_everything() -> None:
    for name in ("defer", "async_task", "get_result", "priority"):
        assert getattr(default_task_backend, f"supports_{name}") is True


def test_the_decorator_makes_tasks() -> None:
    for made in (tasks.noop, tasks.noop_async, tasks.noop_bare):
        assert isinstance(made, Task)
        assert isinstance(made, RelayTask)


def test_enqueue_gives_a_ready_result() -> None:
    result = tasks.noop.enqueue()

    assert result.status == TaskResultStatus.READY
    assert result.is_finished is False
    assert result.task == tasks.noop
    assert (result.args, result.kwargs) == ([], {})
    assert result.enqueued_at is not None
    assert (result.started_at, result.finished_at) == (None, None)
    assert (result.last_attempted_at, result.attempts) == (None, 0)
    assert len(result.id) <= 64
    with pytest.raises(ValueError, match="Task has not finished yet"):
        _ = result.return_value
    assert default_task_backend.get_result(result.id) == result


def test_aenqueue_gives_a_ready_result() -> None:
    result = async_to_sync(tasks.noop_async.aenqueue)(1, two=3)

    assert result.status == TaskResultStatus.READY
    assert result.task == tasks.noop_async
    assert (result.args, result.kwargs) == ([1], {"two": 3})
    assert default_task_backend.get_result(result.id) == result


@pytest.mark.parametrize("made", [tasks.noop, tasks.noop_async])
def test_arguments_travel(made: Any) -> None:
    result = made.enqueue(1, two=3)

    assert (result.args, result.kwargs) == ([1], {"two": 3})
    assert made.get_result(result.id).args == [1]
    assert made.get_result(result.id).kwargs == {"two": 3}


def test_an_argument_that_is_no_json_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="Unsupported type"):
        tasks.noop.enqueue(timezone.now())
    with pytest.raises(TypeError, match="Unsupported type"):
        async_to_sync(tasks.noop.aenqueue)(timezone.now())


def test_using_priority_changes_a_copy() -> None:
    assert tasks.noop.priority == 0
    assert tasks.noop.using(priority=1).priority == 1
    assert tasks.noop.priority == 0


def test_using_queue_name_changes_a_copy() -> None:
    assert tasks.noop.queue_name == "default"
    assert tasks.noop.using(queue_name="queue_1").queue_name == "queue_1"
    assert tasks.noop.queue_name == "default"


def test_using_run_after_changes_a_copy() -> None:
    now = timezone.now()

    assert tasks.noop.using(run_after=now).run_after == now
    assert tasks.noop.run_after is None


def test_an_unknown_alias_is_refused() -> None:
    with pytest.raises(InvalidTaskBackend, match="'unknown' doesn't exist"):
        tasks.noop.using(backend="unknown")


def test_a_backend_that_cannot_be_imported_is_refused() -> None:
    with pytest.raises(
        InvalidTaskBackend, match=r"Could not find backend 'does\.not\.exist'"
    ):
        tasks.noop.using(backend="missing")


def test_using_makes_an_equal_task() -> None:
    made = tasks.noop.using()

    assert made == tasks.noop
    assert made is not tasks.noop


def test_using_can_be_chained() -> None:
    now = timezone.now()
    deferred = tasks.noop.using(run_after=now)

    urgent = deferred.using(priority=10)

    assert (urgent.priority, urgent.run_after) == (10, now)
    assert deferred.priority == 0


def test_refresh_of_an_unchanged_job_changes_nothing() -> None:
    result = tasks.noop.enqueue()
    before = dataclasses.asdict(result)

    result.refresh()
    assert dataclasses.asdict(result) == before

    async_to_sync(result.arefresh)()
    assert dataclasses.asdict(result) == before


def test_a_naive_run_after_is_refused() -> None:
    with pytest.raises(InvalidTask, match=r"run_after must be an aware datetime\."):
        tasks.noop.using(run_after=datetime.now())  # noqa: DTZ005 - on purpose


@pytest.mark.parametrize("priority", [-101, 101, 3.1])
def test_a_priority_out_of_range_is_refused(priority: Any) -> None:
    with pytest.raises(InvalidTask, match="priority must be a whole number between"):
        tasks.noop.using(priority=priority)


@pytest.mark.parametrize("priority", [-100, 0, 100])
def test_a_priority_in_range_is_taken(priority: int) -> None:
    result = tasks.noop.using(priority=priority).enqueue()

    assert tasks.noop.get_result(result.id).task.priority == priority


def test_a_queue_that_the_alias_does_not_name_is_refused() -> None:
    with pytest.raises(InvalidTask, match="Queue 'queue-2' is not valid for backend"):
        tasks.noop.using(queue_name="queue-2")

    made = tasks.noop.using(queue_name="queue-2", backend="patient")
    assert made.queue_name == "queue-2"


def test_a_call_runs_the_function() -> None:
    assert tasks.answer.call() == 42
    assert tasks.noop_async.call() is None
    assert async_to_sync(tasks.answer.acall)() == 42
    assert async_to_sync(tasks.noop_async.acall)() is None


def test_get_result_finds_the_job() -> None:
    result = default_task_backend.enqueue(tasks.noop, (), {})

    assert tasks.noop.get_result(result.id) == result
    assert async_to_sync(tasks.noop.aget_result)(result.id) == result


def test_aget_result_finds_what_aenqueue_made() -> None:
    result = async_to_sync(default_task_backend.aenqueue)(tasks.noop, (), {})

    assert async_to_sync(default_task_backend.aget_result)(result.id) == result


@pytest.mark.parametrize(
    "result_id", ["123", "", "0195b8a0-0000-7000-8000-000000000000", 7, None]
)
def test_a_missing_result_does_not_exist(result_id: Any) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        tasks.noop.get_result(result_id)
    with pytest.raises(TaskResultDoesNotExist):
        async_to_sync(default_task_backend.aget_result)(result_id)


def test_a_result_of_another_task_is_a_mismatch() -> None:
    result = default_task_backend.enqueue(tasks.noop_async, (), {})

    with pytest.raises(TaskResultMismatch, match="Task does not match"):
        tasks.noop.get_result(result.id)
    with pytest.raises(TaskResultMismatch, match="Task does not match"):
        async_to_sync(tasks.noop.aget_result)(result.id)


def test_only_functions_of_a_module_can_be_tasks() -> None:
    def inner() -> None: ...

    for function in (any, test_only_functions_of_a_module_can_be_tasks.__call__, inner):
        with pytest.raises(InvalidTask, match="must be defined at a module level"):
            task()(function)


def test_get_backend_follows_the_alias() -> None:
    assert tasks.noop.backend == "default"
    assert isinstance(tasks.noop.get_backend(), RelayBackend)

    patient = tasks.noop.using(backend="patient")
    assert patient.get_backend() is task_backends["patient"]
    immediate = tasks.noop.using(backend="immediate")
    assert not isinstance(immediate.get_backend(), RelayBackend)


def test_names_and_paths_are_the_functions() -> None:
    assert tasks.noop.name == "noop"
    assert tasks.noop_async.name == "noop_async"
    assert tasks.noop.module_path == "tests.backends.tasks.noop"
    assert import_string(tasks.noop.module_path) is tasks.noop


@pickling
def test_tasks_and_results_can_be_pickled() -> None:
    result = tasks.noop.using(priority=3).enqueue()

    for value in (tasks.noop, tasks.noop.using(queue_name="queue_1"), result):
        assert pickle.loads(pickle.dumps(value)) == value


@pickling
@pytest.mark.parametrize("path", ["does.not.exist.fake_task", "builtins.any"])
def test_a_pickle_of_something_else_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="to point to a Task instance"):
        RelayTask._reconstruct({"func": path})


@override_settings(TASKS={})
def test_without_backends_nothing_is_enqueued() -> None:
    with pytest.raises(InvalidTaskBackend):
        tasks.noop.using(backend="patient").enqueue()


@pytest.mark.parametrize(
    ("path", "error"),
    [("subprocess.run", ValueError), ("does.not.exist", ImportError)],
)
def test_an_error_of_no_known_class_says_so(path: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        _ = TaskError(exception_class_path=path, traceback="").exception_class


def test_a_task_that_takes_context_needs_an_argument_for_it() -> None:
    with pytest.raises(InvalidTask, match="first argument of 'context'"):
        task(takes_context=True)(tasks.answer.func)


def test_run_after_is_nothing_for_the_decorator() -> None:
    with pytest.raises(TypeError):
        task(run_after=timezone.now())(tasks.answer.func)


# --- and of test_immediate_backend.py and test_dummy_backend.py: at enqueue ----------


@pytest.mark.parametrize("how", ["enqueue", "aenqueue"])
def test_a_task_is_validated_again_at_enqueue(how: str) -> None:
    made = tasks.noop.using(queue_name="queue_1")
    enqueue = getattr(made, how)
    narrowed = {**TASKS, "default": {**TASKS["default"], "QUEUES": ["queue-1"]}}

    with (
        override_settings(TASKS=narrowed),
        pytest.raises(InvalidTask, match="Queue 'queue_1' is not valid for backend"),
    ):
        async_to_sync(enqueue)() if how == "aenqueue" else enqueue()


# --- run_after -----------------------------------------------------------------------


def test_run_after_holds_the_job_until_then(work: Any) -> None:
    later = timezone.now() + timedelta(hours=1)

    result = tasks.answer.using(run_after=later).enqueue()

    assert work() == []
    found = tasks.answer.get_result(result.id)
    assert found == result
    assert found.status == TaskResultStatus.READY
    assert found.task.run_after == later


def test_run_after_takes_a_timedelta(work: Any) -> None:
    before = timezone.now()

    delayed = tasks.answer.using(run_after=timedelta(hours=1))
    result = delayed.enqueue()

    assert work() == []
    assert delayed.run_after == timedelta(hours=1)
    assert result.task.run_after - before == pytest.approx(
        timedelta(hours=1), abs=timedelta(minutes=1)
    )
    assert tasks.answer.get_result(result.id) == result


def test_a_run_after_that_is_over_runs_now(work: Any) -> None:
    result = tasks.answer.using(run_after=timezone.now() - timedelta(days=1)).enqueue()
    other = tasks.answer.using(run_after=timedelta(hours=-1)).enqueue()

    assert tasks.answer.get_result(result.id) == result
    work()
    assert tasks.answer.get_result(result.id).return_value == 42
    assert tasks.answer.get_result(other.id).return_value == 42


@pytest.mark.parametrize("run_after", ["tomorrow", 5, timedelta(days=10**8)])
def test_a_run_after_that_is_no_time_is_refused(run_after: Any) -> None:
    with pytest.raises(InvalidTask):
        tasks.answer.using(run_after=run_after)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_naive_run_after_is_local_where_django_has_no_zones(settings: Any) -> None:
    settings.USE_TZ = False
    settings.TIME_ZONE = "Europe/Rome"
    later = datetime.now() + timedelta(hours=1)  # noqa: DTZ005 - on purpose

    result = tasks.answer.using(run_after=later).enqueue()

    assert tasks.answer.get_result(result.id).task.run_after == later

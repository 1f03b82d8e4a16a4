"""A worker in processes of its own runs what django.tasks enqueued."""

from __future__ import annotations

import pytest

from tests.backends import tasks
from tests.backends.api import TaskResultStatus
from tests.worker.harness import Workers, until

SETTINGS = {"DJANGO_SETTINGS_MODULE": "tests.backends.settings"}


@pytest.mark.slow
def test_a_worker_runs_the_tasks_of_all_queues_of_the_aliases(workers: Workers) -> None:
    worker = workers.start(environment=SETTINGS)

    results = [
        tasks.add.enqueue(1, 2),
        tasks.answer_async.enqueue(),
        tasks.answer.using(queue_name="queue_1", priority=5).enqueue(),
        tasks.task_id.enqueue(),
        tasks.stacked.enqueue("stacked"),
        tasks.value_error.enqueue(),
    ]

    for result in results:
        until(lambda result=result: (result.refresh(), result.is_finished)[1])
    *good, bad = results
    assert [result.return_value for result in good] == [
        3,
        42,
        42,
        good[3].id,
        "stacked",
    ]
    assert bad.status == TaskResultStatus.FAILED
    assert bad.errors[0].exception_class is ValueError
    assert {result.attempts for result in results} == {1}
    assert "state=FAILED" in worker.text()
    assert worker.stop() == 0

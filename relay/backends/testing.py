"""A backend of django.tasks for tests: it keeps what is enqueued, and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

from django.utils import timezone

from relay.backends.backend import RelayBackend
from relay.backends.library import (
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    task_enqueued,
)
from relay.backends.results import new_result, varied
from relay.ids import uuid7

__all__ = ["TestBackend"]

P = ParamSpec("P")
R = TypeVar("R")


class TestBackend(RelayBackend):
    """As Django's DummyBackend, and it refuses what RelayBackend would refuse.

    No row is made, so that a test needs no database.

    Attributes:
        results: of all that was enqueued in this thread, in order; they stay READY.
    """

    __test__ = False  # pytest takes the name for a test's

    supports_get_result = False  # across threads, which each have a backend

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.results: list[TaskResult[..., Any]] = []

    def enqueue(
        self, task: Task[P, R], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> TaskResult[P, R]:
        """Keep what would be enqueued.

        Raises:
            InvalidTask, ArgumentError, EncodeError: as RelayBackend.
        """
        self.validate_task(task)
        self.request(task, args, kwargs)
        now = timezone.now()
        if isinstance(task.run_after, timedelta):
            task = varied(task, run_after=now + task.run_after)
        result: TaskResult[P, R] = new_result(
            task, self.alias, uuid7(), enqueued_at=now, arguments=(args, kwargs)
        )
        self.results.append(result)
        task_enqueued.send(type(self), task_result=result)
        return deepcopy(result)

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Return one of the results.

        Raises:
            TaskResultDoesNotExist: there is none of this id.
        """
        for result in self.results:
            if result.id == result_id:
                return result
        raise TaskResultDoesNotExist(result_id)

    def clear(self) -> None:
        """Forget all results."""
        self.results.clear()

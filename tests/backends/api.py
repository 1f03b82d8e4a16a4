"""django.tasks or its backport, and relay as its backend."""

from __future__ import annotations

import django

from relay.backends.library import (
    InvalidTask,
    InvalidTaskBackend,
    TaskContext,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from tests.backends.aliases import IS_BACKPORT, LIBRARY, TASKS

HAS_PICKLING = django.VERSION >= (6, 1)
if IS_BACKPORT:
    from django_tasks import default_task_backend, task
    from django_tasks.base import Task, TaskError
    from django_tasks.exceptions import TaskResultMismatch
else:
    from django.tasks import default_task_backend, task
    from django.tasks.base import Task, TaskError
    from django.tasks.exceptions import TaskResultMismatch

__all__ = [
    "HAS_PICKLING",
    "IS_BACKPORT",
    "LIBRARY",
    "TASKS",
    "InvalidTask",
    "InvalidTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultMismatch",
    "TaskResultStatus",
    "default_task_backend",
    "task",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]

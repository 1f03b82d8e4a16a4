"""relay as the backend of django.tasks: TASKS = {"default": {"BACKEND": ...}}.

Of Django 6.0 and later, or of the backport django-tasks on Django 5.2; without either,
importing this raises ImproperlyConfigured and nothing else of relay needs it.
Source: docs/howto/django-tasks.md.
"""

from __future__ import annotations

from relay.backends.backend import RelayBackend, RelayTask, discover
from relay.backends.results import JobCancelled, PoisonJob, WorkerDied, WorkerLost
from relay.backends.testing import TestBackend

__all__ = [
    "JobCancelled",
    "PoisonJob",
    "RelayBackend",
    "RelayTask",
    "TestBackend",
    "WorkerDied",
    "WorkerLost",
    "discover",
]

"""Django signals about jobs: announcements, not steps.

Each is sent after the fact is committed, by the process that wrote it, and at most
once: who dies between the two sends none. What a receiver raises is logged by Django
and changes no job. What must follow is a task: on_failure.

All have the task as their sender, or None where this process knows no task of that
name, and these keyword arguments: job (a JobHandle), queue (a text).
Source: docs/howto/signals.md.
"""

from __future__ import annotations

from typing import Final

from django.dispatch import Signal

__all__ = [
    "job_cancelled",
    "job_completed",
    "job_enqueued",
    "job_failed",
    "job_retrying",
    "job_started",
]

# After the commit of an enqueue, in the process that enqueued.
job_enqueued: Final = Signal()
# Before a handler, in its thread or coroutine. The next four too: attempt (a number).
job_started: Final = Signal()
# From here on by the child process that ran the attempt, in a thread of their own.
# seconds: how long the attempt took.
job_completed: Final = Signal()
# For good: error_class and error_message (texts), seconds.
job_failed: Final = Signal()
# An attempt failed, and another will follow: as job_failed, and delay (a timedelta).
job_retrying: Final = Signal()
# While it ran, or before it could start in this worker: seconds.
job_cancelled: Final = Signal()

"""The load generator behind manage.py relay_load, and the task of its jobs."""

from __future__ import annotations

from relay.tasks import task

__all__ = ["noop"]


@task
def noop(payload: str = "") -> None:
    """Do nothing: what relay_load's jobs do unless told otherwise.

    Every process of a project that has relay installed knows this task.
    """

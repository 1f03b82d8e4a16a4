"""A job that enqueues another, which runs in a process apart."""

from __future__ import annotations

from relay import current_job, task
from tests.worker.effects import note


@task
def parent() -> None:
    if current_job().failures == 0:
        raise ValueError("of the test")
    child.enqueue()


@task(isolation="process")
def child() -> None:
    note("start")

"""relay as the backend of django.tasks, and workers within the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.test import override_settings

from relay.engine.claim import ClaimedJob
from relay.engine.connection import connect
from relay.engine.finish import (
    Completed,
    Outcome,
    Settled,
    read_finished,
    send_completed,
    send_settled,
)
from relay.worker.executor import Executor
from tests.backends import aliases
from tests.engine import rows
from tests.worker.conftest import database as database  # fixtures of its worker
from tests.worker.conftest import workers as workers

try:
    from tests.backends import api
except ImproperlyConfigured:  # Django 5.2 without the backport
    collect_ignore_glob = ["test_[!w]*.py", "test_worker.py"]
else:
    with override_settings(TASKS=aliases.TASKS):
        from tests.backends import tasks as tasks  # made as relay's tasks


Work = Callable[..., list[Outcome]]


@pytest.fixture(autouse=True)
def relay_as_backend() -> Iterator[None]:
    with override_settings(TASKS=aliases.TASKS):
        yield


@pytest.fixture
def work(transactional_db: None) -> Iterator[Work]:
    """Run what is ready, as a worker does but in a thread of the test's process."""
    session = connect("default", role="hot", name="tests")
    worker_id = rows.add_worker(session)

    def execute(job: ClaimedJob) -> Outcome:
        executor = Executor(worker_id)
        try:
            if executor.is_async(job):
                return asyncio.run(executor.run_async(job))
            return executor.run(job)
        finally:
            connections.close_all()

    def run(*, queues: tuple[str, ...] = ("default", "queue_1")) -> list[Outcome]:
        jobs = rows.claim(session, worker_id, limit=100, queues=queues)
        with ThreadPoolExecutor(1) as thread:
            outcomes = list(thread.map(execute, jobs))
        with session.block():
            sent = send_completed(
                session,
                [one for one in outcomes if isinstance(one, Completed)],
                worker_id=worker_id,
            )
            sent += send_settled(
                session,
                [one for one in outcomes if isinstance(one, Settled)],
                worker_id=worker_id,
                hand_back_limit=timedelta(hours=24),
            )
        assert read_finished(sent) == {job.id for job in jobs}
        return outcomes

    yield run
    session.close()


@pytest.fixture
def told() -> Iterator[list[tuple[str, Any, Any]]]:
    """Collect (signal, sender, status) of what django.tasks announces."""
    heard: list[tuple[str, Any, Any]] = []
    receivers = []
    for name in ("task_enqueued", "task_started", "task_finished"):

        def receive(sender: Any, task_result: Any, name: str = name, **_: Any) -> None:
            heard.append((name, sender, str(task_result.status)))

        getattr(api, name).connect(receive)
        receivers.append((getattr(api, name), receive))
    yield heard
    for signal, receive in receivers:
        signal.disconnect(receive)

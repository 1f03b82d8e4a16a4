"""A canary as an argument: a real worker runs it, and no sink shows it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote as quoted

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client, override_settings
from django.utils.html import escape

from relay import EncodeError, JobHandle, enqueue_many
from relay.models import Attempt, Job
from relay.testing import drain
from tests.worker.harness import Database, Workers, until
from tests.worker.vault import tasks

CANARY = "canary 4111 <1111> 'q' \u00e9"
KEYS = {
    "one": base64.b64encode(bytes([1]) * 32).decode(),
    "two": base64.b64encode(bytes([2]) * 32).decode(),
}


def forms() -> set[str]:
    """Return the canary as any sink might write it."""
    return {
        CANARY,
        repr(CANARY)[1:-1],
        escape(CANARY),
        quoted(CANARY),
        base64.b64encode(CANARY.encode()).decode(),
        "canary",
    }


def assert_clean(sink: str, text: str) -> None:
    found = [form for form in forms() if form in text]
    assert not found, f"{sink} shows {found}: {text[:2000]}"


def tables() -> Iterator[tuple[str, str]]:
    names = [
        name
        for name in connection.introspection.table_names()
        if name.startswith(("relay_", "django_admin_log"))
    ]
    assert {"relay_job", "relay_attempt", "relay_history"} <= set(names)
    with connection.cursor() as cursor:
        for name in names:
            cursor.execute(f'SELECT row::text FROM "{name}" AS row')
            yield name, "\n".join(row for (row,) in cursor.fetchall())


def pages() -> Iterator[tuple[str, str]]:
    browser = Client()
    browser.force_login(User.objects.create_superuser("ada"))
    paths = [f"/admin/relay/job/{job.pk}/change/" for job in Job.objects.all()]
    for path in ["/admin/relay/job/", "/admin/relay/job/?state=failed", *paths]:
        response = browser.get(path)
        assert response.status_code == 200
        yield path, response.content.decode()


@pytest.fixture(autouse=True)
def keys() -> Iterator[None]:
    with override_settings(RELAY={"ENCRYPTION_KEYS": KEYS}):
        yield


def start(workers: Workers, **relay: Any) -> Any:
    return workers.start(
        environment={"WORKER_TESTS_APP": "tests.worker.vault"},
        **{"ENCRYPTION_KEYS": KEYS, **relay},
    )


@pytest.mark.django_db
def test_no_row_and_no_page_shows_a_canary_that_a_handler_tells_of_its_work() -> None:
    job = tasks.report.enqueue(CANARY)

    assert drain().completed == 1

    rows = dict(tables())
    for name in ("relay_job", "relay_output"):
        assert "•••" in rows[name]
    assert "charge" in rows["relay_step"]
    for name, text in (*rows.items(), *pages()):
        assert_clean(name, text)
    assert job.progress is not None
    assert job.progress.message == "half of •••"


@pytest.mark.slow
def test_no_sink_shows_a_canary_after_success_failure_and_crash(
    database: Database, workers: Workers
) -> None:
    handles: list[JobHandle[Any]] = [
        tasks.keep.enqueue(CANARY),
        tasks.akeep.enqueue({"nested": [CANARY]}),
        tasks.quote.enqueue(CANARY, 7),
        tasks.aquote.enqueue(CANARY, 7),
        tasks.die_once.enqueue(CANARY),
        *enqueue_many([tasks.keep.job(CANARY), tasks.quote.job(CANARY, order=8)]),
    ]
    with pytest.raises(EncodeError) as refused:
        tasks.keep.enqueue({CANARY: object()})

    worker = start(workers)
    until(
        lambda: all(str(handle.state) in ("completed", "failed") for handle in handles),
    )
    handles.append(handles[0].replay())
    until(lambda: str(handles[-1].state) == "completed")
    assert worker.stop() == 0

    assert handles[0].result(timeout=0) == handles[-1].result(timeout=0) == CANARY
    assert handles[1].result(timeout=0) == {"nested": [CANARY]}
    assert handles[4].result(timeout=0) == len(CANARY)
    assert str(handles[2].state) == str(handles[3].state) == "failed"
    outcomes = set(Attempt.objects.values_list("outcome", flat=True))
    assert {"retry", "fail", "crash"} <= outcomes
    for name, text in tables():
        assert_clean(name, text)
    assert "•••" in dict(tables())["relay_attempt"]
    assert_clean("the worker's log", worker.text())
    assert "vault" in worker.text()
    for path, text in pages():
        assert_clean(path, text)
    assert_clean("repr", repr(handles) + repr(tasks.keep.job(CANARY)))
    assert_clean("the error", str(refused.value))


@pytest.mark.slow
def test_a_worker_without_the_key_hands_back_and_one_with_it_finishes(
    database: Database, workers: Workers
) -> None:
    handle = tasks.keep.enqueue(CANARY)

    poor = start(workers, ENCRYPTION_KEYS={"two": KEYS["two"]})
    until(lambda: str(handle.state) == "retrying")
    assert poor.stop() == 0
    job = Job.objects.get(pk=handle.id)
    assert (job.error_class, job.failures, job.crashes) == ("MissingKey", 0, 0)

    start(workers)
    assert handle.result(timeout=60) == CANARY

"""Two requests at the same time: one of them does it, and each answer is true."""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import Thread
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from relay import operations
from relay.api.jobs import JobView
from relay.ids import uuid7
from relay.models import Audit, Job
from relay.operations import JobCall
from tests.api.factory import ROOT, api
from tests.operations.factory import make_job
from tests.waiting import until

ECHO = "testproject.tasks.echo"
SAME = {"key": "same", "on_conflict": "return"}
MANY = 60  # ids, which are not locked one by one

# Of this database's sessions, those that wait for another one.
WAITING = """
SELECT count(*) FROM pg_locks WHERE NOT granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


def waiting() -> int:
    with connection.cursor() as cursor:
        cursor.execute(WAITING)
        return int(cursor.fetchone()[0])


def while_enqueued(job_id: UUID, post: Callable[[], Any], *, beside: int = 0) -> Any:
    """Return the answer to a request that comes before another one has committed.

    Args:
        beside: how many jobs that one enqueues besides, in a batch.
    """
    answers: list[Any] = []

    def ask() -> None:
        try:
            answers.append(post())
        finally:
            connection.close()

    thread = Thread(target=ask)
    with transaction.atomic():
        if beside:
            ids = [job_id, *(uuid7() for _ in range(beside))]
            calls = [JobCall(ECHO, ["told"], options={"id": each}) for each in ids]
            operations.enqueue_jobs(ROOT, calls)
        else:
            operations.enqueue_job(ROOT, ECHO, ["told"], id=job_id)
        thread.start()
        until(lambda: waiting() or not thread.is_alive())
    thread.join()
    [answer] = answers
    return answer


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("unique", [None, SAME])
def test_of_two_enqueues_under_one_id_the_later_one_made_nothing(unique: Any) -> None:
    job_id, client = uuid7(), api("submit")
    body = {"task": ECHO, "args": [2], "id": str(job_id), "unique": unique}

    answer = while_enqueued(job_id, lambda: client.post("/v1/jobs", body))

    assert answer.status_code == 200
    assert json.loads(answer.content)["id"] == str(job_id)
    assert "told" not in answer.content.decode()  # of a job that is not theirs
    assert Job.objects.get().args["args"] == ["told"]
    assert Audit.objects.filter(operation="enqueue_job").count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("beside", [2, MANY])
def test_an_enqueue_waits_for_a_batch_with_its_id(beside: int) -> None:
    job_id, client = uuid7(), api("submit")
    body = {"task": ECHO, "args": [2], "id": str(job_id)}

    answer = while_enqueued(
        job_id, lambda: client.post("/v1/jobs", body), beside=beside
    )

    assert answer.status_code == 200
    assert Job.objects.count() == beside + 1
    assert not Audit.objects.filter(operation="enqueue_job").exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("unique", [None, SAME])
@pytest.mark.parametrize("beside", [1, MANY])
def test_a_batch_waits_for_who_enqueues_under_an_id_of_it(
    unique: Any, beside: int
) -> None:
    job_id, client = uuid7(), api("submit")
    ids = [*(str(uuid7()) for _ in range(beside)), str(job_id)]
    calls = [{"task": ECHO, "args": [2], "id": each, "unique": unique} for each in ids]

    answer = while_enqueued(
        job_id, lambda: client.post("/v1/jobs/batch", {"jobs": calls})
    )

    assert answer.status_code == 409, answer.content
    assert Job.objects.get().args["args"] == ["told"]
    assert Audit.objects.filter(operation__startswith="enqueue").count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("unique", [None, SAME])
def test_a_batch_with_an_id_that_is_there_is_refused_and_makes_nothing(
    unique: Any,
) -> None:
    job = make_job()
    calls = [
        {"task": ECHO, "args": [1], "unique": unique, "id": str(each)}
        for each in (uuid7(), job.pk)
    ]

    response = api().post("/v1/jobs/batch", {"jobs": calls})

    assert response.status_code == 409, response.content
    assert [each.pk for each in Job.objects.all()] == [job.pk]


@pytest.mark.django_db
def test_a_job_that_is_moved_while_one_waits_for_it_is_theirs_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job, client = make_job(queue="mail"), api("read", queues=["mail"])
    monkeypatch.setattr(
        JobView, "_wait", lambda *args: Job.objects.update(queue="other")
    )

    response = client.get(f"/v1/jobs/{job.pk}?wait=1s")

    assert response.status_code == 404

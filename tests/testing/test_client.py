"""A client of the REST API with a token of its own."""

from __future__ import annotations

import pytest
from django.test import override_settings

from relay.exceptions import ArgumentError, NotAllowed
from relay.models import ApiToken, Job
from relay.testing import ApiClient, FakeWorker
from tests.testing import tasks

pytest.importorskip("rest_framework")
pytestmark = pytest.mark.django_db


def test_it_may_do_what_its_scopes_allow() -> None:
    client = ApiClient("submit", "read")

    made = client.post("/v1/jobs", {"task": "testing.note", "args": [1]})

    assert made.status_code == 201, made.content
    job = Job.objects.get()
    assert client.get(f"/v1/jobs/{job.pk}").json()["id"] == str(job.pk)
    assert client.post(f"/v1/jobs/{job.pk}/cancel").status_code == 403
    assert client.delete(f"/v1/jobs/{job.pk}").status_code == 403
    operator = ApiClient("operate", queues=["default"])
    assert operator.post(f"/v1/jobs/{job.pk}/cancel").status_code == 200
    assert ApiToken.objects.earliest("id").scopes == ["read", "submit"]


def test_it_acts_on_what_a_fake_worker_runs() -> None:
    job = tasks.note.enqueue(1)

    with FakeWorker() as worker:
        worker.claim(job)
        answer = ApiClient("operate").post(f"/v1/jobs/{job.id}/cancel")
        assert answer.status_code == 202
        assert worker.is_asked_to_stop(job)


def test_it_may_be_for_some_queues_alone() -> None:
    tasks.send.enqueue("her")
    tasks.note.enqueue(1)

    client = ApiClient("read", queues=["mail"])

    [found] = client.get("/v1/jobs").json()["results"]
    assert found["queue"] == "mail"


def test_it_changes_what_may_be_changed() -> None:
    job = tasks.note.enqueue(1)
    client = ApiClient("operate")

    assert client.patch(f"/v1/jobs/{job.id}", {"priority": 7}).status_code == 200
    assert Job.objects.get().priority == 7
    assert client.delete(f"/v1/jobs/{job.id}").status_code in (200, 204)
    assert not Job.objects.exists()


def test_what_no_token_may_be_is_refused() -> None:
    with pytest.raises(ArgumentError, match="everything"):
        ApiClient("everything")
    with pytest.raises(ArgumentError):
        ApiClient()
    with override_settings(RELAY={"READ_ONLY": True}), pytest.raises(NotAllowed):
        ApiClient("read")

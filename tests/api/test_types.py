"""Arguments of types that JSON has not: what was read can be sent back."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from relay import codec
from relay.models import Job
from tests.api.factory import api
from tests.operations.factory import make_job

pytestmark = pytest.mark.django_db
ECHO = "testproject.tasks.echo"
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def dated(state: str) -> Job:
    args = json.loads(codec.encode_arguments((MOMENT,), {}))
    return make_job(state, task=ECHO, args=args)


def args_of(job_id: object) -> list[Any]:
    return codec.decode_arguments(Job.objects.get(pk=job_id).args)[0]


def test_what_was_read_can_be_sent_back() -> None:
    client, ended, waiting = api(), dated("failed"), dated("queued")
    args = json.loads(client.get(f"/v1/jobs/{ended.pk}").content)["args"]

    replayed = client.post(f"/v1/jobs/{ended.pk}/replay", {"args": args})
    edited = client.patch(f"/v1/jobs/{waiting.pk}", {"args": args})

    assert (replayed.status_code, edited.status_code) == (201, 200)
    assert args_of(json.loads(replayed.content)["id"]) == [MOMENT]
    assert args_of(waiting.pk) == [MOMENT]


def test_a_mark_that_is_none_is_refused() -> None:
    job = dated("failed")

    response = api().post(
        f"/v1/jobs/{job.pk}/replay", {"args": [{"__relay__": "nothing"}]}
    )

    assert response.status_code == 400
    assert json.loads(response.content)["errors"][0]["pointer"] == "/args"

"""ETags of jobs: another one for each other document, also where other rows changed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from relay.ids import uuid7
from relay.models import Job, Schedule
from tests.api.factory import Api, api, make_schedule, make_worker
from tests.operations.factory import make_job

pytestmark = pytest.mark.django_db


def is_new(client: Api, job: Job, tag: str) -> bool:
    status = client.get(f"/v1/jobs/{job.pk}", If_None_Match=tag).status_code
    assert status in (200, 304)
    return status == 200


def test_a_replay_more_is_another_tag_however_many_there_were() -> None:
    job, client = make_job("failed"), api("read")
    for _ in range(12):
        tag = client.get(f"/v1/jobs/{job.pk}")["ETag"]
        make_job(replay_of=job.pk)

        assert is_new(client, job, tag)


def test_what_other_rows_call_its_schedule_and_worker_is_part_of_it() -> None:
    schedule, worker = make_schedule(), make_worker()
    job, client = make_job(schedule_id=schedule.pk, worker_id=worker.pk), api("read")
    tag = client.get(f"/v1/jobs/{job.pk}")["ETag"]

    assert not is_new(client, job, tag)
    Schedule.objects.update(name="renamed")
    assert is_new(client, job, tag)
    tag = client.get(f"/v1/jobs/{job.pk}")["ETag"]
    worker.delete()
    assert is_new(client, job, tag)


def test_who_sees_other_values_has_another_tag() -> None:
    job = make_job(args={"args": ["told"], "kwargs": {}})

    masked, plain = (
        api(*scopes).get(f"/v1/jobs/{job.pk}")
        for scopes in (("read",), ("read", "payload"))
    )

    assert b"told" not in masked.content
    assert masked["ETag"] != plain["ETag"]


def test_what_include_adds_bears_on_no_tag() -> None:
    job, client = make_job("failed"), api("read")

    plain = client.get(f"/v1/jobs/{job.pk}")
    with_more = client.get(f"/v1/jobs/{job.pk}?include=attempts,history,logs,steps")

    assert plain["ETag"] == with_more["ETag"]


def test_the_tag_of_an_act_is_the_one_of_the_next_look() -> None:
    job, client = make_job("failed"), api()

    done: Any = client.post(f"/v1/jobs/{job.pk}/retry")
    looked = client.get(f"/v1/jobs/{job.pk}")

    assert done["ETag"] == looked["ETag"]
    assert json.loads(done.content)["version"] == json.loads(looked.content)["version"]


def test_of_a_job_that_is_not_theirs_to_see_there_is_no_tag() -> None:
    user = User.objects.create_user("clerk")
    mine = ("enqueue_job", "edit_job")
    user.user_permissions.set(Permission.objects.filter(codename__in=mine))
    clerk = Api(None, Client())
    clerk.client.force_login(user)
    body = {
        "task": "testproject.tasks.echo",
        "args": [1],
        "id": str(uuid7()),
        "run_at": "2999-01-01T00:00:00Z",
    }

    made, again = (clerk.post("/v1/jobs", body) for _ in range(2))
    edited = clerk.patch(
        f"/v1/jobs/{body['id']}", {"priority": 3}, If_Match=made["ETag"]
    )

    assert (made.status_code, again.status_code) == (201, 200)
    assert "ETag" not in again  # none that If-Match would take
    assert edited.status_code == 200, edited.content

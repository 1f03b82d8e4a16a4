"""ETags of jobs: another one for each other document, also where other rows changed."""

from __future__ import annotations

import json
from typing import Any

import pytest

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

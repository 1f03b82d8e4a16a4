"""Names with slashes in addresses."""

from __future__ import annotations

import json

import pytest
from django.core.exceptions import ValidationError

from relay.models import Schedule
from tests.api.factory import api

pytestmark = pytest.mark.django_db
BODY = {"name": "nightly/a b", "task": "testproject.tasks.echo", "every": "1h"}


@pytest.mark.parametrize("end", ["", "/"])
def test_a_schedule_whose_name_has_a_slash_lives_from_post_to_delete(end: str) -> None:
    client = api()

    made = client.post("/v1/schedules", BODY)
    place = made["Location"]

    assert made.status_code == 201
    assert json.loads(client.get(f"{place}{end}").content)["name"] == BODY["name"]
    assert client.get(f"{place}/next{end}").status_code == 200
    assert client.post(f"{place}/pause{end}").status_code == 200
    assert client.patch(f"{place}{end}", {"priority": 3}).status_code == 200
    assert Schedule.objects.get().priority == 3
    assert client.delete(f"{place}{end}").status_code == 204


@pytest.mark.parametrize(
    "name",
    [
        *("preview", "a/next", "a/b/trigger", "a/act", "a/edit"),
        *("/a", "a/", "a//b", ".", "..", "a/../b"),
    ],
)
def test_a_schedule_to_which_no_address_would_lead_is_made_by_nobody(name: str) -> None:
    refused = api().post("/v1/schedules", {**BODY, "name": name})
    with pytest.raises(ValidationError, match="no address leads"):
        Schedule.objects.create(name=name, task=BODY["task"], every_ms=1_000)

    assert refused.status_code == 400
    assert json.loads(refused.content)["errors"][0]["pointer"] == "/name"
    assert not Schedule.objects.exists()


@pytest.mark.parametrize("name", ["next", "preview/a", "a.b", "..."])
def test_a_schedule_with_a_name_like_those_is_found(name: str) -> None:
    client = api()

    made = client.post("/v1/schedules", {**BODY, "name": name})

    assert made.status_code == 201
    assert json.loads(client.get(made["Location"]).content)["name"] == name


def test_a_task_that_is_not_there_is_missed_by_its_whole_name() -> None:
    response = api().get("/v1/tasks/a/b")

    assert response.status_code == 404
    assert "a/b" in json.loads(response.content)["detail"]

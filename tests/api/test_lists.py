"""What a list of jobs may be asked for besides a filter: fields, and another order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from relay.models import Job
from tests.api.factory import Api, api
from tests.operations.factory import make_job

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 30, tzinfo=UTC)


def ids(client: Api, query: str) -> list[str]:
    """Return the ids of all pages of two."""
    found: list[str] = []
    path = f"/v1/jobs?limit=2&{query}"
    while path:
        page: Any = client.get(path).json()
        found += [each["id"] for each in page["results"]]
        path = page["next"]
    return found


def test_fields_name_what_is_sent_also_on_the_next_page() -> None:
    for _ in range(3):
        make_job()
    client = api("read")

    first = client.get("/v1/jobs?fields=id,state&limit=2").json()
    second = client.get(first["next"]).json()

    for page in (first, second):
        for job in page["results"]:
            assert job.keys() == {"id", "state"}
    assert len(first["results"] + second["results"]) == 3


def test_fields_of_one_job_leave_what_include_adds() -> None:
    job = make_job()
    client = api("read")

    plain = client.get(f"/v1/jobs/{job.pk}?fields=state,version")
    more = client.get(f"/v1/jobs/{job.pk}?fields=state&include=history")
    known = client.get(f"/v1/jobs/{job.pk}?fields=state", If_None_Match=plain["ETag"])

    assert plain.json().keys() == {"state", "version"}
    assert more.json().keys() == {"state", "history"}
    assert known.status_code == 304


@pytest.mark.parametrize("query", ["fields=secret", "fields=", "fields=id,", "order=x"])
def test_a_field_or_an_order_that_there_is_not_is_refused(query: str) -> None:
    response = api("read").get(f"/v1/jobs?{query}")

    assert response.status_code == 400
    assert response.json()["errors"][0]["pointer"] == query.partition("=")[0]


@pytest.mark.parametrize(
    ("filter", "column", "order"),
    [
        ("", "id", "id"),
        ("state=failed", "id", "-id"),
        ("state=failed", "id", "id"),
        ("state=blocked", "id", "id"),
        ("queue=default", "id", "id"),
        ("tag=vip", "id", "id"),
        ("state=scheduled", "run_at", "run_at"),
        ("state=completed", "finished_at", "finished_at"),
        ("state=completed", "finished_at", "-finished_at"),
        ("finished_after=2026-01-01T00:00:00Z", "finished_at", "finished_at"),
    ],
)
def test_a_list_is_ordered_as_its_index_can(
    filter: str, column: str, order: str
) -> None:
    for number, state in enumerate(("failed", "completed", "scheduled", "blocked") * 5):
        later = NOW + timedelta(hours=number % 7)
        times = {"run_at": later}
        if state in ("failed", "completed"):
            times["finished_at"] = later
        make_job(state, tags=["vip"] if number % 2 else None, **times)

    found = ids(api("read"), f"{filter}&order={order}")

    values = Job.objects.in_bulk(found)
    keys = [getattr(values[UUID(key)], column) for key in found]
    assert len(set(found)) == len(found) >= 5
    assert keys == sorted(keys, reverse=order.startswith("-"))
    assert set(found) == set(ids(api("read"), filter))


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("order=run_at", "gives id or -id"),
        ("order=-finished_at&state=failed", "gives id or -id"),
        ("order=id&state=completed", "gives finished_at or -finished_at"),
        ("order=finished_at&state=scheduled", "gives run_at;"),
        ("order=id&state=queued", "gives its own order alone"),
    ],
)
def test_an_order_that_no_index_gives_is_refused_with_those_that_it_does(
    query: str, says: str
) -> None:
    response = api("read").get(f"/v1/jobs?{query}")

    assert response.status_code == 400
    assert response.json()["code"] == "invalid_filter"
    assert says in response.json()["detail"]


def test_a_cursor_is_of_one_order() -> None:
    for _ in range(3):
        make_job()
    client = api("read")
    page = client.get("/v1/jobs?limit=2&order=id").json()
    cursor = page["next"].partition("cursor=")[2]

    assert client.get(f"/v1/jobs?limit=2&order=-id&cursor={cursor}").status_code == 400

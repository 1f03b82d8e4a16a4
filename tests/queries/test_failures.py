"""Failures by their reason, and filters that find them again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relay.exceptions import NotAllowed, NotFound
from relay.models import Job
from relay.operations import parse
from relay.queries import failures as module
from relay.queries import get_failure, list_failures
from relay.queries.documents import FailureDocument
from tests.operations.factory import actor, make_job
from tests.queries.documents import check

pytestmark = pytest.mark.django_db

ME = actor("view_job")
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def fail(message: str | None, **values: Any) -> Job:
    given = {"error_class": "ValueError", "finished_at": NOW, "task": "app.send"}
    return make_job("failed", error_message=message, **given | values)


def test_failures_are_grouped_by_task_class_and_first_line() -> None:
    first = fail("no such host\nTraceback 1", queue="mail")
    last = fail(
        "no such host\nother", queue="web", finished_at=NOW + timedelta(hours=1)
    )
    fail("no such host", error_class="KeyError")
    fail("no such host", task="app.other")
    fail("refused")
    make_job("cancelled", task="app.send", error_class="ValueError")

    page = list_failures(ME)

    group = page["results"][0]
    check(group, FailureDocument)
    assert len(page["results"]) == 4
    assert (page["looked_at"], page["capped"]) == (5, False)
    assert (group["task"], group["error_class"]) == ("app.send", "ValueError")
    assert (group["error"], group["count"]) == ("no such host", 2)
    assert group["queues"] == ["mail", "web"]
    assert group["first_at"] == "2026-11-30T12:00:00Z"
    assert group["last_at"] == "2026-11-30T13:00:00Z"
    assert group["sample"] == max(str(first.pk), str(last.pk))
    assert get_failure(ME, group["id"]) == group


def test_some_can_be_asked_for() -> None:
    fail("a", queue="mail")
    fail("b", task="app.other")
    fail("c", error_class="KeyError")

    def found(**values: str) -> list[str | None]:
        return [group["error"] for group in list_failures(ME, **values)["results"]]

    assert found(queue="mail") == ["a"]
    assert found(task="app.other") == ["b"]
    assert found(error_class="KeyError") == ["c"]
    assert found(error_class="x\x00") == []


@pytest.mark.parametrize(
    "message",
    [
        "no such host",
        "  leading spaces",
        'key "a" is missing, really: "b"',
        "100 % of 'it'; \\ and more",
        "with\ttabs",
        "",
        None,
        "x" * 900,
        '"',
    ],
)
@pytest.mark.parametrize(
    "values",
    [{}, {"error_class": None}, {"task": "app.with space"}, {"error_class": 'od"d'}],
)
def test_the_filter_of_a_group_finds_its_jobs(
    message: str | None, values: dict[str, Any]
) -> None:
    job = fail(message, **values)
    earlier = fail(message, finished_at=NOW - timedelta(days=20), **values)

    [group] = list_failures(ME)["results"]

    found = parse(group["filter"]).jobs(using="default")
    assert {row.pk for row in found} == {job.pk, earlier.pk}


def test_the_newest_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKED_AT", 2)
    for _ in range(3):
        fail("a")

    page = list_failures(ME)

    assert (page["results"][0]["count"], page["capped"]) == (2, True)


def test_who_may_not_and_what_is_gone() -> None:
    with pytest.raises(NotAllowed):
        list_failures(actor())
    with pytest.raises(NotFound, match="no failures of the group"):
        get_failure(ME, "x")

"""Failures by their reason, and filters that find them again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from relay.exceptions import NotAllowed, NotFound
from relay.models import Job
from relay.operations import Actor, parse, start_bulk
from relay.operations.bulk import run_bulk
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


# What all those of one group have in common, and no two groups.
HOSTILE: tuple[tuple[str, str | None, str], ...] = (
    ("app.send", "ValueError", "timeout"),
    ("app.send", "ValueError", "connect timeout"),
    ("app.send", "ValueError", "timeout, later"),
    ("app.send", "KeyError", "timeout"),
    ("app.send_mail", "ValueError", "timeout"),
    ("app.send*", "ValueError", "timeout"),
    ("app.send\\*", "ValueError", "timeout"),
    ('a,"b"', 'od"d, class', 'relation "a" does not exist'),
    ('a,"b"', 'od"d, class', 'relation ""a"" does not exist'),
    ("app.send", "ValueError", 'relation "a", "b" does not exist'),
    ("app.send", "ValueError", '"'),
    ("app.send", "ValueError", '""'),
    ("app.send", "ValueError", "100 % of 'it'; \\ and \\x00 \\0 \\u0000 %00"),
    ("app.send", "ValueError", "C:\\\\temp\\"),
    ("app.send", "ValueError", "tabs\tand\x1b[31m \x85 \u2028 é 😀"),
    ("app.send", "ValueError", "state:failed task:* OR 1=1 --"),
    ("app.send", "ValueError", "x" * 10_000),
    ("app.send", "ValueError", ""),
    ("app.send", None, ""),
    ("app.send", "line\nbreak", "timeout"),
    ("app.send", None, "timeout"),
)


@pytest.fixture
def hostile() -> dict[str, set[UUID]]:
    """Two jobs of each group, one of them of long ago, and what is of no group."""
    made: dict[str, set[UUID]] = {}
    for task, error_class, message in HOSTILE:
        values = {"task": task, "error_class": error_class}
        has_more = 0 < len(message) < 1_000
        more = f'\n {message}\r\nand "more"' if has_more else message
        long_ago = NOW - timedelta(days=400)
        jobs = [fail(message, **values), fail(more, finished_at=long_ago, **values)]
        # Of ids made in one millisecond either may be the larger.
        made[str(max(job.pk for job in jobs))] = {job.pk for job in jobs}
        values["error_message"] = message
        make_job("cancelled", finished_at=NOW, **values)
        make_job("retrying", **values)
    return made


def test_the_filter_of_a_group_finds_its_jobs_and_no_other(
    hostile: dict[str, set[UUID]],
) -> None:
    groups = list_failures(ME)["results"]

    assert len(groups) == len(HOSTILE)
    assert {group["count"] for group in groups} == {2}
    assert len({group["id"] for group in groups}) == len(HOSTILE)
    for group in groups:
        wanted = parse(group["filter"])
        found = wanted.jobs(using="default").values_list("pk", flat=True)
        assert set(found) == hostile[group["sample"]], group["filter"]
        assert str(wanted) == group["filter"]
        assert get_failure(ME, group["id"]) == group


def test_without_a_class_or_a_message_is_as_if_they_were_empty() -> None:
    jobs = {fail(None).pk, fail("").pk, fail(None, error_class="").pk}
    jobs.add(fail("", error_class=None).pk)

    groups = list_failures(ME)["results"]

    found = [set(parse(group["filter"]).jobs(using="default")) for group in groups]
    assert sorted(group["count"] for group in groups) == [2, 2]
    assert [group["error"] for group in groups] == [None, None]
    assert {job.pk for each in found for job in each} == jobs
    assert sum(map(len, found)) == 4


def test_an_act_on_a_group_goes_beyond_the_newest(
    hostile: dict[str, set[UUID]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKED_AT", len(HOSTILE))
    before = set(Job.objects.values_list("pk", flat=True))

    [group] = [
        group
        for group in list_failures(ME)["results"]
        if group["sample"] == max(hostile)
    ]
    made = start_bulk(Actor(name="ada", source="cli"), "delete", group["filter"])
    run_bulk(str(made.pk))

    made.refresh_from_db()
    gone = before - set(Job.objects.values_list("pk", flat=True))
    assert (made.state, made.matched, made.done) == ("completed", 2, 2)
    assert gone == hostile[group["sample"]]


def test_of_a_queue_the_filter_is_of_that_queue() -> None:
    job = fail("a", queue="mail")
    fail("a", queue="web")

    [group] = list_failures(ME, queue="mail")["results"]

    found = parse(group["filter"]).jobs(using="default")
    assert (group["count"], {row.pk for row in found}) == (1, {job.pk})
    assert get_failure(ME, group["id"])["count"] == 2


def test_each_group_has_its_id_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_GROUPS", 1)
    for message in ("a", "a"):
        fail(message)
    fail("b", task="app.other")

    [group] = list_failures(ME, task="app.other")["results"]

    assert get_failure(ME, group["id"]) == group


def test_the_newest_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKED_AT", 2)
    for _ in range(3):
        fail("a")

    page = list_failures(ME)

    assert (page["results"][0]["count"], page["capped"]) == (2, True)


def test_that_there_may_be_more_is_told_also_where_nothing_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOOKED_AT", 2)
    for queue in ("old", "new", "new"):
        fail("a", queue=queue)

    page = list_failures(ME, queue="old")

    assert page == {"results": [], "looked_at": 2, "capped": True}


def test_who_may_not_and_what_is_gone() -> None:
    with pytest.raises(NotAllowed):
        list_failures(actor())
    with pytest.raises(NotFound, match="no failures of the group"):
        get_failure(ME, "x")

"""Tags and metadata on their way from the enqueue to the handler."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from relay import Unique, current_job, enqueue, enqueue_many, task
from relay.models import Job
from relay.testing import assert_enqueued, drain, enqueued, perform, refute_enqueued

pytestmark = pytest.mark.django_db

seen: list[Any] = []


@task(name="tests.labels.read", tags=("eu",), retention=timedelta(days=1))
def read() -> None:
    seen.append((current_job().tags(), current_job().meta()))


@task(name="tests.labels.aread")
async def aread() -> None:
    seen.append((await current_job().atags(), await current_job().ameta()))


META: dict[str, Any] = {"tenant": 7, "of": date(2026, 1, 2), "$relay": "kept"}
WAYS = {
    "one": lambda bound: [bound.enqueue()],
    "later": lambda bound: [bound.using(run_in=timedelta(hours=1)).enqueue()],
    "many": lambda bound: enqueue_many([bound.job()]),
    "unique": lambda bound: [bound.using(unique=Unique(key="a")).enqueue()],
    "outside": lambda bound: [bound.using(outside_transaction=True).enqueue()],
}


@pytest.mark.parametrize("way", [way for way in WAYS if way != "outside"])
@pytest.mark.parametrize("made", [read, aread])
def test_a_handler_reads_what_its_job_carries(made: Any, way: str) -> None:
    seen.clear()
    WAYS[way](made.using(tags=("run-7",), meta=META))

    drain(with_scheduled=True)

    tags = ("eu", "run-7") if made is read else ("run-7",)
    assert seen == [(tags, META)]


def test_a_job_without_them_has_none() -> None:
    seen.clear()
    aread.enqueue()

    drain()

    assert seen == [((), {})]
    assert Job.objects.filter(tags__isnull=True, meta__isnull=True).count() == 1


def test_a_job_without_a_row_has_none() -> None:
    seen.clear()

    perform(read)

    assert seen == [((), {})]


def test_a_job_by_name_carries_them() -> None:
    enqueue("tests.labels.nowhere", tags=["a"], meta={"b": datetime.now(UTC)})

    assert Job.objects.get().tags == ["a"]


def test_a_replay_carries_what_its_original_carried(settings: Any) -> None:
    seen.clear()
    settings.RELAY = {"RETENTION_RESULT": timedelta(minutes=1)}
    job = read.using(tags=["run-7"], meta=META).enqueue()
    drain()

    job.replay()
    drain()

    assert len(seen) == 2
    assert seen[0] == seen[1] == (("eu", "run-7"), META)


def test_jobs_are_asserted_by_their_tags() -> None:
    job = read.using(tags=["run-7"]).enqueue()

    assert [found.pk for found in enqueued(tags=["run-7"])] == [job.id]
    assert_enqueued(read, tags=("run-7", "eu"), count=1)
    refute_enqueued(tags=["run-8"])
    with pytest.raises(AssertionError, match=r"tags: wanted \['run-8'\]"):
        assert_enqueued(read, tags=["run-8"])
    with pytest.raises(TypeError, match="list"):
        enqueued(tags="run-7")

"""Many jobs with unique keys at once: by COPY where no key is held."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from relay import JobRequest, Unique, enqueue_many, task
from relay.engine import unique_keys
from relay.ids import uuid7
from relay.models import Job, Queue

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])

MANY = 25
HOUR = timedelta(hours=1)
# What two enqueues of the same job do not share.
ITS_OWN = ("id", "created_at", "ready_seq")


@task(name="tests:unique_copy")
def note(number: int) -> None:
    """Is never run."""


def requests(*, rule: Unique | None = None, **options: Any) -> list[JobRequest[None]]:
    asked = note.using(unique=rule or Unique(), **options)
    return [asked.job(number) for number in range(MANY)]


def numbers() -> list[int]:
    jobs = Job.objects.order_by("ready_seq").values_list("args", flat=True)
    return [args["args"][0] for args in jobs]


def statements(asked: list[JobRequest[None]]) -> str:
    with CaptureQueriesContext(connection) as queries:
        enqueue_many(asked)
    return "\n".join(query["sql"] for query in queries)


def test_they_go_in_by_copy_in_the_order_asked_for() -> None:
    assert "INSERT INTO relay_job" not in statements(requests())

    assert numbers() == list(range(MANY))
    assert Job.objects.filter(unique_key=None).count() == 0


def test_a_few_go_in_by_one_statement() -> None:
    assert "INSERT INTO relay_job" in statements(requests()[:5])


def test_where_a_key_is_held_its_holder_is_told_and_the_others_go_in() -> None:
    [holder] = enqueue_many(requests()[7:8])

    handles = enqueue_many(requests())

    assert [handle.is_duplicate for handle in handles] == [
        number == 7 for number in range(MANY)
    ]
    assert handles[7].id == holder.id
    assert Job.objects.count() == MANY


def test_a_key_asked_for_twice_is_given_once() -> None:
    handles = enqueue_many([*requests(), *requests()[:1]])

    assert handles[-1].is_duplicate
    assert handles[-1].id == handles[0].id
    assert Job.objects.count() == MANY


@pytest.mark.parametrize("is_inside", [False, True])
def test_a_key_that_was_taken_after_the_look_is_found_by_the_index(
    monkeypatch: pytest.MonkeyPatch, *, is_inside: bool
) -> None:
    [holder] = enqueue_many(requests()[7:8])
    blind = unique_keys._PREPARE_COPY.replace("EXISTS", "FALSE AND EXISTS")
    monkeypatch.setattr(unique_keys, "_PREPARE_COPY", blind)

    if is_inside:
        with transaction.atomic():
            handles = enqueue_many(requests())
            assert Job.objects.count() == MANY
    else:
        handles = enqueue_many(requests())

    assert handles[7].id == holder.id
    assert Job.objects.count() == MANY


def test_the_repeat_of_an_id_makes_no_second_job() -> None:
    job_id = uuid7()
    asked = [*requests(), note.using(unique=Unique(), id=job_id).job(100)]

    enqueue_many(asked)
    handles = enqueue_many(asked[-1:] + requests())

    assert handles[0].id == job_id
    assert Job.objects.count() == MANY + 1


@pytest.mark.parametrize(
    "rule",
    [
        Unique(),
        Unique(until="started"),
        Unique(until="forever"),
        Unique(for_=HOUR),
        Unique(on_conflict="replace"),
        Unique(due="push"),
    ],
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"run_at": datetime(2150, 1, 2, 3, 4, 5, 6, tzinfo=UTC)},
        {"run_at": datetime(2020, 1, 1, tzinfo=UTC), "priority": -3},
        {"deadline": datetime(2150, 1, 1, tzinfo=UTC), "timeout": HOUR},
        {"tags": ["a", "b,\\{} c"], "meta": {"a": [1, "\\n\t\x7f"]}, "queue": "mail"},
    ],
)
def test_a_row_is_as_the_one_statement_makes_it(
    rule: Unique, options: dict[str, Any]
) -> None:
    enqueue_many(requests(rule=rule, **options))
    by_copy = list(Job.objects.order_by("unique_key").values())
    Job.objects.all().delete()
    for request in requests(rule=rule, **options):
        enqueue_many([request])
    one_by_one = list(Job.objects.order_by("unique_key").values())

    for copied, inserted in zip(by_copy, one_by_one, strict=True):
        for made in (copied, inserted):
            for name in ITS_OWN:
                made.pop(name)
        until, expected = copied.pop("unique_until"), inserted.pop("unique_until")
        assert (until is None) == (expected is None)
        if until is not None:
            assert abs(until - expected) < timedelta(minutes=5)
        if "run_at" not in options:
            assert abs(copied.pop("run_at") - inserted.pop("run_at")) < HOUR
        assert copied == inserted


def test_delays_count_by_the_clock_of_the_database() -> None:
    enqueue_many(requests(run_in=HOUR, deadline=2 * HOUR))

    for job in Job.objects.all():
        assert job.state == "scheduled"
        assert job.run_at - job.created_at == pytest.approx(HOUR, abs=HOUR / 60)
        assert job.deadline_at - job.run_at == HOUR


def test_a_fifo_queue_has_priority_0() -> None:
    Queue.objects.create(name="line", policy="fifo")

    enqueue_many(requests(queue="line", priority=9))

    assert set(Job.objects.values_list("priority", flat=True)) == {0}


def test_rolled_back_none_is_there() -> None:
    with transaction.atomic():
        enqueue_many(requests())
        transaction.set_rollback(True)

    assert not Job.objects.exists()

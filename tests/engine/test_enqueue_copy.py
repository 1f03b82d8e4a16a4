"""Plain jobs by COPY: rows made while the server takes in those before them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, DataError, IntegrityError, connections, transaction
from django.test import TransactionTestCase
from psycopg.pq import TransactionStatus

from relay import codec, enqueue, enqueue_many
from relay.engine import wakeup
from relay.engine.enqueue import ReadyRow, insert_ready
from relay.ids import uuid7
from relay.models import Job, Queue
from relay.requests import JobRequest
from relay.unique import Unique
from testproject.tasks import add, echo

pytestmark = pytest.mark.django_db(transaction=True)


def row(
    *, args: str = '{"args":[],"kwargs":{}}', queue: str = "default", priority: int = 0
) -> ReadyRow:
    return (uuid7(), "tests.task", queue, priority, 25, args)


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Return of which queues and priorities workers are told."""
    told: list[tuple[str, int]] = []
    monkeypatch.setattr(
        wakeup,
        "announce",
        lambda using, queue, priority, ready_seq: told.append((queue, priority)),
    )
    return told


# --- rows on their way ---------------------------------------------------------------


def test_rows_are_made_while_the_copy_is_under_way() -> None:
    connection = connections["default"]
    seen: list[TransactionStatus] = []

    def rows() -> Iterator[ReadyRow]:
        for _ in range(500):
            seen.append(connection.connection.info.transaction_status)
            yield row()

    insert_ready(rows(), using="default")

    assert set(seen) == {TransactionStatus.ACTIVE}
    assert Job.objects.count() == 500


def test_their_order_is_the_order_of_ready_seq() -> None:
    rows = [row() for _ in range(500)]

    insert_ready(rows, using="default")

    stored = Job.objects.order_by("ready_seq").values_list("id", flat=True)
    assert list(stored) == [made[0] for made in rows]


def test_a_fifo_queue_stores_priority_0(announced: list[tuple[str, int]]) -> None:
    Queue.objects.create(name="fifo", policy="fifo")

    insert_ready(
        [row(queue="fifo", priority=7), row(queue="other", priority=7)], using="default"
    )

    stored = Job.objects.order_by("ready_seq").values_list("queue", "priority")
    assert list(stored) == [("fifo", 0), ("other", 7)]
    assert sorted(announced) == [("fifo", 0), ("other", 7)]


def test_workers_are_told_once_of_each_queue_and_priority(
    announced: list[tuple[str, int]],
) -> None:
    places = [("a", 0), ("a", 1), ("b", 0)]

    insert_ready(
        [row(queue=queue, priority=at) for queue, at in places * 100], using="default"
    )

    assert sorted(announced) == places


def test_no_rows_announce_nothing(announced: list[tuple[str, int]]) -> None:
    insert_ready([], using="default")
    with TransactionTestCase().assertNumQueries(0):
        assert enqueue_many([]) == []

    assert announced == []
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    "text",
    [
        *("\\", "\\\\", "\\n", "\\N", "\\.", '"', "", " "),
        *("a\tb\nc\rd\x0b\x0c\x08", "\x01\x1f", "\x7f\x85", "\u2028é𝄞"),
    ],
    ids=ascii,
)
def test_every_character_arrives_as_by_a_single_enqueue(text: str) -> None:
    one = echo.enqueue(text)
    [many] = enqueue_many([echo.job(text)])

    stored = Job.objects.in_bulk([one.id, many.id])
    assert stored[many.id].args == stored[one.id].args
    assert codec.decode_arguments(stored[many.id].args) == ([text], {})


@pytest.mark.parametrize("name", ["back\\slash", "\\N", "\\.", "é", "a:b/c"])
def test_every_name_arrives_as_by_a_single_enqueue(name: str) -> None:
    made = JobRequest(
        task=name, args=row()[5], queue="default", priority=0, max_retries=1
    )
    enqueue(name)

    enqueue_many([made])

    assert list(Job.objects.values_list("task", flat=True)) == [name, name]


# --- what goes wrong half way --------------------------------------------------------


class StoppedError(Exception): ...


def doubled() -> Iterator[ReadyRow]:
    first = row()
    yield first
    yield from (row() for _ in range(200))
    yield first


def stopped() -> Iterator[ReadyRow]:
    yield from (row() for _ in range(200))
    raise StoppedError


FAULTS: dict[str, tuple[Callable[[], Iterator[ReadyRow]], type[Exception]]] = {
    "an id twice": (doubled, IntegrityError),
    "a refused value": (
        lambda: iter([*(row() for _ in range(99)), row(priority=999)]),
        IntegrityError,
    ),
    "no json": (
        lambda: iter([*(row() for _ in range(99)), row(args="{"), row()]),
        DataError,
    ),
    "a surrogate": (
        lambda: iter([*(row() for _ in range(99)), row(args='"\udce9"')]),
        UnicodeEncodeError,
    ),
    "an error of the caller's": (stopped, StoppedError),
}


@contextmanager
def savepoint() -> Iterator[None]:
    with transaction.atomic():
        add.enqueue(0, 0)
        yield
        add.enqueue(9, 9)


@pytest.mark.parametrize("is_nested", [False, True], ids=["alone", "in a transaction"])
@pytest.mark.parametrize("fault", FAULTS)
def test_an_error_half_way_leaves_nothing_and_a_usable_connection(
    fault: str, is_nested: bool, announced: list[tuple[str, int]]
) -> None:
    rows, error = FAULTS[fault]

    with savepoint() if is_nested else nullcontext():
        before = len(announced)
        with pytest.raises(error), transaction.atomic() if is_nested else nullcontext():
            insert_ready(rows(), using="default")
        assert len(announced) == before
        insert_ready([row()], using="default")

    assert Job.objects.count() == (3 if is_nested else 1)


def test_an_error_half_way_breaks_the_transaction_around_it() -> None:
    def insert_in_one() -> None:
        with transaction.atomic():
            add.enqueue(1, 2)
            insert_ready(doubled(), using="default")

    with pytest.raises(DatabaseError):
        insert_in_one()

    assert not Job.objects.exists()


# --- requests ------------------------------------------------------------------------


def test_what_makes_the_requests_may_use_the_connection() -> None:
    for name in ("a", "b", "c"):
        User.objects.create(username=name)

    handles = enqueue_many(
        echo.job(user.username)
        for user in User.objects.order_by("username").iterator(chunk_size=1)
        if User.objects.filter(pk=user.pk).exists()
    )

    stored = Job.objects.in_bulk([handle.id for handle in handles])
    assert [stored[each.id].args["args"][0] for each in handles] == ["a", "b", "c"]


def test_handles_of_plain_and_rare_jobs_come_in_the_order_of_their_requests() -> None:
    kinds: list[Any] = [
        echo,
        echo.using(run_in=timedelta(hours=1)),
        echo.using(unique=Unique()),
        echo.using(tags=["x"]),
        echo.using(priority=3),
    ]
    requests = [kinds[number % len(kinds)].job(number) for number in range(50)]

    handles = enqueue_many(requests)

    stored = Job.objects.in_bulk([handle.id for handle in handles])
    numbers = [stored[handle.id].args["args"][0] for handle in handles]
    assert numbers == list(range(50))


def test_a_refused_request_keeps_all_of_them_from_the_database() -> None:
    with (
        TransactionTestCase().assertNumQueries(0),
        pytest.raises(StoppedError),
    ):
        enqueue_many(_two_and_an_error())


def _two_and_an_error() -> Iterator[JobRequest[object]]:
    yield add.job(1, 2)
    yield add.job(3, 4)
    raise StoppedError

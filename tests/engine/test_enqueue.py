"""relay.engine.enqueue and the public enqueue functions, on committed rows."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from relay import (
    ArgumentError,
    EncodeError,
    Task,
    Unique,
    codec,
    enqueue,
    enqueue_many,
    inserting,
    tasks,
)
from relay.engine.connection import connect
from relay.engine.enqueue import insert, insert_many, insert_with
from relay.engine.new_job import NewJob
from relay.exceptions import DecodeError
from relay.ids import uuid7
from relay.models import Job
from relay.options import LATEST
from relay.tasks import register
from testproject.tasks import aadd, add, echo

pytestmark = pytest.mark.django_db(transaction=True)


def new_job(**changes: Any) -> NewJob:
    values: dict[str, Any] = {
        "id": uuid7(),
        "task": "tests.task",
        "queue": "default",
        "args": '{"args":[],"kwargs":{}}',
        "max_retries": 25,
    }
    return NewJob(**values | changes)


def row(job_id: UUID) -> Job:
    return Job.objects.get(pk=job_id)


@contextmanager
def rolled_back() -> Iterator[None]:
    """A transaction, or a savepoint in one, that ends in an exception."""
    with suppress(ZeroDivisionError), transaction.atomic():
        yield
        raise ZeroDivisionError


@pytest.fixture
def duty() -> Iterator[psycopg.Connection[Any]]:
    with connect("default", role="duty", name="test") as made:
        yield made


# --- one job -------------------------------------------------------------------------


def test_an_enqueued_job_is_ready_with_its_arguments_and_defaults() -> None:
    handle = add.enqueue(1, b=2)

    job = row(handle.id)
    assert job.task == "testproject.tasks.add"
    assert job.args == {"args": [1], "kwargs": {"b": 2}}
    assert (job.state, job.queue, job.priority) == ("queued", "default", 0)
    assert (job.attempt, job.failures, job.max_retries) == (0, 0, 25)
    assert job.run_at == job.created_at
    assert (job.meta, job.tags, job.timeout_ms, job.expires_at) == (None,) * 4


def test_options_are_stored_with_the_job() -> None:
    handle = add.using(queue="mail", priority=-7, max_retries=0).enqueue(1, 2)

    job = row(handle.id)
    assert (job.queue, job.priority, job.max_retries) == ("mail", -7, 0)


def test_a_timeout_is_the_task_s_or_the_enqueue_s() -> None:
    timed = register(
        Task(
            _timed,
            name="tests.enqueue.timed",
            timeout=timedelta(seconds=30),
            soft_timeout=timedelta(seconds=20),
        )
    )

    found = [
        timed.enqueue(),
        timed.using(timeout=timedelta(milliseconds=1)).enqueue(),
        timed.using(timeout=None).enqueue(),
        *enqueue_many([timed.job()]),
        enqueue("no:code", timeout=timedelta(days=24)),
    ]

    milliseconds = [row(handle.id).timeout_ms for handle in found]
    assert milliseconds == [30_000, 1, None, 30_000, 24 * 86_400_000]


def _timed() -> None: ...


@pytest.mark.parametrize("unique", [None, Unique()], ids=["plain", "unique"])
def test_a_deadline_from_now_counts_by_the_database_s_clock(
    unique: Unique | None,
) -> None:
    within = add.using(deadline=timedelta(hours=1), unique=unique)
    handles = [within.enqueue(1, 2), *enqueue_many([within.job(3, 4)])]

    for handle in handles:
        job = row(handle.id)
        assert job.deadline_at is not None
        left = job.deadline_at - job.created_at
        assert abs(left - timedelta(hours=1)) < timedelta(seconds=30)
        assert job.state == "queued"


def test_every_field_of_a_new_job_reaches_its_column() -> None:
    due = datetime(2999, 1, 1, tzinfo=UTC)
    job = new_job(
        queue="q",
        priority=3,
        run_at=due,
        timeout=timedelta(seconds=1.5),
        deadline=due,
        meta='{"a": 1}',
        tags=("x", "y,{}"),
        schedule_id=uuid7(),
        occurrence_at=due,
        replay_of=uuid7(),
    )
    other = new_job(**{name: getattr(job, name) for name in job._fields[1:]})
    insert(job, using="default")
    insert_many([other], using="default")

    for made in (job, other):
        stored = row(made.id)
        assert (stored.state, stored.run_at) == ("scheduled", due)
        assert (stored.timeout_ms, stored.deadline_at) == (1500, due)
        assert (stored.meta, stored.tags) == ({"a": 1}, ["x", "y,{}"])
        assert (stored.schedule_id, stored.replay_of) == (
            made.schedule_id,
            made.replay_of,
        )
        assert stored.occurrence_at == due
        assert (stored.queue, stored.priority) == ("q", 3)


@pytest.mark.parametrize("as_many", [False, True], ids=["one", "many"])
@pytest.mark.parametrize(
    ("options", "state"),
    [
        ({"run_in": timedelta(seconds=60)}, "scheduled"),
        ({"run_in": timedelta(0)}, "queued"),
        ({"run_in": timedelta(seconds=-5)}, "queued"),
        ({"run_in": timedelta.min}, "queued"),
        ({"run_in": None}, "queued"),
        ({"run_at": datetime(1970, 1, 1, tzinfo=UTC)}, "queued"),
        ({"run_at": datetime(2999, 1, 1, tzinfo=UTC)}, "scheduled"),
        ({"run_at": LATEST}, "scheduled"),
        ({"run_at": None}, "queued"),
    ],
    ids=[
        "later",
        "zero",
        "negative",
        "most negative",
        "no delay",
        "past",
        "future",
        "latest",
        "no time",
    ],
)
def test_failure_123_a_due_time_that_has_come_means_now(
    options: Any, state: str, as_many: bool
) -> None:
    bound = add.using(**options)

    handle = enqueue_many([bound.job(1, 2)])[0] if as_many else bound.enqueue(1, 2)

    assert handle.state == state


def test_a_delay_counts_from_the_databases_clock() -> None:
    handle = add.using(run_in=timedelta(hours=1)).enqueue(1, 2)

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT run_at - clock_timestamp() FROM relay_job WHERE id = %s",
            [handle.id],
        )
        (left,) = cursor.fetchone()
    assert timedelta(minutes=59) < left <= timedelta(hours=1)


def test_a_delay_counts_from_the_enqueue_and_not_from_its_transaction() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        handle = add.using(run_in=timedelta(hours=1)).enqueue(1, 2)
        cursor.execute(
            "SELECT run_at - now() FROM relay_job WHERE id = %s", [handle.id]
        )
        (since_begin,) = cursor.fetchone()

    assert since_begin > timedelta(hours=1)


def test_an_id_enqueued_again_leaves_the_first_job_alone() -> None:
    bound = add.using(id=uuid7())

    first = bound.enqueue(1, 2)
    again = bound.enqueue(3, 4)

    assert first == again
    assert row(first.id).args == {"args": [1, 2], "kwargs": {}}


def test_failure_111_sequences_past_2147483647_work() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER SEQUENCE relay_ready_seq RESTART 3000000000")

    one = add.enqueue(1, 2)
    many = enqueue_many([add.job(1, 2)])

    assert row(one.id).ready_seq == 3_000_000_000
    assert row(many[0].id).ready_seq > 3_000_000_000


def test_failure_120_large_arguments_and_wide_characters_are_inserted() -> None:
    handle = echo.using(queue="q" * 100).enqueue("x" * 20_000)
    wide = echo.enqueue("𝄞" * 2_000)

    assert row(handle.id).args["args"] == ["x" * 20_000]
    assert row(wide.id).args["args"] == ["𝄞" * 2_000]


@pytest.mark.parametrize(
    "value",
    [1e16, -0.0, 1e-7, 5e-324, 1.0, 10**400, {"b": 1, "a": {"__relay__": 1}}, "é𝄞\\"],
    ids=lambda value: repr(value)[:20],
)
def test_a_value_comes_back_from_jsonb_as_it_was(value: Any) -> None:
    handle = echo.enqueue(value)

    with connection.cursor() as cursor:
        cursor.execute("SELECT args::text FROM relay_job WHERE id = %s", [handle.id])
        (text,) = cursor.fetchone()
    (back,), _ = codec.decode_arguments(json.loads(text))
    assert repr(back) == repr(value) or back == value
    assert type(back) is type(value)


# --- in the caller's transaction -----------------------------------------------------


def test_failure_046_a_rolled_back_enqueue_leaves_no_job() -> None:
    with rolled_back():
        add.enqueue(1, 2)
        enqueue_many([add.job(1, 2)])

    assert not Job.objects.exists()


def test_failure_092_an_inner_savepoint_takes_only_its_own_jobs_with_it() -> None:
    with transaction.atomic():
        outer = add.enqueue(1, 2)
        with rolled_back():
            add.enqueue(3, 4)

    assert list(Job.objects.values_list("id", flat=True)) == [outer.id]


def test_failure_021_a_job_is_not_visible_before_its_transaction_commits(
    duty: psycopg.Connection[Any],
) -> None:
    with transaction.atomic():
        User.objects.create(username="her")
        add.enqueue(1, 2)
        before = duty.execute("SELECT count(*) FROM relay_job").fetchone()
    after = duty.execute("SELECT count(*) FROM relay_job").fetchone()

    assert (before, after) == ((0,), (1,))


def test_an_error_of_the_database_is_djangos() -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        insert(new_job(priority=1000), using="default")

    with pytest.raises(DatabaseError), transaction.atomic():
        insert_many([new_job(priority=10**9)], using="default")

    assert not Job.objects.exists()


# --- many ----------------------------------------------------------------------------


def test_failure_120_5000_jobs_of_mixed_tasks_go_in_by_one_call_in_order() -> None:
    requests = [add.job(i, i) if i % 2 else echo.job(str(i)) for i in range(5_000)]

    handles = enqueue_many(requests)

    stored = Job.objects.order_by("ready_seq").values_list("id", "task", "state")
    assert [(h.id, h.task, "queued") for h in handles] == list(stored)


def test_enqueue_many_of_nothing_does_nothing() -> None:
    assert enqueue_many([]) == []


def test_enqueue_many_takes_any_iterable() -> None:
    handles = enqueue_many(add.job(i, i) for i in range(3))

    assert Job.objects.count() == len(handles) == 3


def test_the_same_request_enqueued_twice_makes_two_jobs() -> None:
    request = add.job(1, 2)

    enqueue_many([request, request])

    assert Job.objects.count() == 2


def test_enqueue_many_with_an_id_that_is_there_inserts_nothing() -> None:
    there = add.enqueue(1, 2)

    with pytest.raises(IntegrityError):
        enqueue_many([add.job(3, 4), add.using(id=there.id).job(5, 6)])

    assert list(Job.objects.values_list("id", flat=True)) == [there.id]


def test_jobs_due_now_and_later_go_in_by_one_copy() -> None:
    handles = enqueue_many(
        [
            add.job(1, 2),
            add.using(run_in=timedelta(days=1)).job(1, 2),
            add.using(run_in=timedelta(days=-1)).job(1, 2),
        ]
    )

    assert [handle.state for handle in handles] == ["queued", "scheduled", "queued"]
    first, second, _ = (row(handle.id).run_at for handle in handles)
    assert second - first == timedelta(days=1)


@override_settings(USE_TZ=False)
def test_a_project_without_time_zones_enqueues_by_copy() -> None:
    handles = enqueue_many(
        [add.job(1, 2), add.using(run_at=datetime(2999, 1, 1, tzinfo=UTC)).job(1, 2)]
    )

    assert [handle.state for handle in handles] == ["queued", "scheduled"]


def test_enqueueing_works_while_queries_are_logged() -> None:
    with CaptureQueriesContext(connection) as queries:
        add.enqueue(1, 2)
        enqueue_many([add.job(1, 2)])

    assert any("COPY relay_job" in query["sql"] for query in queries)


@pytest.mark.parametrize("value", [add, "testproject.tasks.add", None], ids=str)
def test_enqueue_many_takes_nothing_but_requests(value: Any) -> None:
    with pytest.raises(ArgumentError, match="enqueue_many with"):
        enqueue_many([add.job(1, 2), value])

    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (add, "call its enqueue"),
        *((other, "cannot name a task") for other in (3, None, ["x"])),
    ],
    ids=str,
)
def test_enqueue_takes_nothing_but_a_name(name: Any, reason: str) -> None:
    with pytest.raises(ArgumentError, match=reason):
        enqueue(name)


# --- over a plain connection, for duties ---------------------------------------------


def test_insert_with_gives_the_place_of_a_ready_job(
    duty: psycopg.Connection[Any],
) -> None:
    job = new_job(schedule_id=uuid7(), occurrence_at=datetime(2026, 1, 1, tzinfo=UTC))

    with duty.transaction():
        ready_seq = insert_with(duty, job)

    assert row(job.id).ready_seq == ready_seq
    assert row(job.id).state == "queued"
    assert insert_with(duty, job) is None


def test_insert_with_gives_nothing_for_a_job_due_later(
    duty: psycopg.Connection[Any],
) -> None:
    job = new_job(run_in=timedelta(hours=1))

    assert insert_with(duty, job) is None
    assert row(job.id).state == "scheduled"


def test_the_statements_stay_right_once_prepared(
    duty: psycopg.Connection[Any],
) -> None:
    duty.prepare_threshold = 0

    for number in range(6):
        insert_with(duty, new_job(priority=number))
        insert_with(duty, new_job(priority=number, meta='{"n": 1}'))

    assert Job.objects.count() == 12


# --- by name -------------------------------------------------------------------------


def test_a_job_is_enqueued_by_name_without_its_code() -> None:
    handle = enqueue(
        "email:send", {"to": "a@b.com"}, kwargs={"name": 1}, queue="mail", priority=1
    )

    job = row(handle.id)
    assert (job.task, job.queue, job.priority) == ("email:send", "mail", 1)
    assert job.args == {"args": [{"to": "a@b.com"}], "kwargs": {"name": 1}}
    assert job.max_retries == 25


def test_a_registered_name_binds_its_arguments_and_takes_its_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "_tasks", dict(tasks._tasks))

    @tasks.task(name="by:name", queue="slow", priority=5, max_retries=1)
    def function(a: int) -> None: ...

    handle = enqueue("by:name", 1, priority=6)

    job = row(handle.id)
    assert (job.queue, job.priority, job.max_retries) == ("slow", 6, 1)
    with pytest.raises(ArgumentError, match="by:name"):
        enqueue("by:name", kwargs={"wrong": 1})


def test_what_is_refused_leaves_no_job() -> None:
    with pytest.raises(ArgumentError):
        add.enqueue(1)  # type: ignore[call-arg] # too few on purpose
    with pytest.raises(EncodeError):
        echo.enqueue(float("nan"))
    with pytest.raises(ArgumentError):
        enqueue("x", priority=101)
    with pytest.raises(ArgumentError):
        enqueue("two words")

    assert not Job.objects.exists()


# --- from async code -----------------------------------------------------------------


async def enqueue_all() -> list[UUID]:
    return [
        (await add.aenqueue(1, 2)).id,
        (await add.using(queue="mail").aenqueue(1, 2)).id,
        (await aadd.aenqueue(1, 2)).id,
        (await tasks.aenqueue("by:name", 1)).id,
        (await inserting.aenqueue_many([add.job(1, 2)]))[0].id,
    ]


def test_async_code_enqueues_in_a_transaction_of_its_own() -> None:
    ids = async_to_sync(enqueue_all)()

    assert set(Job.objects.values_list("id", flat=True)) == set(ids)


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (lambda: add.enqueue(1, 2), "await aenqueue()"),
        (lambda: add.using(priority=1).enqueue(1, 2), "await aenqueue()"),
        (lambda: enqueue("by:name", 1), "await aenqueue()"),
        (lambda: enqueue_many([add.job(1, 2)]), "await aenqueue_many()"),
    ],
    ids=["of a task", "with options", "by name", "many"],
)
def test_a_plain_enqueue_in_async_code_is_refused_with_the_other_ones_name(
    call: Callable[[], object], instead: str
) -> None:
    async def blocks() -> None:
        call()

    with pytest.raises(SynchronousOnlyOperation) as caught:
        async_to_sync(blocks)()

    assert instead in str(caught.value)
    assert not Job.objects.exists()


# --- model instances, by reference ---------------------------------------------------


def test_a_model_instance_travels_by_its_key() -> None:
    user = User.objects.create(username="her")

    document = json.loads(codec.encode([user]))

    assert document == [{"__relay__": "model", "model": "auth.User", "pk": user.pk}]
    assert codec.decode(document) == [user]


def test_a_coroutine_gets_its_model_instance_read_in_a_thread() -> None:
    user = User.objects.create(username="her")
    document = json.loads(codec.encode_arguments((1,), {"users": [user]}))

    decoded = async_to_sync(codec.adecode_arguments)(document)

    assert decoded == ([1], {"users": [user]})


def test_a_deleted_instance_is_named() -> None:
    user = User.objects.create(username="her")
    document = json.loads(codec.encode(user))
    user.delete()

    with pytest.raises(DecodeError, match=r"auth\.User with primary key .* deleted"):
        codec.decode(document)


def test_an_unsaved_instance_and_a_queryset_are_refused() -> None:
    with pytest.raises(EncodeError, match="save it first"):
        codec.encode(User(username="her"))
    with pytest.raises(EncodeError, match="QuerySet"):
        codec.encode(User.objects.all())


def test_an_instance_of_another_database_names_it() -> None:
    user = User.objects.create(username="her")
    user._state.db = "archive"

    assert json.loads(codec.encode(user))["using"] == "archive"


def test_threads_enqueue_side_by_side() -> None:
    def run() -> None:
        try:
            for _ in range(20):
                add.enqueue(1, 2)
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert Job.objects.count() == 80

"""Queues, workers, schedules, bulk operations, the record and tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, TypedDict
from uuid import UUID

import pytest
from django.db import connection
from django.utils import timezone

from relay import queries, task
from relay.conf import OWN_QUEUE
from relay.exceptions import (
    ArgumentError,
    NotAllowed,
    NotFound,
    ScheduleError,
    UnknownQueue,
    UnknownTask,
)
from relay.ids import uuid7
from relay.models import BulkOperation, Job, Occurrence, Queue, Schedule, Worker
from relay.operations import Actor, cancel_bulk, pause_queue, start_bulk
from relay.queries import documents
from relay.queries import queues as queues_of_queries
from relay.queries import tasks as tasks_of_queries
from relay.tasks import Task
from tests.operations.factory import actor, make_job
from tests.queries.documents import check
from tests.queries.factory import make_schedule, make_worker

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
ME = actor("view_job", "view_queue", "view_worker", "view_schedule", "view_payload")
HOUR = timedelta(hours=1)


# --- permissions ---------------------------------------------------------------------

ASKED: dict[str, tuple[str, Callable[[Any], object]]] = {
    "list_queues": ("view_queue", queries.list_queues),
    "get_queue": ("view_queue", lambda a: queries.get_queue(a, "default")),
    "list_workers": ("view_worker", queries.list_workers),
    "get_worker": ("view_worker", lambda a: queries.get_worker(a, "w1")),
    "count_workers": ("view_worker", queries.count_workers),
    "get_upcoming": ("view_schedule", queries.get_upcoming),
    "list_schedules": ("view_schedule", queries.list_schedules),
    "get_schedule": ("view_schedule", lambda a: queries.get_schedule(a, "n")),
    "list_occurrences": ("view_schedule", lambda a: queries.list_occurrences(a, "n")),
    "next_fires": ("view_schedule", lambda a: queries.next_fires(a, "n")),
    "preview": ("view_schedule", lambda a: queries.preview(a, cron="* * * * *")),
    "list_bulk": ("view_bulkoperation", queries.list_bulk),
    "get_bulk": ("view_bulkoperation", lambda a: queries.get_bulk(a, uuid7())),
    "list_audit": ("view_audit", queries.list_audit),
    "list_tokens": ("view_apitoken", queries.list_tokens),
    "get_token": ("view_apitoken", lambda a: queries.get_token(a, "x")),
    "list_tasks": ("view_job", queries.list_tasks),
    "get_task": ("view_job", lambda a: queries.get_task(a, "x")),
    "get_stats": ("view_metrics", queries.get_stats),
    "get_series": ("view_metrics", queries.get_series),
    "get_totals": ("view_metrics", queries.get_totals),
    "get_system": ("view_metrics", queries.get_system),
}


@pytest.mark.parametrize("name", ASKED)
def test_who_lacks_the_permission_is_refused(name: str) -> None:
    permission, ask = ASKED[name]

    with pytest.raises(NotAllowed, match=permission):
        ask(actor("cancel_job"))


# --- queues --------------------------------------------------------------------------


def test_a_queue_tells_what_waits_and_who_serves_it() -> None:
    make_worker(queues=["mail", "web"], concurrency=3)
    make_worker(queues=["mail"], state="quiet")
    make_worker(queues=["mail"], lease_expires_at=timezone.now() - HOUR)
    counts = {"queued": 5, "running": 2, "scheduled": 3, "retrying": 1}
    for state, count in counts.items():
        for number in range(count):
            at = timezone.now() + HOUR * (
                1 if state in ("scheduled", "retrying") else -1
            )
            make_job(state, queue="mail", run_at=at, priority=number)
    Queue.objects.create(name="mail", policy="fifo", weight=2)

    found = {queue["name"]: queue for queue in queries.list_queues(ME)}

    mail = found["mail"]
    check(mail, documents.QueueDocument)
    assert (mail["policy"], mail["weight"], mail["paused"]) == ("fifo", 2, False)
    assert [mail[name]["count"] for name in ("queued", "running")] == [5, 2]
    assert [mail[name]["count"] for name in ("scheduled", "retrying")] == [3, 1]
    assert (mail["workers"], mail["slots"]) == (1, 3)
    assert 3_590 < mail["latency"] < 3_700
    assert found["default"]["queued"] == {"count": 0, "capped": False}
    assert queries.get_queue(ME, "mail") == {
        **mail,
        "latency": pytest.approx(3_600, abs=99),
    }


def test_a_queue_that_nothing_names_is_listed_while_jobs_are_ready_in_it() -> None:
    job = make_job(queue="mial")
    make_job(queue=OWN_QUEUE)

    found = {queue["name"]: queue["is_named"] for queue in queries.list_queues(ME)}
    assert (found["mial"], found["default"]) == (False, True)
    assert OWN_QUEUE not in found
    assert queries.get_queue(ME, "mial")["queued"]["count"] == 1
    Job.objects.filter(pk=job.pk).update(state="completed", finished_at=timezone.now())
    with pytest.raises(UnknownQueue):
        queries.get_queue(ME, "mial")


def test_names_that_were_made_up_take_no_other_queues_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named = {queue["name"] for queue in queries.list_queues(ME)}
    monkeypatch.setattr(queues_of_queries, "MOST_QUEUES", len(named) + 1)
    for name in ("00", "01"):
        make_job(queue=name)

    found = [queue["name"] for queue in queries.list_queues(ME)]

    assert found == sorted({*named, "00"})


def test_a_pause_is_told_until_its_end() -> None:
    until = timezone.now() + HOUR
    Queue.objects.create(name="mail", paused_at=timezone.now(), paused_until=until)

    assert queries.get_queue(ME, "mail")["paused"]
    Queue.objects.update(paused_until=timezone.now() - HOUR)
    assert not queries.get_queue(ME, "mail")["paused"]
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE relay_queue SET paused_at = '20000-1-1', paused_until = 'infinity'"
        )
    found = queries.get_queue(ME, "mail")
    assert found["paused"]
    assert found["paused_until"] == "9999-12-30T00:00:00Z"


@pytest.mark.parametrize("name", ["nobody", "a\x00", "", "x" * 1_000])
def test_a_queue_that_nothing_names_is_not_found(name: str) -> None:
    with pytest.raises(UnknownQueue, match="names the queue"):
        queries.get_queue(ME, name)


# --- workers -------------------------------------------------------------------------


def test_a_worker_tells_what_it_runs_and_when_it_was_heard_of() -> None:
    worker = make_worker(queues=["mail"], heartbeat_at=timezone.now() - HOUR)
    jobs = [make_job("running", queue="mail", worker_id=worker.pk) for _ in range(2)]
    make_job("running", queue="mail", worker_id=make_worker(name="w2").pk)

    listed = {each["name"]: each for each in queries.list_workers(ME)["results"]}
    one, two = listed["w1"], listed["w2"]
    found = queries.get_worker(ME, str(worker.pk))

    check(one, documents.WorkerDocument)
    check(found, documents.WorkerDetail)
    assert (one["name"], one["running"], one["is_alive"]) == ("w1", 2, True)
    assert 3_590 < one["silent_for"] < 3_700
    assert two["running"] == 0 or two["queues"] == ["default"]
    assert found["jobs"] == sorted(str(job.pk) for job in jobs)


def test_a_workers_name_means_its_newest_row() -> None:
    make_worker(state="lost")
    newest = make_worker()

    assert queries.get_worker(ME, "w1")["id"] == str(newest.pk)
    for nobody in ("w2", "w\x002", uuid7()):
        with pytest.raises(NotFound, match="does not exist"):
            queries.get_worker(ME, nobody)


def test_workers_are_listed_by_state_and_page_by_page() -> None:
    made = [make_worker(name=f"w{number}") for number in range(5)]
    make_worker(state="lost")

    first = queries.list_workers(ME, state="running", limit=3)
    second = queries.list_workers(ME, state="running", limit=3, cursor=first["next"])

    names = [each["name"] for each in (*first["results"], *second["results"])]
    assert sorted(names) == sorted(worker.name for worker in made)
    assert second["next"] is None
    back = queries.list_workers(ME, state="running", limit=3, cursor=second["previous"])
    assert [w["id"] for w in back["results"]] == [w["id"] for w in first["results"]]
    with pytest.raises(ArgumentError, match="there are running"):
        queries.list_workers(ME, state="gone")


def test_times_that_python_cannot_hold_are_told_as_the_nearest() -> None:
    make_worker()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE relay_worker SET started_at = '-infinity', "
            "heartbeat_at = '-infinity', lease_expires_at = '20000-01-01'"
        )

    [found] = queries.list_workers(ME)["results"]

    check(found, documents.WorkerDocument)
    assert found["silent_for"] == 1e10


# --- schedules -----------------------------------------------------------------------


def test_a_schedule_tells_when_it_runs_and_what_became_of_it() -> None:
    schedule = make_schedule(
        timezone="Europe/Rome",
        args={"args": [], "kwargs": {"password": "x", "n": 1}},
        spread_ms=60_000,
    )
    for number in range(25):
        Occurrence.objects.create(schedule=schedule, due_at=NOW + HOUR * number)

    [listed] = queries.list_schedules(ME)["results"]
    found = queries.get_schedule(ME, "nightly")

    check(listed, documents.ScheduleDocument)
    check(found, documents.ScheduleDetail)
    assert (listed["when"], listed["cron"], listed["every"]) == (
        "0 3 * * *",
        "0 3 * * *",
        None,
    )
    assert listed["words"] == "at 03:00"
    assert listed["kwargs"] == {"password": "•••", "n": 1}
    assert (listed["spread"], listed["catch_up_window"]) == (60.0, 86_400.0)
    assert len(found["next"]) == 5
    check(found["next"][0], documents.FireDocument)
    assert "T03:00:00+0" in found["next"][0]["local"]
    assert len(found["occurrences"]) == 20
    check(found["occurrences"][0], documents.OccurrenceDocument)
    assert found["occurrences"][0]["due_at"] == "2026-12-01T12:00:00Z"
    assert len(queries.list_occurrences(ME, "nightly", limit=25)) == 25
    assert queries.get_schedule(actor("view_schedule"), "nightly")["kwargs"] == "•••"


def test_schedules_by_interval_and_of_one_instant() -> None:
    make_schedule("a", cron="", every_ms=5_400_000)
    make_schedule("b", cron="", once_at=NOW + timedelta(days=3_650))

    one, two = queries.list_schedules(ME)["results"]

    assert (one["when"], one["every"], one["cron"]) == ("every 1:30:00", 5_400.0, None)
    assert two["when"] == "once at 2036-11-27T12:00:00Z"
    [fire] = queries.next_fires(ME, "b")
    assert fire["planned_at"] == two["once_at"]


def test_schedules_are_paged_by_name() -> None:
    for name in "cab":
        make_schedule(name)

    first = queries.list_schedules(ME, limit=2)
    second = queries.list_schedules(ME, limit=2, cursor=first["next"])

    names = [each["name"] for each in (*first["results"], *second["results"])]
    assert names == ["a", "b", "c"]
    assert queries.list_schedules(ME, limit=2, cursor=second["previous"]) == first


def test_a_schedule_that_is_late_says_so() -> None:
    make_schedule(next_due_at=timezone.now() - HOUR, success_within_ms=60_000)
    Schedule.objects.update(created_at=timezone.now() - HOUR)

    [found] = queries.list_schedules(ME)["results"]

    assert found["is_late"]
    assert found["is_unsuccessful"]
    assert 3_590 < found["late_by"] < 3_700


def test_a_schedule_that_cannot_be_kept_is_shown_all_the_same() -> None:
    make_schedule()
    Schedule.objects.update(cron="nonsense", last_error="no expression")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE relay_schedule SET starts_at = 'infinity'")

    found = queries.get_schedule(ME, "nightly")

    check(found, documents.ScheduleDetail)
    assert (found["next"], found["error"]) == ([], "no expression")
    assert found["words"] is None
    with pytest.raises(ScheduleError):
        queries.next_fires(ME, "nightly")


def test_what_nobody_has_saved_is_previewed() -> None:
    fires = queries.preview(ME, cron="30 7 * * 1-5", timezone="Europe/Rome", limit=3)

    assert len(fires) == 3
    assert all("T07:30:00+0" in fire["local"] for fire in fires)
    assert queries.preview(ME, every=timedelta(minutes=5))[0]["note"] is None


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"cron": "nonsense"},
        {"cron": "* * * * *", "every": HOUR},
        {"cron": "* * * * *", "timezone": "Mars/Olympus"},
        {"every": timedelta(microseconds=1)},
        {"every": timedelta(days=9_999)},
        {"cron": "0 0 30 2 *"},
        {"cron": "* * * * *", "spread": timedelta(days=9)},
        {"cron": "* * * * *", "excluded": "never"},
    ],
)
def test_what_cannot_be_kept_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ScheduleError):
        queries.preview(ME, **given)


def test_a_preview_has_bounds() -> None:
    for limit in (0, 101, True):
        with pytest.raises(ArgumentError, match="from 1 to 100"):
            queries.preview(ME, cron="* * * * *", limit=limit)
    naive = datetime(2030, 1, 1)  # noqa: DTZ001 - what is refused
    with pytest.raises(ArgumentError, match="with a zone"):
        queries.preview(ME, once_at=naive)
    for nobody in ("x", "nig\x00htly2"):
        with pytest.raises(NotFound, match="no schedule is called"):
            queries.get_schedule(ME, nobody)


# --- bulk operations and the record --------------------------------------------------


def test_an_operation_says_what_it_waits_for() -> None:
    looker = actor("view_bulkoperation", "view_job")
    root = Actor(name="root", source="cli")
    bulk = start_bulk(root, "retry", "state:failed")
    jobs = Job.objects.filter(pk=bulk.job_id)

    def why(viewer: Actor = looker) -> dict[str, Any]:
        found = queries.get_bulk(viewer, bulk.pk)
        check(found, documents.BulkDetail)
        return dict(found["why"] or {})

    assert why()["cause"] == "no_worker"
    old = make_worker(queues=["mail"])
    assert why()["cause"] == "queue_not_served"
    assert "-q" not in why()["remedy"]
    old.queues.append(OWN_QUEUE)
    old.save()
    assert why()["cause"] == "starting"
    assert why(actor("view_bulkoperation")) == {}
    assert queries.get_worker(actor("view_worker"), old.pk)["queues"] == ["mail"]
    jobs.update(state="running", worker_id=old.pk)
    assert why() == {}
    jobs.delete()
    assert why()["cause"] == "deleted"
    cancel_bulk(root, bulk.pk)
    assert why() == {}


def test_bulk_operations_and_the_record_are_listed_from_the_newest() -> None:
    boss = actor(
        *("bulk_job", "retry_job", "manage_queue", "view_audit", "view_bulkoperation"),
        reason="a test",
    )
    make_job("failed")
    bulk = start_bulk(boss, "retry", "state:failed")
    pause_queue(boss, "default")

    [listed] = queries.list_bulk(boss)["results"]
    page = queries.list_audit(boss)

    check(listed, documents.BulkDocument)
    assert {**listed, "why": None} == queries.get_bulk(boss, str(bulk.pk))
    assert (listed["action"], listed["filter"]) == ("retry", "state:failed")
    check(page["results"][0], documents.AuditDocument)
    found = [(each["operation"], each["target"]) for each in page["results"]]
    assert found == [("pause_queue", "default"), ("start_bulk", str(bulk.pk))]
    assert page["results"][0]["reason"] == "a test"

    def operations(**values: Any) -> list[str]:
        return [e["operation"] for e in queries.list_audit(boss, **values)["results"]]

    assert operations(subject="queue") == ["pause_queue"]
    assert operations(subject="bulk", target=str(bulk.pk)) == ["start_bulk"]
    assert operations(subject="bulk", target="x\x00") == []
    one = queries.list_audit(boss, limit=1)
    two = queries.list_audit(boss, limit=1, cursor=one["next"])
    assert two["results"][0]["operation"] == "start_bulk"
    assert queries.list_audit(boss, limit=1, cursor=two["previous"]) == one


def test_what_cannot_be_asked_of_the_record() -> None:
    me = actor("view_audit")

    with pytest.raises(ArgumentError, match="there are job"):
        queries.list_audit(me, subject="user")
    with pytest.raises(ArgumentError, match="give a subject"):
        queries.list_audit(me, target="x")


def test_a_bulk_operation_that_is_not_there() -> None:
    me = actor("view_bulkoperation")
    BulkOperation.objects.create(action="retry", filter="x", actor="a", source="api")

    assert len(queries.list_bulk(me)["results"]) == 1
    for nobody in (uuid7(), "x"):
        with pytest.raises(NotFound):
            queries.get_bulk(me, nobody)


# --- tasks ---------------------------------------------------------------------------


class Address(TypedDict):
    street: str


@task(name="tests.queries.described", tags=["eu"])
def described(
    place: int,
    /,
    name: str,
    secret: str = "hunter2",
    *rest: bool,
    size: Literal["s", "m"] = "s",
    price: Decimal | None = None,
    ids: Sequence[UUID] = (),
    weights: dict[str, float] | None = None,
    address: Address | None = None,
    anything: Any = None,
    **more: int,
) -> None:
    """Do it.

    And more.
    """


@task(name="tests.queries.undescribed")
def undescribed(a, b: NotThere = 1):  # type: ignore[no-untyped-def, name-defined] # noqa: F821 - as a user's code may be
    pass


def test_a_task_tells_what_its_calls_look_like() -> None:
    found = queries.get_task(ME, "tests.queries.described")

    check(found, documents.TaskDocument)
    assert found["summary"] == "Do it."
    assert (found["sensitive"], found["tags"]) == ([], ["eu"])
    assert "hunter2" not in str(found)
    schema = found["arguments"]
    assert schema["required"] == ["place", "name"]
    assert schema["additionalProperties"] is True
    assert schema["x-positional"] == ["place", "*rest"]
    properties = schema["properties"]
    assert properties["name"] == {"type": "string"}
    assert properties["size"] == {"enum": ["s", "m"]}
    assert properties["rest"] == {"type": "array", "items": {"type": "boolean"}}
    assert properties["ids"] == {"type": "array"}
    assert properties["price"] == {"anyOf": [{}, {"type": "null"}]}
    assert properties["weights"]["anyOf"][0] == {
        "type": "object",
        "additionalProperties": {"type": "number"},
    }
    assert properties["address"]["anyOf"][0] == {"type": "object"}
    assert properties["anything"] == {}


def test_a_tasks_sensitive_arguments_are_named() -> None:
    pytest.importorskip("cryptography")
    made = Task(described.function, name="tests.queries.veiled", sensitive=["secret"])

    assert tasks_of_queries._document(ME, made)["sensitive"] == ["secret"]


def test_annotations_that_cannot_be_read_say_nothing() -> None:
    schema = queries.get_task(ME, "tests.queries.undescribed")["arguments"]

    assert schema["properties"] == {"a": {}, "b": {}}
    assert schema["required"] == ["a"]


def test_tasks_are_listed_without_relays_own() -> None:
    names = [each["name"] for each in queries.list_tasks(ME)]

    assert "tests.queries.described" in names
    assert names == sorted(names)
    assert not any(name.startswith("relay.") for name in names)
    with pytest.raises(UnknownTask, match="is registered"):
        queries.get_task(ME, "os.system")


def test_a_pruned_workers_name_is_none() -> None:
    job = make_job("running", worker_id=make_worker().pk)
    Worker.objects.all().delete()

    assert queries.get_job(ME, job.pk)["worker"] is None

"""Acts on queues, workers and schedules."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.core.exceptions import ValidationError

from relay import operations
from relay.exceptions import ArgumentError, Conflict, NotAllowed, NotFound, UnknownQueue
from relay.ids import uuid7
from relay.models import Audit, History, Job, Queue, Schedule, Worker
from relay.operations import Actor
from tests.operations.factory import actor, make_job

pytestmark = pytest.mark.django_db

LATER = datetime(2999, 1, 1, tzinfo=UTC)
ROOT = Actor(name="root", source="cli")


def make_worker(**values: Any) -> Worker:
    defaults: dict[str, Any] = {
        "name": "host-1",
        "host": "host",
        "pid": 1,
        "queues": ["default"],
        "concurrency": 1,
        "version": "0",
        "lease_expires_at": LATER,
    }
    return Worker.objects.create(**{**defaults, **values})


def make_schedule(**values: Any) -> Schedule:
    defaults = {
        "name": "nightly",
        "task": "testproject.tasks.echo",
        "cron": "0 3 * * *",
    }
    defaults["args"] = {"args": ["hello"], "kwargs": {}}  # type: ignore[assignment] # of JSON
    return Schedule.objects.create(**{**defaults, **values})


def on_record() -> list[tuple[str, str, str]]:
    rows = Audit.objects.order_by("id")
    return list(rows.values_list("operation", "subject", "target"))


NEEDED: list[tuple[str, Callable[[Actor], Any]]] = [
    ("manage_queue", lambda asker: operations.pause_queue(asker, "default")),
    ("manage_queue", lambda asker: operations.resume_queue(asker, "default")),
    ("manage_queue", lambda asker: operations.order_queue(asker, "default", "fifo")),
    ("manage_queue", lambda asker: operations.weigh_queue(asker, "default", 2)),
    ("manage_worker", lambda asker: operations.delete_worker(asker, uuid7())),
    ("manage_worker", lambda asker: operations.quiet_worker(asker, uuid7())),
    ("manage_worker", lambda asker: operations.resume_worker(asker, uuid7())),
    ("manage_worker", lambda asker: operations.stop_worker(asker, uuid7())),
    ("run_schedule", lambda asker: operations.run_schedule(asker, uuid7())),
    ("manage_schedule", lambda asker: operations.pause_schedules(asker, [])),
    ("manage_schedule", lambda asker: operations.resume_schedules(asker, [])),
    ("manage_schedule", lambda asker: operations.create_schedule(asker, Schedule())),
    ("manage_schedule", lambda asker: operations.edit_schedule(asker, Schedule(), [])),
    ("manage_schedule", lambda asker: operations.delete_schedule(asker, uuid7())),
]


@pytest.mark.parametrize(
    ("permission", "run"), NEEDED, ids=[str(number) for number in range(len(NEEDED))]
)
def test_each_needs_its_permission(
    permission: str, run: Callable[[Actor], Any]
) -> None:
    with pytest.raises(NotAllowed, match=permission):
        run(actor(*operations.PERMISSIONS - {permission}))

    assert on_record() == []


def test_a_queue_is_paused_ordered_and_resumed() -> None:
    operations.pause_queue(ROOT, "default", until=LATER)
    assert operations.order_queue(ROOT, "default", "fifo")
    queue = Queue.objects.get(name="default")
    assert (queue.paused_until, queue.policy) == (LATER, "fifo")

    assert operations.resume_queue(ROOT, "default")
    assert not operations.resume_queue(ROOT, "default")
    assert not operations.order_queue(ROOT, "default", "fifo")

    assert on_record() == [
        ("pause_queue", "queue", "default"),
        ("order_queue", "queue", "default"),
        ("resume_queue", "queue", "default"),
    ]
    assert set(History.objects.values_list("actor", flat=True)) == {"root"}


def test_a_queue_is_weighed() -> None:
    assert operations.weigh_queue(ROOT, "default", 1) is False
    assert not Queue.objects.exists()

    assert operations.weigh_queue(ROOT, "default", 6) is True
    assert operations.weigh_queue(ROOT, "default", 6) is False
    assert operations.weigh_queue(ROOT, "default", 1) is True

    assert Queue.objects.get().weight == 1
    assert on_record() == [("weigh_queue", "queue", "default")] * 2
    assert History.objects.count() == 2
    for wrong in (0, 1_001, True, "6"):
        with pytest.raises(ArgumentError, match="weight="):
            operations.weigh_queue(ROOT, "default", wrong)  # type: ignore[arg-type] # as a caller may
    with pytest.raises(UnknownQueue):
        operations.weigh_queue(ROOT, "none", 2)


def test_a_queue_that_nothing_names_or_no_name_can_be_is_refused() -> None:
    with pytest.raises(UnknownQueue):
        operations.pause_queue(ROOT, "nobodys")
    with pytest.raises(ArgumentError):
        operations.pause_queue(ROOT, '"; drop table')
    with pytest.raises(ArgumentError):
        operations.order_queue(ROOT, "default", "random")  # type: ignore[arg-type] # on purpose


def test_all_children_of_a_workers_process_are_asked() -> None:
    supervisor = uuid7()
    one, two = (make_worker(supervisor=supervisor) for _ in range(2))
    gone = make_worker(supervisor=supervisor, state="lost")
    other = make_worker(supervisor=uuid7())

    asked = operations.quiet_worker(ROOT, two.pk)

    assert asked == sorted([one.pk, two.pk])
    found = dict(Worker.objects.values_list("pk", "asked"))
    assert found == {one.pk: "quiet", two.pk: "quiet", gone.pk: None, other.pk: None}
    assert on_record() == [("quiet_worker", "worker", str(pk)) for pk in asked]


@pytest.mark.parametrize("state", ["draining", "stopped", "lost"])
def test_a_worker_that_ends_is_asked_for_nothing_more(state: str) -> None:
    worker = make_worker(state=state, supervisor=uuid7())

    with pytest.raises(Conflict, match=state):
        operations.quiet_worker(ROOT, worker.pk)


def test_a_worker_that_was_asked_to_stop_is_asked_for_nothing_else() -> None:
    worker = make_worker()
    operations.stop_worker(ROOT, worker.pk)

    with pytest.raises(Conflict):
        operations.resume_worker(ROOT, worker.pk)
    with pytest.raises(NotFound):
        operations.stop_worker(ROOT, uuid7())

    worker.refresh_from_db()
    assert worker.asked == "stop"


@pytest.mark.parametrize("state", ["stopped", "lost"])
def test_the_row_of_a_worker_that_has_ended_is_deleted(state: str) -> None:
    worker, other = make_worker(state=state), make_worker(state=state)

    operations.delete_worker(ROOT, worker.pk)

    assert list(Worker.objects.values_list("pk", flat=True)) == [other.pk]
    assert on_record() == [("delete_worker", "worker", str(worker.pk))]
    with pytest.raises(NotFound):
        operations.delete_worker(ROOT, worker.pk)


def test_a_worker_that_is_there_or_has_jobs_is_not_deleted() -> None:
    for state in ("running", "quiet", "draining"):
        with pytest.raises(Conflict, match=f"it is {state}"):
            operations.delete_worker(ROOT, make_worker(state=state).pk)
    lost = make_worker(state="lost")
    make_job("running", worker_id=lost.pk)

    with pytest.raises(Conflict, match="has running jobs"):
        operations.delete_worker(ROOT, lost.pk)

    assert Worker.objects.count() == 4
    assert on_record() == []


def test_a_schedule_is_run_paused_and_resumed() -> None:
    schedule = make_schedule()

    job_id = operations.run_schedule(ROOT, schedule.pk)
    paused = operations.pause_schedules(ROOT, [schedule.pk])
    again = operations.pause_schedules(ROOT, [schedule.pk])
    resumed = operations.resume_schedules(ROOT, [schedule.pk])

    assert Job.objects.get().pk == job_id
    assert (paused, again, resumed) == ([schedule.pk], [], [schedule.pk])
    assert on_record() == [
        (name, "schedule", "nightly")
        for name in ("run_schedule", "pause_schedules", "resume_schedules")
    ]


def test_a_schedule_is_created_edited_and_deleted() -> None:
    made = operations.create_schedule(
        ROOT, Schedule(name="weekly", task="testproject.tasks.echo", cron="0 3 * * 1")
    )
    made.cron, made.args = "0 4 * * 1", {"args": ["secret"], "kwargs": {}}
    operations.edit_schedule(ROOT, made, ["cron", "args"])
    changed = Schedule.objects.get()
    assert changed.cron == "0 4 * * 1"

    operations.delete_schedule(ROOT, made.pk)

    assert not Schedule.objects.exists()
    assert [row[0] for row in on_record()] == [
        "create_schedule",
        "edit_schedule",
        "delete_schedule",
    ]
    edited = Audit.objects.get(operation="edit_schedule")
    assert edited.detail == {"args": None, "cron": ["0 3 * * 1", "0 4 * * 1"]}


def test_a_schedule_that_cannot_be_kept_or_is_there_is_refused() -> None:
    make_schedule()

    with pytest.raises(ValidationError):
        operations.create_schedule(ROOT, Schedule(name="x", task="t.t", cron="often"))
    with pytest.raises(Conflict, match="nightly"):
        operations.create_schedule(
            ROOT, Schedule(name="nightly", task="t.t", cron="0 3 * * *")
        )

    assert on_record() == []


def test_what_code_declares_is_only_paused() -> None:
    schedule = make_schedule(source="code")

    with pytest.raises(Conflict, match="code"):
        operations.delete_schedule(ROOT, schedule.pk)
    schedule.cron = "0 5 * * *"
    with pytest.raises(Conflict, match="code"):
        operations.edit_schedule(ROOT, schedule, ["cron"])
    schedule.enabled = False
    operations.edit_schedule(ROOT, schedule, ["enabled"])

    schedule.refresh_from_db()
    assert (schedule.enabled, schedule.cron) == (False, "0 3 * * *")


ON_ONE: list[Callable[[UUID], Any]] = [
    lambda key: operations.run_schedule(ROOT, key),
    lambda key: operations.pause_schedules(ROOT, [key]),
    lambda key: operations.delete_schedule(ROOT, key),
    lambda key: operations.edit_schedule(ROOT, Schedule(pk=key), ["cron"]),
]


@pytest.mark.parametrize(
    "run", ON_ONE, ids=[str(number) for number in range(len(ON_ONE))]
)
def test_a_schedule_that_is_gone_is_not_found(run: Callable[[UUID], Any]) -> None:
    with pytest.raises(NotFound):
        run(uuid7())


def test_a_schedule_is_not_given_the_name_of_another() -> None:
    mine, other = (make_schedule(name=name) for name in ("mine", "other"))
    mine.name = other.name

    with pytest.raises(Conflict, match="'other' already"):
        operations.edit_schedule(ROOT, mine, ["name"])

    assert set(Schedule.objects.values_list("name", flat=True)) == {"mine", "other"}


def test_of_two_edits_the_later_one_keeps_what_the_first_has_changed() -> None:
    mine = make_schedule(name="mine", cron="", every_ms=60_000)
    theirs = Schedule.objects.get(pk=mine.pk)
    mine.cron, mine.every_ms, theirs.every_ms = "0 3 * * *", None, 120_000
    operations.edit_schedule(ROOT, mine, ["cron", "every_ms"])

    with pytest.raises(ValidationError, match="in one way"):
        operations.edit_schedule(ROOT, theirs, ["every_ms"])

    kept = Schedule.objects.get()
    assert (kept.cron, kept.every_ms) == ("0 3 * * *", None)

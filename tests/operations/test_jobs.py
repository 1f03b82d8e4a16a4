"""Acts on jobs: allowed, done, on record; or none of the three."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from relay import operations
from relay.engine.acts import ActReport
from relay.exceptions import (
    ArgumentError,
    Conflict,
    JobNotFound,
    NotAllowed,
    NotFound,
    RelayError,
    StateConflict,
    UnknownQueue,
)
from relay.ids import uuid7
from relay.models import Attempt, Audit, History, Job, Output, Queue, Step
from relay.operations import Actor, JobCall
from tests.operations.factory import actor, make_job

pytestmark = pytest.mark.django_db

LATER = datetime(2999, 1, 1, tzinfo=UTC)
ECHO = "testproject.tasks.echo"


def on_record() -> list[tuple[str, str, str]]:
    rows = Audit.objects.order_by("id")
    return list(rows.values_list("operation", "target", "actor"))


MANY: list[tuple[str, Callable[..., ActReport], str, str, str | None]] = [
    ("cancel_job", operations.cancel_jobs, "queued", "cancelled", "cancel"),
    ("retry_job", operations.retry_jobs, "failed", "queued", "retry"),
    ("retry_job", operations.replay_jobs, "completed", "completed", "replay"),
    ("retry_job", operations.run_jobs_now, "scheduled", "queued", "run_now"),
    ("delete_job", operations.delete_jobs, "completed", "", None),
]


@pytest.mark.parametrize(("permission", "run", "before", "after", "event"), MANY)
def test_an_act_changes_what_it_can_and_is_on_record_with_each_job(
    permission: str,
    run: Callable[..., ActReport],
    before: str,
    after: str,
    event: str | None,
) -> None:
    jobs = sorted(
        (make_job(before, run_at=LATER) for _ in range(2)), key=lambda j: j.pk
    )
    left = make_job("running")
    gone = uuid7()
    asker = actor(permission, reason="why", request_id="r-1", address="10.0.0.1")

    report = run(asker, [left.pk, *(job.pk for job in jobs), gone])

    assert list(report.done) == [job.pk for job in jobs]
    found = dict(Job.objects.values_list("pk", "state"))
    assert [found.get(job.pk, "") for job in jobs] == [after, after]
    changed = [*report.done, *report.asked]
    rows = list(Audit.objects.order_by("id"))
    assert [row.target for row in rows] == [str(job_id) for job_id in changed]
    assert {
        (row.operation, row.subject, row.actor, row.source, row.reason) for row in rows
    } == {(run.__name__, "job", "ada", "api", "why")}
    assert {(row.request_id, row.address) for row in rows} == {("r-1", "10.0.0.1")}
    if event is not None:
        of_job = History.objects.filter(job_id=jobs[0].pk).get()
        assert (of_job.event, of_job.actor) == (event, "ada")
        told = {"source": "api", "reason": "why", "request_id": "r-1"}
        assert told.items() <= of_job.detail.items()


@pytest.mark.parametrize(("permission", "run", "before", "after", "event"), MANY)
def test_an_act_without_its_permission_changes_nothing(
    permission: str,
    run: Callable[..., ActReport],
    before: str,
    after: str,
    event: str | None,
) -> None:
    job = make_job(before, run_at=LATER)
    others = operations.PERMISSIONS - {permission}

    with pytest.raises(NotAllowed, match=permission) as caught:
        run(actor(*others), [job.pk])

    assert (caught.value.actor, caught.value.permission) == ("ada", permission)
    assert isinstance(caught.value, PermissionError)
    job.refresh_from_db()
    assert job.state == before
    assert on_record() == []
    assert not History.objects.exists()


def test_what_is_skipped_is_told_with_its_reason_and_leaves_no_record() -> None:
    job, gone = make_job("completed"), uuid7()

    report = operations.cancel_jobs(actor("cancel_job"), [job.pk, gone])

    assert {skip.job_id: skip.reason for skip in report.skipped} == {
        job.pk: "is completed",
        gone: "does not exist",
    }
    assert on_record() == []


def test_more_jobs_than_a_request_waits_for_are_refused() -> None:
    ids = [uuid7() for _ in range(operations.AT_ONCE + 1)]

    with pytest.raises(ArgumentError, match="bulk"):
        operations.cancel_jobs(actor("cancel_job"), ids)


def test_the_record_goes_with_the_transaction_of_the_act() -> None:
    job = make_job()

    with transaction.atomic():
        operations.cancel_job(actor("cancel_job"), job.pk)
        assert len(on_record()) == 1
        transaction.set_rollback(True)

    job.refresh_from_db()
    assert job.state == "queued"
    assert on_record() == []


ONE: list[Callable[[Actor, UUID], Any]] = [
    operations.cancel_job,
    operations.retry_job,
    operations.replay_job,
    operations.run_job_now,
    operations.delete_job,
    lambda asker, job_id: operations.edit_job(asker, job_id, priority=1),
]


@pytest.mark.parametrize("run", ONE)
def test_a_job_that_is_gone_is_not_found(run: Callable[[Actor, UUID], Any]) -> None:
    with pytest.raises(JobNotFound) as caught:
        run(Actor(name="ada", source="cli"), uuid7())

    assert isinstance(caught.value, NotFound)
    assert isinstance(caught.value, RelayError)


@pytest.mark.parametrize(
    ("run", "state"),
    [
        *zip(
            ONE,
            ["completed", "queued", "queued", "queued", "running", "running"],
            strict=True,
        )
    ],
)
def test_a_job_in_another_state_is_a_conflict(
    run: Callable[[Actor, UUID], Any], state: str
) -> None:
    job = make_job(state)

    with pytest.raises(StateConflict, match=f"it is {state}") as caught:
        run(Actor(name="ada", source="cli"), job.pk)

    assert isinstance(caught.value, Conflict)
    assert on_record() == []


def test_a_cancel_tells_whether_the_job_is_cancelled_or_asked_to_stop() -> None:
    asker = actor("cancel_job")

    assert operations.cancel_job(asker, make_job().pk)
    running = make_job("running")
    assert not operations.cancel_job(asker, running.pk)

    running.refresh_from_db()
    assert running.cancel_requested_at is not None
    assert Audit.objects.get(target=str(running.pk)).detail == {"asked": True}


def test_enqueue_makes_a_job_and_says_who_did() -> None:
    handle = operations.enqueue_job(
        actor("enqueue_job"), ECHO, ["hello"], priority=5, tags=["a"]
    )

    job = Job.objects.get(pk=handle.id)
    assert (job.task, job.priority, job.args["args"]) == (ECHO, 5, ["hello"])
    assert on_record() == [("enqueue_job", str(handle.id), "ada")]


def test_enqueue_checks_the_arguments_and_what_only_code_may_ask_for() -> None:
    asker = actor("enqueue_job")

    for options in ({"kwargs": {"nothing": 1}}, {"outside_transaction": True}):
        with pytest.raises(ArgumentError):
            operations.enqueue_job(asker, ECHO, ["hello"], **options)  # type: ignore[arg-type] # each is wrong in its way
    with pytest.raises(NotAllowed):
        operations.enqueue_job(actor("cancel_job"), ECHO, ["hello"])

    assert not Job.objects.exists()


# --- replay with other arguments, edit, delete ---------------------------------------


def test_replay_takes_other_arguments_from_who_may_edit() -> None:
    job = make_job("failed", task=ECHO, args={"args": ["old"], "kwargs": {}})

    with pytest.raises(NotAllowed, match="edit_job"):
        operations.replay_job(actor("retry_job"), job.pk, args=["new"])
    new_id = operations.replay_job(actor("retry_job", "edit_job"), job.pk, args=["new"])

    new = Job.objects.get(pk=new_id)
    assert (new.replay_of, new.args) == (job.pk, {"args": ["new"], "kwargs": {}})
    job.refresh_from_db()
    assert job.args["args"] == ["old"]
    row = Audit.objects.get()
    assert row.detail == {"job": str(new_id), "with_changes": True}


def test_replay_checks_other_arguments_against_the_signature() -> None:
    job = make_job("failed", task=ECHO)

    with pytest.raises(ArgumentError):
        operations.replay_job(
            Actor(name="ada", source="cli"), job.pk, kwargs={"nothing": 1}
        )

    assert Job.objects.count() == 1


def test_an_edit_changes_a_waiting_job_and_keeps_before_and_after() -> None:
    job = make_job("scheduled", task=ECHO, run_at=LATER, tags=["old"], timeout_ms=5)
    Queue.objects.create(name="mail")

    found = operations.edit_job(
        actor("edit_job"),
        job.pk,
        args=["new"],
        queue="mail",
        priority=7,
        tags=[],
        max_retries=2,
        timeout=None,
        deadline=LATER,
    )

    before = job.ready_seq
    job.refresh_from_db()
    assert (job.queue, job.priority, job.tags, job.max_retries) == ("mail", 7, None, 2)
    assert (job.timeout_ms, job.deadline_at, job.state) == (None, LATER, "scheduled")
    assert job.args == {"args": ["new"], "kwargs": {}}
    assert job.ready_seq > before
    assert found["queue"] == ["default", "mail"]
    assert found["args"] == [None, None]
    assert found["tags"] == [["old"], None]
    assert "run_at" not in found
    assert Audit.objects.get().detail == found
    assert History.objects.get().detail == {**found, "source": "api"}
    assert History.objects.get().event == "edit"
    assert "new" not in json.dumps(found)


@pytest.mark.parametrize(
    ("state", "run_at", "expected"),
    [
        ("scheduled", timedelta(hours=-1), "queued"),
        ("queued", timedelta(hours=1), "scheduled"),
        ("retrying", timedelta(hours=1), "retrying"),
        ("blocked", timedelta(hours=-1), "blocked"),
    ],
)
def test_an_edited_time_makes_a_job_ready_or_puts_it_off(
    state: str, run_at: timedelta, expected: str
) -> None:
    job = make_job(state, run_at=LATER)

    operations.edit_job(actor("edit_job"), job.pk, run_at=datetime.now(tz=UTC) + run_at)

    before = job.ready_seq
    job.refresh_from_db()
    assert job.state == expected
    assert job.ready_seq > before


def test_an_edit_that_moves_nothing_keeps_the_jobs_place() -> None:
    job = make_job(task=ECHO)
    before = job.ready_seq

    operations.edit_job(actor("edit_job"), job.pk, tags=["a"])

    job.refresh_from_db()
    assert (job.ready_seq, job.tags) == (before, ["a"])


def test_an_edit_to_a_plain_queue_leaves_no_priority() -> None:
    Queue.objects.create(name="plain", policy="fifo")
    job = make_job(priority=5)

    operations.edit_job(actor("edit_job"), job.pk, queue="plain")

    job.refresh_from_db()
    assert (job.queue, job.priority) == ("plain", 0)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, ArgumentError),
        ({"state": "running"}, ArgumentError),
        ({"priority": 101}, ArgumentError),
        ({"queue": "nobodys"}, UnknownQueue),
        ({"deadline": timedelta(1)}, ArgumentError),
        ({"run_at": "tomorrow"}, ArgumentError),
        ({"kwargs": {"nothing": 1}}, ArgumentError),
    ],
)
def test_an_edit_that_cannot_be_is_refused(
    options: dict[str, Any], error: type[Exception]
) -> None:
    job = make_job(task=ECHO)

    with pytest.raises(error):
        operations.edit_job(actor("edit_job"), job.pk, **options)

    assert on_record() == []


def test_a_deleted_job_goes_with_all_that_hangs_on_it() -> None:
    job, other = make_job("failed"), make_job("failed")
    for each in (job, other):
        Attempt.objects.create(job_id=each.pk, attempt=1, outcome="failed")
        History.objects.create(job_id=each.pk, event="retry")
        Output.objects.create(job_id=each.pk, attempt=1, text="x")
        Step.objects.create(job_id=each.pk, attempt=1, name="one")

    operations.delete_job(actor("delete_job"), job.pk)

    for model in (Attempt, History, Output, Step):
        assert [row.job_id for row in model.objects.all()] == [other.pk]  # type: ignore[attr-defined] # each has a job
    assert on_record() == [("delete_jobs", str(job.pk), "ada")]


# --- the record ----------------------------------------------------------------------


def test_the_record_is_only_added_to() -> None:
    operations.cancel_job(actor("cancel_job"), make_job().pk)
    row = Audit.objects.get()

    for change in (
        row.save,
        row.delete,
        Audit.objects.all().delete,
        lambda: Audit.objects.update(actor="eve"),
    ):
        with pytest.raises(TypeError, match="only added"):
            change()

    assert Audit.objects.get().actor == "ada"


def test_the_record_of_one_thing_is_found_by_an_index() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_audit (operation, subject, target, actor, source) "
            "SELECT 'cancel', 'job', n::text, 'ada', 'api' "
            "FROM generate_series(1, 2000) AS n"
        )
        cursor.execute("ANALYZE relay_audit")
        cursor.execute(
            "EXPLAIN SELECT * FROM relay_audit WHERE subject = 'job' AND target = '7' "
            "ORDER BY id DESC LIMIT 50"
        )
        plan = "\n".join(line for (line,) in cursor.fetchall())

    assert "relay_audit_target_idx" in plan
    assert "Sort" not in plan


def test_many_are_enqueued_at_once_and_all_of_them_or_none() -> None:
    there = make_job()
    asker = actor("enqueue_job")
    calls = [JobCall("testproject.tasks.echo", [number]) for number in range(3)]
    taken = JobCall("testproject.tasks.echo", [9], options={"id": there.pk})

    made = operations.enqueue_jobs(asker, calls)
    with pytest.raises(Conflict, match="id"):
        operations.enqueue_jobs(asker, [*calls, taken])
    with pytest.raises(ArgumentError):
        operations.enqueue_jobs(
            asker, [*calls, JobCall("a", options={"on_commit": "x"})]
        )
    with pytest.raises(NotAllowed):
        operations.enqueue_jobs(actor("view_job"), calls)

    assert [Job.objects.get(pk=each.id).args["args"] for each in made] == [
        [0],
        [1],
        [2],
    ]
    assert Job.objects.count() == 4
    assert Audit.objects.filter(operation="enqueue_jobs").count() == 3

"""What an operator does to schedules."""

from __future__ import annotations

import threading
from uuid import UUID

import pytest
from django.db import connection, transaction

from relay.exceptions import ScheduleError
from relay.ids import uuid7
from relay.models import History, Job, Occurrence, Schedule
from relay.scheduler import acts
from tests.engine.rows import wait_until_blocked
from tests.scheduler.factory import duty_connection, make

pytestmark = pytest.mark.django_db


def test_run_now_enqueues_one_job_as_the_row_says_and_says_who_asked() -> None:
    schedule = make(name="nightly", queue="mail", priority=3, args={"args": [1]})

    job_id = acts.run_now(schedule.id, actor="ada", using="default")

    job = Job.objects.get()
    assert (job.id, job.schedule_id, job.occurrence_at) == (job_id, schedule.id, None)
    assert (job.task, job.queue, job.priority) == ("elsewhere.run", "mail", 3)
    assert job.args == {"args": [1], "kwargs": {}}
    [row] = History.objects.all()
    assert (row.job_id, row.event, row.actor) == (job_id, "run_schedule", "ada")
    assert row.detail == {"schedule": "nightly"}
    assert not Occurrence.objects.exists()


def test_run_now_takes_from_the_task_what_the_row_leaves_open() -> None:
    schedule = make(task="testproject.tasks.add", args={"args": [1, 2]})

    acts.run_now(schedule.id, actor=None, using="default")

    job = Job.objects.get()
    assert (job.queue, job.priority, job.max_retries) == ("default", 0, 25)


@pytest.mark.parametrize(
    "broken",
    [{"args": [1]}, {"queue": "no queue"}, {"priority": 1000}],
    ids=lambda broken: next(iter(broken)),
)
def test_run_now_of_a_row_that_cannot_be_kept_enqueues_nothing(
    broken: dict[str, object],
) -> None:
    schedule = make()
    Schedule.objects.update(**broken)

    with pytest.raises(ScheduleError):
        acts.run_now(schedule.id, actor=None, using="default")

    assert not Job.objects.exists()
    assert not History.objects.exists()


def test_run_now_of_a_deleted_schedule_enqueues_nothing() -> None:
    with pytest.raises(ScheduleError, match="does not exist"):
        acts.run_now(uuid7(), actor=None, using="default")

    assert not Job.objects.exists()


def test_run_now_leaves_nothing_on_the_row_of_runs_that_have_ended() -> None:
    schedule = make(overlap="skip")
    first, second = (
        acts.run_now(schedule.id, actor=None, using="default") for _ in range(2)
    )
    Job.objects.filter(id=first).update(state="completed")

    third = acts.run_now(schedule.id, actor=None, using="default")

    schedule.refresh_from_db()
    assert schedule.open_jobs == [second, third]


@pytest.mark.django_db(transaction=True)
def test_run_now_keeps_the_run_that_another_has_just_started() -> None:
    schedule = make(overlap="skip")
    made: list[UUID] = []

    def run() -> None:
        try:
            made.append(acts.run_now(schedule.id, actor=None, using="default"))
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    with duty_connection() as watch, transaction.atomic():
        made.append(acts.run_now(schedule.id, actor=None, using="default"))
        thread.start()
        wait_until_blocked(watch)
    thread.join(60)

    schedule.refresh_from_db()
    assert schedule.open_jobs == made


def test_set_enabled_changes_those_that_stand_otherwise() -> None:
    on, off = make(name="on"), make(name="off", enabled=False)

    changed = acts.set_enabled([on.id, off.id], False, actor="ada", using="default")

    assert changed == [on.id]
    assert not Schedule.objects.filter(enabled=True).exists()
    [row] = History.objects.all()
    assert (row.event, row.actor, row.detail) == ("disable", "ada", {"schedule": "on"})


@pytest.mark.django_db(transaction=True)
def test_set_enabled_counts_what_was_committed_while_it_waited() -> None:
    schedule = make(enabled=False)
    changed: list[list[UUID]] = []

    def disable() -> None:
        try:
            changed.append(
                acts.set_enabled([schedule.id], False, actor=None, using="default")
            )
        finally:
            connection.close()

    thread = threading.Thread(target=disable)
    with duty_connection() as watch, duty_connection() as other:
        with other.transaction():
            other.execute("UPDATE relay_schedule SET enabled = true")
            thread.start()
            wait_until_blocked(watch)
        thread.join(60)

    schedule.refresh_from_db()
    assert changed == [[schedule.id]]
    assert not schedule.enabled

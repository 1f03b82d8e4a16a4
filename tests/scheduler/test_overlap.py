"""What becomes of an occurrence while an earlier run has not ended."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db.models import F

from relay.engine import wakeup
from relay.ids import uuid7
from relay.models import Job, Occurrence, Schedule
from relay.scheduler import acts
from relay.scheduler.duty import ScheduleDuty
from relay.scheduler.overlap import NOT_ENDED, ONE_WAITS, REPLACED, settle
from tests.scheduler.factory import database_now, duty_connection, make, set_back, tick

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
HOURS = [datetime.fromisoformat(f"2026-06-01T{hour:02}:00+00:00") for hour in range(4)]


def planned(overlap: str, **fields: Any) -> Schedule:
    # Half an hour away from now, so that none comes by itself while the test runs.
    minute = (database_now().minute + 30) % 60
    schedule = make(f"{minute} * * * *", overlap=overlap, catch_up="all", **fields)
    tick()
    return schedule


def pass_hour(schedule: Schedule) -> None:
    """Let the schedule's next occurrence be one that no job was made for yet."""
    Occurrence.objects.filter(schedule=schedule).update(due_at=F("due_at") - HOUR)
    Schedule.objects.filter(pk=schedule.pk, waiting_at__isnull=False).update(
        waiting_at=F("waiting_at") - HOUR
    )
    set_back(schedule, HOUR)
    tick()


def states(schedule: Schedule) -> list[tuple[str, str | None]]:
    rows = Occurrence.objects.filter(schedule=schedule).order_by("due_at")
    return list(rows.values_list("state", "reason"))


def end_jobs(state: str = "completed") -> None:
    Job.objects.filter(state__in=["queued", "running"]).update(
        state=state, finished_at=database_now(), worker_id=None
    )


@pytest.mark.parametrize(
    ("policy", "is_open", "waiting", "fire", "skipped", "waits"),
    [
        ("allow", True, None, [1, 2], [], None),
        ("skip", False, None, [1], [(2, NOT_ENDED)], None),
        ("skip", True, None, [], [(1, NOT_ENDED), (2, NOT_ENDED)], None),
        ("queue", False, None, [1], [], 2),
        ("queue", True, None, [], [(2, ONE_WAITS)], 1),
        ("queue", True, 0, [], [(1, ONE_WAITS), (2, ONE_WAITS)], 0),
        ("cancel", False, None, [2], [(1, REPLACED)], None),
        ("cancel", True, None, [], [(1, REPLACED)], 2),
        ("cancel", True, 0, [], [(0, REPLACED), (1, REPLACED)], 2),
        ("cancel", False, 0, [2], [(0, REPLACED), (1, REPLACED)], None),
    ],
)
def test_each_policy_settles_two_instants(
    policy: str,
    is_open: bool,
    waiting: int | None,
    fire: list[int],
    skipped: list[tuple[int, str]],
    waits: int | None,
) -> None:
    settled = settle(
        policy,
        HOURS[1:3],
        is_open=is_open,
        waiting=None if waiting is None else HOURS[waiting],
    )

    assert settled.fire == tuple(HOURS[n] for n in fire)
    assert settled.skipped == tuple((HOURS[n], why) for n, why in skipped)
    assert settled.waiting == (None if waits is None else HOURS[waits])


def test_allowed_runs_are_enqueued_side_by_side() -> None:
    schedule = planned("allow")

    pass_hour(schedule)
    pass_hour(schedule)

    assert states(schedule) == [("fired", None), ("fired", None)]
    assert Job.objects.filter(state="queued").count() == 2


@pytest.mark.parametrize("state", ["queued", "running", "scheduled", "retrying"])
def test_failure_066_an_occurrence_is_skipped_while_the_run_before_it_lives(
    state: str,
) -> None:
    schedule = planned("skip")
    others = [planned("allow") for _ in range(10)]
    pass_hour(schedule)
    Job.objects.update(state=state, worker_id=uuid7() if state == "running" else None)

    for other in others:
        set_back(other, HOUR)
    pass_hour(schedule)

    assert states(schedule) == [("fired", None), ("skipped", NOT_ENDED)]
    assert Job.objects.filter(schedule_id=schedule.pk).count() == 1
    assert [states(other) for other in others] == [[("fired", None)]] * 10
    assert not Schedule.objects.filter(last_error__isnull=False).exists()


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
@pytest.mark.parametrize("overlap", ["skip", "queue", "cancel"])
def test_failure_067_a_run_that_has_ended_blocks_no_later_one(
    overlap: str, state: str
) -> None:
    schedule = planned(overlap)
    pass_hour(schedule)
    end_jobs(state)

    pass_hour(schedule)

    assert states(schedule) == [("fired", None), ("fired", None)]


def test_one_occurrence_waits_and_starts_when_the_run_has_ended() -> None:
    schedule = planned("queue")
    for _ in range(3):
        pass_hour(schedule)

    assert states(schedule) == [
        ("fired", None),
        ("waiting", None),
        ("skipped", ONE_WAITS),
    ]
    end_jobs("failed")
    tick()
    tick()

    assert [state for state, _ in states(schedule)] == ["fired", "fired", "skipped"]
    waited = Occurrence.objects.filter(schedule=schedule).order_by("due_at")[1]
    job = Job.objects.get(state="queued")
    assert (waited.job_id, waited.due_at) == (job.pk, job.occurrence_at)
    schedule.refresh_from_db()
    assert (schedule.waiting_at, schedule.open_jobs) == (None, [job.pk])


def test_the_previous_run_is_cancelled_before_the_next_one_starts() -> None:
    schedule = planned("cancel", name="sync")
    pass_hour(schedule)
    first = Job.objects.get()

    pass_hour(schedule)

    first.refresh_from_db()
    assert first.state == "cancelled"
    assert Job.objects.get(state="queued").schedule_id == schedule.pk
    assert states(schedule) == [("fired", None), ("fired", None)]


def test_the_next_one_waits_until_a_running_one_has_stopped() -> None:
    schedule = planned("cancel")
    pass_hour(schedule)
    Job.objects.update(state="running", attempt=1, worker_id=uuid7())

    with duty_connection() as listener:
        listener.execute(f"LISTEN {wakeup.CANCEL_CHANNEL}")
        pass_hour(schedule)
        assert next(listener.notifies(timeout=60))
    pass_hour(schedule)

    assert states(schedule) == [
        ("fired", None),
        ("skipped", REPLACED),
        ("waiting", None),
    ]
    assert Job.objects.get().cancel_requested_at is not None
    end_jobs("cancelled")
    tick()
    assert [state for state, _ in states(schedule)] == ["fired", "skipped", "fired"]
    assert Job.objects.filter(state="queued").count() == 1


def test_what_a_person_started_counts_as_a_run() -> None:
    schedule = planned("skip")
    acts.run_now(schedule.pk, actor="ada", using="default")

    pass_hour(schedule)

    assert states(schedule) == [("skipped", NOT_ENDED)]


def test_a_policy_set_later_knows_the_runs_before() -> None:
    schedule = planned("allow")
    pass_hour(schedule)
    Schedule.objects.update(overlap="skip")

    pass_hour(schedule)

    assert states(schedule) == [("fired", None), ("skipped", NOT_ENDED)]


def test_a_policy_lifted_later_lets_the_waiting_one_go() -> None:
    schedule = planned("queue")
    pass_hour(schedule)
    pass_hour(schedule)
    Schedule.objects.update(overlap="allow")

    pass_hour(schedule)

    assert states(schedule) == [("fired", None)] * 3


def test_a_disabled_schedule_gives_up_what_waits() -> None:
    schedule = planned("queue")
    pass_hour(schedule)
    pass_hour(schedule)
    acts.set_enabled([schedule.pk], False, actor=None, using="default")

    tick()
    end_jobs()
    acts.set_enabled([schedule.pk], True, actor=None, using="default")
    tick()

    assert states(schedule)[1] == (
        "skipped",
        "the schedule was disabled while it waited",
    )
    assert Job.objects.count() == 1


def test_a_policy_that_is_not_known_is_reported() -> None:
    schedule = planned("skip")
    Schedule.objects.update(overlap="perhaps")

    pass_hour(schedule)

    schedule.refresh_from_db()
    assert schedule.last_error is not None
    assert "allow, skip, queue, cancel" in schedule.last_error


def test_a_skipped_instant_is_not_settled_again_when_the_plan_is_set_back() -> None:
    schedule = planned("skip")
    pass_hour(schedule)
    pass_hour(schedule)
    end_jobs()

    set_back(schedule, HOUR)
    tick()

    assert states(schedule) == [("fired", None), ("skipped", NOT_ENDED)]
    assert Job.objects.count() == 1


@pytest.mark.parametrize("overlap", ["skip", "queue", "cancel"])
def test_schedulers_that_race_never_let_two_runs_live(overlap: str) -> None:
    schedule = make("* * * * * *", seconds=True, overlap=overlap, catch_up="all")
    tick()
    set_back(schedule, timedelta(seconds=60))
    barrier = threading.Barrier(4)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with duty_connection() as connection:
                duty = ScheduleDuty()
                for _ in range(4):
                    barrier.wait(timeout=60)
                    duty.tick(connection)
        except BaseException as error:
            barrier.abort()
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)

    assert not errors
    live = Job.objects.exclude(state__in=["completed", "failed", "cancelled"])
    assert live.count() == 1
    rows = Occurrence.objects.filter(schedule=schedule)
    assert rows.filter(state="fired").count() == Job.objects.count()
    assert rows.filter(state="waiting").count() == (overlap == "queue")
    assert rows.count() >= 60

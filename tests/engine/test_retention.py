"""How long rows and results stay, by state, queue and task, whoever ends the job."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from relay import ResultExpired, Retention, task
from relay.engine import control, holdings, lease
from relay.engine.connection import EngineConnection
from relay.engine.expire import expire
from relay.engine.finish import (
    Completed,
    Settled,
    read_finished,
    send_completed,
    send_settled,
)
from relay.engine.prune import prune_jobs
from relay.models import Job
from relay.testing import drain, travel
from relay.worker.duties import Prune
from tests.engine.rows import add_jobs, add_worker, hold

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
RELAY = {
    "RETENTION_FAILED": 3 * DAY,
    "RETENTION_CANCELLED": 2 * DAY,
    "QUEUES": {
        "default": {},
        "slow": {"RETENTION": Retention(failed=5 * HOUR, cancelled=None)},
    },
}


@task(
    name="tests.kept.chosen",
    retention=Retention(
        completed=2 * DAY, failed=None, cancelled=7 * HOUR, result=HOUR
    ),
)
def chosen() -> str:
    return "found"


@task(name="tests.kept.no_result", retention=Retention(result=timedelta(0)))
def no_result() -> str:
    return "never stored"


@task(name="tests.kept.longer", retention=Retention(completed=HOUR, result=DAY))
def longer() -> str:
    return "as long as the job"


@pytest.fixture(autouse=True)
def configured(settings: Any) -> None:
    settings.RELAY = RELAY


def kept(job_id: UUID) -> timedelta | None:
    job = Job.objects.get(pk=job_id)
    assert job.finished_at is not None
    if job.expires_at is None:
        return None
    left = job.expires_at - job.finished_at
    return timedelta(minutes=round(left.total_seconds() / 60))


WHERE: Any = [
    ({}, {"failed": 3 * DAY, "cancelled": 2 * DAY}),
    ({"queue": "slow"}, {"failed": 5 * HOUR, "cancelled": None}),
    ({"task": "tests.kept.chosen"}, {"failed": None, "cancelled": 7 * HOUR}),
    (
        {"task": "tests.kept.chosen", "queue": "slow"},
        {"failed": None, "cancelled": 7 * HOUR},
    ),
]
where = pytest.mark.parametrize(("columns", "wanted"), WHERE, ids=str)


@where
@pytest.mark.parametrize(
    ("verb", "state"), [("fail", "failed"), ("cancel", "cancelled")]
)
def test_settled_jobs_are_kept_as_task_queue_and_settings_say(
    hot: EngineConnection,
    duty: EngineConnection,
    columns: Any,
    wanted: Any,
    verb: Any,
    state: str,
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id, **columns)
    outcome = Settled(id=job_id, attempt=1, verb=verb)

    with hot.block():
        sent = send_settled(hot, [outcome], worker_id=worker_id, hand_back_limit=DAY)

    assert read_finished(sent) == {job_id}
    assert kept(job_id) == wanted[state]


@where
def test_jobs_asked_to_stop_are_kept_as_cancelled_ones(
    hot: EngineConnection, duty: EngineConnection, columns: Any, wanted: Any
) -> None:
    worker_id = add_worker(duty)
    settled, released, dead = (
        hold(duty, worker_id, cancel_requested_at="now", **columns)[0] for _ in range(3)
    )
    outcome = Settled(id=settled, attempt=1, verb="retry", error_class="E")

    with hot.block():
        send_settled(hot, [outcome], worker_id=worker_id, hand_back_limit=DAY)
    holdings.release_held(hot, worker_id, [(released, 1)], reason="tests")
    holdings.settle_dead_child(
        duty,
        holdings.DeadChild(
            worker_id=worker_id, started=[], is_charged=True, reason="tests"
        ),
        crash_limit=3,
    )

    for job_id in (settled, released, dead):
        assert Job.objects.get(pk=job_id).state == "cancelled"
        assert kept(job_id) == wanted["cancelled"]


@where
def test_cancelled_jobs_are_kept_as_task_queue_and_settings_say(
    duty: EngineConnection, columns: Any, wanted: Any
) -> None:
    [job_id] = add_jobs(duty, **columns)

    control.cancel(job_id, actor=None, using="default")

    assert kept(job_id) == wanted["cancelled"]


@where
def test_poison_is_kept_as_failed_jobs_are(
    duty: EngineConnection, columns: Any, wanted: Any
) -> None:
    worker_id = add_worker(duty)
    [crashed] = hold(duty, worker_id, **columns)
    dead = holdings.DeadChild(
        worker_id=worker_id, started=[(crashed, 1)], is_charged=True, reason="r"
    )
    holdings.settle_dead_child(duty, dead, crash_limit=1)
    lost = add_worker(duty, state="lost")
    [taken] = hold(duty, lost, **columns)
    lease.take(duty, lost, loss_limit=1)

    assert [kept(crashed), kept(taken)] == [wanted["failed"]] * 2


@where
def test_jobs_that_were_too_late_are_kept_as_failed_ones(
    duty: EngineConnection, columns: Any, wanted: Any
) -> None:
    [job_id] = add_jobs(duty, deadline_at="2026-01-01", **columns)

    assert expire(duty) == 1

    assert kept(job_id) == wanted["failed"]


# --- results -------------------------------------------------------------------------


def test_a_result_goes_after_its_own_time_while_the_job_stays(
    duty: EngineConnection,
) -> None:
    job = chosen.enqueue()
    drain()
    assert job.result() == "found"
    assert prune_jobs(duty) == 0

    with travel(HOUR):
        assert prune_jobs(duty) == 1
        assert prune_jobs(duty) == 0

        assert job.state == "completed"
        with pytest.raises(ResultExpired, match="is kept for less than the job"):
            job.result()
        assert kept(job.id) == 2 * DAY
        assert Job.objects.get(pk=job.id).meta is None

    with travel(2 * DAY):
        assert prune_jobs(duty) == 1


def test_a_result_kept_for_no_time_is_not_stored(duty: EngineConnection) -> None:
    job = no_result.enqueue()
    drain()

    assert job.state == "completed"
    with pytest.raises(ResultExpired):
        job.result()
    assert prune_jobs(duty) == 1
    assert kept(job.id) == DAY


def test_a_result_is_never_kept_longer_than_its_job(duty: EngineConnection) -> None:
    job = longer.enqueue()
    drain()

    assert kept(job.id) == HOUR
    with travel(HOUR):
        assert prune_jobs(duty) == 1
    assert not Job.objects.filter(pk=job.id).exists()


@pytest.mark.parametrize("keep", [None, 10 * DAY.total_seconds()])
def test_a_row_that_is_kept_for_ever_or_by_its_key_outlives_its_result(
    hot: EngineConnection, duty: EngineConnection, keep: float | None
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id, unique_until="2126-01-01", meta='{"a": 1}')
    with hot.block():
        sent = send_completed(
            hot, [Completed(job_id, 1, "1", keep, 0.0)], worker_id=worker_id
        )
    assert read_finished(sent) == {job_id}

    assert prune_jobs(duty) == 1

    job = Job.objects.get(pk=job_id)
    assert job.meta == {"a": 1}
    assert job.expires_at == (None if keep is None else job.unique_until)
    assert prune_jobs(duty) == 0


def test_every_worker_drops_results_and_prunes_in_turn(duty: EngineConnection) -> None:
    job = no_result.enqueue()
    drain()

    Prune().tick(duty)
    assert kept(job.id) == DAY
    with travel(DAY):
        Prune().tick(duty)

    assert not Job.objects.filter(pk=job.id).exists()


def test_results_are_dropped_in_batches(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    done = [Completed(job_id, 1, "1", None, 0.0) for job_id in hold(duty, worker_id, 5)]
    with hot.block():
        send_completed(hot, done, worker_id=worker_id)

    assert [prune_jobs(duty, limit=2) for _ in range(4)] == [2, 2, 1, 0]


def test_a_replay_of_such_a_job_is_kept_as_any_other(duty: EngineConnection) -> None:
    original = chosen.enqueue()
    drain()

    replayed = original.replay()

    assert Job.objects.get(pk=original.id).meta == {"row_keep_s": 172800.0}
    assert not Job.objects.get(pk=replayed.id).meta

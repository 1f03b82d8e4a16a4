"""Promotion: what is due becomes ready, in the order of its time, never early."""

from __future__ import annotations

import pytest

from relay.engine import lease
from relay.engine.connection import EngineConnection, connect
from relay.engine.promote import promote
from tests.engine.rows import add_jobs, add_worker, claim, job_row, states

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])


def schedule(
    session: EngineConnection,
    seconds: float,
    state: str = "scheduled",
    **columns: object,
) -> str:
    """Insert a job that is due so many seconds from now."""
    [job_id] = add_jobs(session, state=state, **columns)
    session.execute(
        "UPDATE relay_job SET run_at = clock_timestamp() + make_interval(secs => %s) "
        "WHERE id = %s",
        (seconds, job_id),
    )
    return str(job_id)


def test_promote_makes_due_jobs_ready_in_the_order_of_their_times(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [waiting] = add_jobs(duty)
    third = schedule(duty, -1)
    first = schedule(duty, -30, "retrying")
    second = schedule(duty, -20)

    count, _ = promote(duty)

    assert count == 3
    assert [str(job.id) for job in claim(hot, worker_id)] == [
        str(waiting),
        first,
        second,
        third,
    ]


def test_promote_keeps_that_order_across_batches(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    job_ids = [schedule(duty, -100 + index * 7 % 50) for index in range(20)]
    due = {job_id: job_row(duty, job_id)["run_at"] for job_id in job_ids}

    counts = [promote(duty, limit=8)[0] for _ in range(4)]

    assert counts == [8, 8, 4, 0]
    claimed = [str(job.id) for job in claim(hot, worker_id, limit=20)]
    assert claimed == sorted(job_ids, key=due.__getitem__)


def test_promote_is_never_early(duty: EngineConnection) -> None:
    schedule(duty, 3600)
    schedule(duty, 60, "retrying")

    assert promote(duty) == (0, [])

    assert states(duty) == {"scheduled": 1, "retrying": 1}


def test_no_promoted_job_was_ahead_of_the_database_clock(
    duty: EngineConnection,
) -> None:
    for index in range(200):
        schedule(duty, index / 1_000)
    promoted = 0

    while promoted < 200:
        promoted += promote(duty)[0]
        early = duty.execute(
            "SELECT count(*) FROM relay_job "
            "WHERE state = 'queued' AND run_at > clock_timestamp()"
        ).fetchone()
        assert early == (0,)


@pytest.mark.parametrize(
    "state", ["blocked", "queued", "running", "completed", "failed", "cancelled"]
)
def test_promote_touches_no_other_state(duty: EngineConnection, state: str) -> None:
    schedule(duty, -60, state, worker_id=add_worker(duty))

    assert promote(duty) == (0, [])


def test_promote_keeps_everything_but_state_and_place(duty: EngineConnection) -> None:
    job_id = schedule(duty, -5, "retrying", failures=2, attempt=3, error_class="E")
    before = job_row(duty, job_id)

    _, [ready] = promote(duty)

    row = job_row(duty, job_id)
    assert row["ready_seq"] > before["ready_seq"]
    assert row == {**before, "state": "queued", "ready_seq": row["ready_seq"]}
    assert ready == lease.Ready("default", 0, row["ready_seq"])


def test_promote_names_the_first_place_of_each_queue_and_priority(
    duty: EngineConnection,
) -> None:
    for queue, priority in (("default", 0), ("default", 0), ("mail", 3), ("mail", 0)):
        schedule(duty, -1, queue=queue, priority=priority)

    count, ready = promote(duty)

    first = duty.execute(
        "SELECT queue, priority, min(ready_seq) FROM relay_job GROUP BY 1, 2"
    ).fetchall()
    assert count == 4
    assert sorted((one.queue, one.priority, one.ready_seq) for one in ready) == sorted(
        first
    )


def test_promote_passes_over_what_another_promoter_holds(
    duty: EngineConnection,
) -> None:
    for _ in range(10):
        schedule(duty, -1)

    with connect("default", role="duty", name="other") as other, other.transaction():
        theirs, _ = promote(other, limit=6)
        ours, _ = promote(duty)

    assert (theirs, ours) == (6, 4)
    assert states(duty) == {"queued": 10}

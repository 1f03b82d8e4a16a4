"""Leases: who is alive, who is given up, and where their jobs go."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from relay.conf import OWN_QUEUE
from relay.engine import finish, holdings, lease
from relay.engine.connection import EngineConnection, connect
from relay.ids import uuid7
from tests.engine.rows import (
    LEASE,
    add_jobs,
    add_worker,
    attempts,
    claim,
    events,
    everything,
    hold,
    job_row,
    other_session,
    states,
    wait_until_blocked,
)

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])

OVER = timedelta(seconds=-1)
DELAYS = (0.0, 60.0, 600.0)


def worker_row(session: psycopg.Connection[Any], worker_id: UUID) -> dict[str, Any]:
    row = session.execute(
        "SELECT to_jsonb(worker) FROM relay_worker AS worker WHERE id = %s",
        (worker_id,),
    ).fetchone()
    assert row is not None
    document: dict[str, Any] = row[0]
    return document


def seconds_left(session: psycopg.Connection[Any], worker_id: UUID) -> float:
    row = session.execute(
        "SELECT extract(epoch FROM lease_expires_at - clock_timestamp())::float8 "
        "FROM relay_worker WHERE id = %s",
        (worker_id,),
    ).fetchone()
    assert row is not None
    return float(row[0])


def take_all(
    session: EngineConnection, worker_id: UUID, *, loss_limit: int = 10
) -> tuple[int, list[lease.Ready]]:
    return lease.take(session, worker_id, loss_limit=loss_limit)


def settle(
    session: EngineConnection,
    worker_id: UUID,
    started: Sequence[tuple[UUID, int]],
    *,
    is_charged: bool = True,
    delays: Sequence[float] = DELAYS,
    crash_limit: int = 3,
) -> tuple[int, list[lease.Ready]]:
    child = holdings.DeadChild(
        worker_id=worker_id,
        started=started,
        delays=delays,
        is_charged=is_charged,
        reason="killed by signal 9",
    )
    return holdings.settle_dead_child(session, child, crash_limit=crash_limit)


# --- register and renew ---


def test_register_writes_the_worker_with_a_lease_by_the_database_clock(
    duty: EngineConnection,
) -> None:
    worker_id, supervisor = uuid7(), uuid7()
    worker = lease.WorkerRow(
        id=worker_id,
        name="host-1-2",
        supervisor=supervisor,
        host="host",
        pid=2**22,
        queues=["mail", "bulk"],
        concurrency=10,
        version="0.1",
        kind="embedded",
    )

    lease.register(duty, worker, lease=timedelta(seconds=12))

    row = worker_row(duty, worker_id)
    assert 10 < seconds_left(duty, worker_id) <= 12
    assert (row["state"], row["kind"], row["pid"]) == ("running", "embedded", 2**22)
    assert (row["queues"], row["concurrency"]) == (["mail", "bulk", OWN_QUEUE], 10)
    assert row["supervisor"] == str(supervisor)
    assert duty.execute("SELECT name FROM relay_queue ORDER BY 1").fetchall() == [
        ("bulk",),
        ("mail",),
    ]


def register_again(session: EngineConnection, worker_id: UUID) -> None:
    again = lease.WorkerRow(
        id=worker_id,
        name="again",
        supervisor=uuid7(),
        host="h",
        pid=2,
        queues=["default"],
        concurrency=2,
        version="1",
    )
    lease.register(session, again, lease=LEASE)


@pytest.mark.parametrize("state", ["lost", "stopped"])
def test_register_again_brings_no_worker_back(
    duty: EngineConnection, state: str
) -> None:
    worker_id = add_worker(duty, state=state)
    before = worker_row(duty, worker_id)

    register_again(duty, worker_id)

    assert worker_row(duty, worker_id) == before


def test_register_again_after_a_lost_answer_renews_the_lease(
    duty: EngineConnection,
) -> None:
    worker_id = add_worker(duty, lease_for=timedelta(seconds=3))

    register_again(duty, worker_id)

    assert seconds_left(duty, worker_id) > 25
    assert worker_row(duty, worker_id)["name"] == "tests-1"


def test_register_keeps_the_settings_of_a_queue_that_exists(
    duty: EngineConnection,
) -> None:
    duty.execute("INSERT INTO relay_queue (name, weight) VALUES ('default', 7)")

    add_worker(duty)

    assert duty.execute("SELECT name, weight FROM relay_queue").fetchall() == [
        ("default", 7)
    ]


def test_renew_moves_the_leases_of_all_children_in_one_statement(
    duty: EngineConnection,
) -> None:
    workers = [add_worker(duty, lease_for=timedelta(seconds=1)) for _ in range(3)]
    other = add_worker(duty, lease_for=timedelta(seconds=1))

    kept = lease.renew(duty, workers, lease=LEASE)

    assert kept == set(workers)
    assert all(seconds_left(duty, worker_id) > 25 for worker_id in workers)
    assert seconds_left(duty, other) <= 1


def test_renew_names_nobody_who_was_given_up_stopped_or_deleted(
    duty: EngineConnection,
) -> None:
    alive = add_worker(duty)
    ended = [add_worker(duty, state="lost"), add_worker(duty, state="stopped")]
    before = [worker_row(duty, worker_id) for worker_id in ended]

    assert lease.renew(duty, [alive, *ended, uuid7()], lease=LEASE) == {alive}

    assert [worker_row(duty, worker_id) for worker_id in ended] == before


def test_renew_of_a_lease_that_ran_out_succeeds_until_the_worker_is_given_up(
    duty: EngineConnection,
) -> None:
    worker_id = add_worker(duty, lease_for=OVER)

    assert lease.renew(duty, [worker_id], lease=LEASE) == {worker_id}
    assert lease.give_up(duty) == []


def test_failure_074_leases_of_different_lengths_are_each_their_own(
    duty: EngineConnection,
) -> None:
    short = add_worker(duty, lease_for=timedelta(seconds=2))
    long = add_worker(duty, lease_for=timedelta(seconds=120))

    lease.renew(duty, [short], lease=timedelta(seconds=2))
    lease.renew(duty, [long], lease=timedelta(seconds=120))

    assert seconds_left(duty, short) <= 2
    assert 110 < seconds_left(duty, long) <= 120


@pytest.mark.parametrize("state", ["lost", "stopped"])
def test_lost_and_stopped_workers_stay_so(duty: EngineConnection, state: str) -> None:
    worker_id = add_worker(duty, state=state)

    lease.set_state(duty, [worker_id], "running")

    assert worker_row(duty, worker_id)["state"] == state


def test_set_state_says_what_live_workers_do(duty: EngineConnection) -> None:
    worker_id, other = add_worker(duty), add_worker(duty)

    lease.set_state(duty, [worker_id], "draining")

    assert worker_row(duty, worker_id)["state"] == "draining"
    assert worker_row(duty, other)["state"] == "running"


# --- give up ---


@pytest.mark.parametrize("state", ["running", "quiet", "draining"])
def test_give_up_marks_the_workers_whose_lease_ran_out(
    duty: EngineConnection, state: str
) -> None:
    dead = add_worker(duty, lease_for=OVER, state=state)
    alive = add_worker(duty)
    stopped = add_worker(duty, lease_for=OVER, state="stopped")

    assert lease.give_up(duty) == [dead]

    assert worker_row(duty, dead)["state"] == "lost"
    assert worker_row(duty, alive)["state"] == "running"
    assert worker_row(duty, stopped)["state"] == "stopped"
    assert lease.give_up(duty) == []


def test_b08_one_expired_lease_is_found_behind_10001_live_ones(
    duty: EngineConnection,
) -> None:
    duty.execute(
        "INSERT INTO relay_worker (id, name, host, pid, queues, concurrency, version, "
        "lease_expires_at) SELECT gen_random_uuid(), 'n', 'h', 1, '{}', 1, '0', "
        "now() + interval '1 hour' FROM generate_series(1, 10001)"
    )
    dead = add_worker(duty, lease_for=OVER)

    assert lease.give_up(duty) == [dead]


def test_b14_job_without_a_timeout_is_left_to_a_worker_with_a_lease(
    duty: EngineConnection,
) -> None:
    worker_id = add_worker(duty)
    hold(duty, worker_id, started_at="2020-01-01")
    before = everything(duty)

    assert lease.give_up(duty) == []
    assert lease.orphan_holders(duty) == []

    assert everything(duty) == before


def test_b15_job_100_times_as_long_as_the_lease_is_left_to_its_worker(
    duty: EngineConnection,
) -> None:
    worker_id = add_worker(duty)
    hold(duty, worker_id)
    for table in ("relay_job", "relay_worker"):
        duty.execute(
            f"UPDATE {table} SET started_at = clock_timestamp() - 100 * %s::interval",
            (LEASE,),
        )
    lease.renew(duty, [worker_id], lease=LEASE)
    before = everything(duty)

    assert lease.give_up(duty) == []
    assert lease.orphan_holders(duty) == []
    assert take_all(duty, worker_id) == (0, [])

    assert everything(duty) == before
    assert worker_row(duty, worker_id)["state"] == "running"


def test_b07_a_worker_of_the_same_name_keeps_no_dead_one_alive(
    duty: EngineConnection,
) -> None:
    dead = add_worker(duty, lease_for=OVER)
    [job_id] = hold(duty, dead)
    successor = add_worker(duty)
    assert worker_row(duty, dead)["name"] == worker_row(duty, successor)["name"]

    kept = lease.renew(duty, [successor], lease=LEASE)
    lost = lease.give_up(duty)
    count, _ = take_all(duty, dead)

    assert (kept, lost, count) == ({successor}, [dead], 1)
    assert job_row(duty, job_id)["state"] == "queued"


def test_b01_open_renewal_is_passed_over_by_give_up(duty: EngineConnection) -> None:
    worker_id = add_worker(duty, lease_for=OVER)

    with connect("default", role="duty", name="keeper") as keeper, keeper.transaction():
        kept = lease.renew(keeper, [worker_id], lease=LEASE)
        given_up = lease.give_up(duty)

    assert (kept, given_up) == ({worker_id}, [])
    assert lease.give_up(duty) == []


def test_b01_renewal_waits_for_an_open_give_up_and_learns_that_it_lost(
    duty: EngineConnection, in_thread: Any
) -> None:
    worker_id = add_worker(duty, lease_for=OVER)

    with (
        connect("default", role="duty", name="keeper") as keeper,
        other_session() as watcher,
    ):
        with duty.transaction():
            given_up = lease.give_up(duty)
            renewal = in_thread(lambda: lease.renew(keeper, [worker_id], lease=LEASE))
            wait_until_blocked(watcher)
        kept = renewal.result(timeout=60)

    assert (given_up, kept) == ([worker_id], set())
    assert worker_row(duty, worker_id)["state"] == "lost"


def test_failure_115_give_up_that_hangs_keeps_no_other_reaper_from_the_rest(
    duty: EngineConnection,
) -> None:
    first = add_worker(duty, lease_for=OVER)

    with connect("default", role="duty", name="hung") as hung, hung.transaction():
        assert lease.give_up(hung) == [first]
        second = add_worker(duty, lease_for=OVER)

        assert lease.give_up(duty) == [second]


# --- take ---


def test_take_makes_the_jobs_of_a_lost_worker_ready_behind_what_waits(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    lost, worker_id = add_worker(duty, state="lost"), add_worker(duty)
    [job_id] = hold(duty, lost, failures=1, crashes=1, losses=2, attempt=4)
    [waiting] = add_jobs(duty)

    count, ready = take_all(duty, lost)

    row = job_row(duty, job_id)
    assert count == 1
    assert ready == [lease.Ready("default", 0, row["ready_seq"])]
    assert (row["state"], row["worker_id"]) == ("queued", None)
    assert (row["failures"], row["crashes"], row["losses"]) == (1, 1, 3)
    assert row["error_class"] == "WorkerLost"
    assert attempts(duty, job_id) == [(4, "lost", "WorkerLost")]
    assert events(duty, job_id) == ["reclaim"]
    assert [(job.id, job.attempt) for job in claim(hot, worker_id)] == [
        (waiting, 1),
        (job_id, 5),
    ]


def test_take_names_the_first_place_of_each_queue_and_priority(
    duty: EngineConnection,
) -> None:
    lost = add_worker(duty, state="lost")
    hold(duty, lost, 3)
    hold(duty, lost, 2, queue="mail", priority=5)

    count, ready = take_all(duty, lost)

    first = duty.execute(
        "SELECT queue, priority, min(ready_seq) FROM relay_job GROUP BY 1, 2"
    ).fetchall()
    assert count == 5
    assert sorted((one.queue, one.priority, one.ready_seq) for one in ready) == sorted(
        first
    )


def test_take_keeps_to_its_limit(duty: EngineConnection) -> None:
    lost = add_worker(duty, state="lost")
    hold(duty, lost, 25)

    counts = [lease.take(duty, lost, loss_limit=10, limit=10)[0] for _ in range(4)]

    assert counts == [10, 10, 5, 0]


def test_take_fails_a_job_as_poison_at_the_loss_limit_and_wakes_nobody(
    duty: EngineConnection,
) -> None:
    lost = add_worker(duty, state="lost")
    [job_id] = hold(duty, lost, losses=9)

    count, ready = take_all(duty, lost, loss_limit=10)

    row = job_row(duty, job_id)
    assert (count, ready) == (1, [])
    assert (row["state"], row["losses"]) == ("failed", 10)
    assert (row["error_class"], row["worker_id"]) == ("PoisonJob", str(lost))
    assert row["finished_at"] is not None
    assert row["expires_at"] is not None
    assert attempts(duty, job_id) == [(1, "lost", "WorkerLost")]


def test_take_with_a_retention_past_every_calendar_succeeds(
    duty: EngineConnection, settings: Any
) -> None:
    settings.RELAY = {"RETENTION_FAILED": timedelta.max}
    lost = add_worker(duty, state="lost")
    hold(duty, lost)

    assert lease.take(duty, lost, loss_limit=1)[0] == 1


@pytest.mark.parametrize("state", ["running", "quiet", "draining"])
def test_take_from_a_live_worker_takes_nothing(
    duty: EngineConnection, state: str
) -> None:
    worker_id = add_worker(duty, lease_for=OVER, state=state)
    hold(duty, worker_id)
    before = everything(duty)

    assert take_all(duty, worker_id) == (0, [])

    assert everything(duty) == before


def test_take_touches_nobody_elses_jobs(duty: EngineConnection) -> None:
    lost, alive = add_worker(duty, state="lost"), add_worker(duty)
    hold(duty, lost, 2)
    hold(duty, alive, 3)
    add_jobs(duty, 1, state="completed", worker_id=lost)

    take_all(duty, lost)

    assert states(duty) == {"queued": 2, "running": 3, "completed": 1}


def test_b01_finish_that_is_open_wins_against_take(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    lost = add_worker(duty, state="lost")
    [job_id] = hold(duty, lost)

    with hot.transaction():
        sent = finish.send_completed(
            hot, [finish.Completed(job_id, 1, "1", None)], worker_id=lost
        )
        taken = take_all(duty, lost)

    assert finish.read_finished(sent) == {job_id}
    assert taken == (0, [])
    assert states(duty) == {"completed": 1}


def test_b01_take_that_is_open_wins_against_finish(
    hot: EngineConnection, duty: EngineConnection, in_thread: Any
) -> None:
    lost = add_worker(duty, state="lost")
    [job_id] = hold(duty, lost)

    with other_session() as watcher:
        with duty.transaction():
            count, _ = take_all(duty, lost)
            finishing = in_thread(
                lambda: finish.read_finished(
                    finish.send_completed(
                        hot, [finish.Completed(job_id, 1, "1", None)], worker_id=lost
                    )
                )
            )
            wait_until_blocked(watcher)
        written = finishing.result(timeout=60)

    assert (count, written) == (1, set())
    assert states(duty) == {"queued": 1}


def test_finish_by_a_lost_worker_counts_while_nobody_has_taken_the_job(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    lost = add_worker(duty, state="lost")
    [job_id] = hold(duty, lost)

    sent = finish.send_completed(
        hot, [finish.Completed(job_id, 1, "1", None)], worker_id=lost
    )

    assert finish.read_finished(sent) == {job_id}
    assert take_all(duty, lost) == (0, [])


def test_failure_115_take_that_hangs_keeps_no_other_reaper_from_the_rest(
    duty: EngineConnection,
) -> None:
    lost = add_worker(duty, state="lost")
    hold(duty, lost, 10)

    with connect("default", role="duty", name="hung") as hung, hung.transaction():
        lease.take(hung, lost, loss_limit=10, limit=4)

        assert take_all(duty, lost)[0] == 6


# --- orphans ---


def test_b06_failure_023_orphan_holders_are_lost_stopped_or_without_a_row(
    duty: EngineConnection,
) -> None:
    alive = add_worker(duty)
    lost, stopped = add_worker(duty, state="lost"), add_worker(duty, state="stopped")
    missing = uuid7()
    for worker_id in (alive, lost, stopped, missing):
        hold(duty, worker_id, 2)
    add_worker(duty, state="lost")

    assert sorted(lease.orphan_holders(duty)) == sorted([lost, stopped, missing])
    assert [take_all(duty, one)[0] for one in (lost, stopped, missing)] == [2, 2, 2]
    assert lease.orphan_holders(duty) == []
    assert states(duty) == {"queued": 6, "running": 2}


def test_failure_023_running_without_an_owner_is_a_state_that_cannot_be(
    duty: EngineConnection,
) -> None:
    hold(duty, add_worker(duty))

    with pytest.raises(psycopg.errors.CheckViolation):
        duty.execute("UPDATE relay_job SET worker_id = NULL")


# --- a dead child ---


def test_first_crash_is_ready_again_at_once(duty: EngineConnection) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id, failures=1, losses=1, max_retries=0)

    count, ready = settle(duty, worker_id, [(job_id, 1)])

    row = job_row(duty, job_id)
    assert count == 1
    assert ready == [lease.Ready("default", 0, row["ready_seq"])]
    assert (row["state"], row["worker_id"]) == ("queued", None)
    assert (row["failures"], row["crashes"], row["losses"]) == (1, 1, 1)
    assert (row["error_class"], row["error_message"]) == (
        "WorkerDied",
        "killed by signal 9",
    )
    assert attempts(duty, job_id) == [(1, "crash", "WorkerDied")]
    assert events(duty, job_id) == ["crash"]


def test_second_crash_is_due_again_after_its_own_delay(duty: EngineConnection) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id, crashes=1)

    count, ready = settle(duty, worker_id, [(job_id, 1)])

    row = job_row(duty, job_id)
    assert (count, ready) == (1, [])
    assert (row["state"], row["crashes"]) == ("retrying", 2)
    due = duty.execute(
        "SELECT extract(epoch FROM run_at - clock_timestamp())::float8 FROM relay_job"
    ).fetchone()
    assert due is not None
    assert 55 < due[0] <= 60


def test_third_crash_fails_the_job_as_poison(duty: EngineConnection) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id, crashes=2, max_retries=25)

    count, ready = settle(duty, worker_id, [(job_id, 1)])

    row = job_row(duty, job_id)
    assert (count, ready) == (1, [])
    assert (row["state"], row["crashes"], row["failures"]) == ("failed", 3, 0)
    assert row["error_class"] == "PoisonJob"
    assert row["finished_at"] is not None
    assert row["expires_at"] is not None
    assert attempts(duty, job_id) == [(1, "crash", "WorkerDied")]


@pytest.mark.parametrize("delays", [(), (5.0,), (timedelta.max.total_seconds(),)])
def test_crash_with_too_few_or_endless_delays_is_settled_all_the_same(
    duty: EngineConnection, delays: Sequence[float]
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id, crashes=1)

    assert settle(duty, worker_id, [(job_id, 1)], delays=delays)[0] == 1

    assert states(duty) == {"retrying": 1}


def test_hundreds_of_crashes_of_one_child_share_thousands_of_delays(
    duty: EngineConnection,
) -> None:
    worker_id = add_worker(duty)
    jobs = [*hold(duty, worker_id, 300, crashes=1), *hold(duty, worker_id, crashes=2)]
    started = [(job_id, 1) for job_id in jobs]
    delays = [0.0, 60.0, 600.0, *([1.0] * 9_997)]

    count, _ = settle(duty, worker_id, started, delays=delays, crash_limit=10_000)

    assert count == 301
    waits = duty.execute(
        "SELECT round(extract(epoch FROM run_at - clock_timestamp()) / 60), count(*) "
        "FROM relay_job WHERE state = 'retrying' GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert waits == [(1, 300), (10, 1)]


def test_what_a_dead_child_had_not_started_is_released_uncharged(
    duty: EngineConnection,
) -> None:
    worker_id = add_worker(duty)
    started, unstarted, restarted = hold(duty, worker_id, 3)
    duty.execute("UPDATE relay_job SET attempt = 2 WHERE id = %s", (restarted,))

    # The slot table still names the attempt before the one that is held.
    count, _ = settle(duty, worker_id, [(started, 1), (restarted, 1)])

    assert count == 3
    assert states(duty) == {"queued": 3}
    for job_id in (unstarted, restarted):
        assert (attempts(duty, job_id), events(duty, job_id)) == ([], ["release"])
        row = job_row(duty, job_id)
        assert (row["crashes"], row["started_at"]) == (0, None)
    assert events(duty, started) == ["crash"]


def test_child_that_relay_killed_charges_nothing(duty: EngineConnection) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id, crashes=2)

    settle(duty, worker_id, [(job_id, 1)], is_charged=False)

    row = job_row(duty, job_id)
    assert (row["state"], row["crashes"]) == ("queued", 2)
    assert (attempts(duty, job_id), events(duty, job_id)) == ([], ["release"])


def test_settling_a_dead_child_again_changes_nothing(duty: EngineConnection) -> None:
    worker_id = add_worker(duty)
    job_ids = hold(duty, worker_id, 3)
    settle(duty, worker_id, [(job_ids[0], 1)])
    before = everything(duty)

    assert settle(duty, worker_id, [(job_ids[0], 1)]) == (0, [])

    assert everything(duty) == before


def test_settling_a_dead_child_leaves_what_others_hold_or_finished(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id, other = add_worker(duty), add_worker(duty)
    [finished, moved] = hold(duty, worker_id, 2)
    finish.read_finished(
        finish.send_completed(
            hot, [finish.Completed(finished, 1, "1", None)], worker_id=worker_id
        )
    )
    duty.execute(
        "UPDATE relay_job SET worker_id = %s, attempt = 2 WHERE id = %s", (other, moved)
    )
    before = everything(duty)

    assert settle(duty, worker_id, [(finished, 1), (moved, 1)]) == (0, [])

    assert everything(duty) == before


def test_settling_waits_for_the_open_finish_of_the_dead_child_and_it_wins(
    hot: EngineConnection, duty: EngineConnection, in_thread: Any
) -> None:
    worker_id = add_worker(duty)
    done, undone = hold(duty, worker_id, 2)

    with other_session() as watcher:
        with hot.transaction():
            finish.send_completed(
                hot, [finish.Completed(done, 1, "1", None)], worker_id=worker_id
            )
            settling = in_thread(
                lambda: settle(duty, worker_id, [(done, 1), (undone, 1)])
            )
            wait_until_blocked(watcher)
        count, _ = settling.result(timeout=60)

        assert count == 1
        assert states(watcher) == {"completed": 1, "queued": 1}


# --- what a worker holds ---


def test_held_names_the_attempts_of_this_worker_in_its_queues(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [first] = hold(duty, worker_id, attempt=3)
    [second] = hold(duty, worker_id, queue="mail")
    hold(duty, worker_id, queue="unserved")
    hold(duty, add_worker(duty))
    add_jobs(duty, state="completed", worker_id=worker_id)

    assert holdings.held(hot, worker_id, ["default", "mail"]) == {first: 3, second: 1}


def test_failure_079_claim_whose_answer_was_lost_is_found_and_released_uncharged(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id, other = add_worker(duty), add_worker(duty)
    known = hold(duty, worker_id)
    job_ids = add_jobs(duty, 3, failures=1)
    claim(hot, worker_id)

    held = holdings.held(hot, worker_id, ["default"])
    unknown = {job_id: held[job_id] for job_id in held if job_id not in known}
    released = holdings.release_held(hot, worker_id, unknown.items(), reason="unknown")

    assert released == set(job_ids)
    assert states(duty) == {"running": 1, "queued": 3}
    row = job_row(duty, job_ids[0])
    assert (row["attempt"], row["failures"]) == (1, 1)
    assert (row["crashes"], row["losses"], row["started_at"]) == (0, 0, None)
    assert events(duty, job_ids[0]) == ["release"]
    assert {job.id for job in claim(hot, other)} == set(job_ids)


def test_release_held_of_nothing_changes_nothing(duty: EngineConnection) -> None:
    assert holdings.release_held(duty, uuid7(), [], reason="none") == set()


# --- jobs that were asked to stop ---


def test_cancel_requested_names_what_these_workers_run_and_is_to_stop(
    duty: EngineConnection,
) -> None:
    worker_id, other = add_worker(duty), add_worker(duty)
    [asked] = hold(duty, worker_id, attempt=3, cancel_requested_at="now")
    hold(duty, worker_id)
    hold(duty, worker_id, queue="unserved", cancel_requested_at="now")
    hold(duty, uuid7(), cancel_requested_at="now")

    found = holdings.cancel_requested(duty, [worker_id, other], ["default"])

    assert found == [(worker_id, asked, 3)]


def test_j17_take_cancels_what_was_asked_to_stop(duty: EngineConnection) -> None:
    worker_id = add_worker(duty, state="lost")
    [asked] = hold(duty, worker_id, cancel_requested_at="now")
    [other] = hold(duty, worker_id)

    count, ready = take_all(duty, worker_id)

    assert (count, len(ready)) == (2, 1)
    row = job_row(duty, asked)
    assert (row["state"], row["error_class"]) == ("cancelled", "WorkerLost")
    assert row["finished_at"] is not None
    assert row["expires_at"] is not None
    assert events(duty, asked) == ["cancel"]
    assert job_row(duty, other)["state"] == "queued"


@pytest.mark.parametrize("is_started", [True, False])
def test_j17_a_dead_childs_job_that_was_asked_to_stop_is_cancelled_uncharged(
    duty: EngineConnection, is_started: bool
) -> None:
    worker_id = add_worker(duty)
    [asked] = hold(duty, worker_id, cancel_requested_at="now")

    count, ready = settle(duty, worker_id, [(asked, 1)] if is_started else [])

    assert (count, ready) == (1, [])
    row = job_row(duty, asked)
    assert (row["state"], row["crashes"]) == ("cancelled", 0)
    assert row["finished_at"] is not None
    assert row["expires_at"] is not None
    assert events(duty, asked) == ["cancel"]


def test_j17_an_unknown_job_that_was_asked_to_stop_is_cancelled(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [asked] = hold(duty, worker_id, cancel_requested_at="now")

    released = holdings.release_held(hot, worker_id, [(asked, 1)], reason="unknown")

    assert released == {asked}
    row = job_row(duty, asked)
    assert (row["state"], row["worker_id"]) == ("cancelled", None)
    assert row["finished_at"] is not None
    assert row["expires_at"] is not None
    assert events(duty, asked) == ["cancel"]

"""Deadlines: what has not started in time never starts, and is not charged."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from relay.engine import rules
from relay.engine.claim import Marks, read_claimed, send_claim
from relay.engine.connection import EngineConnection
from relay.engine.expire import EXPIRE, expire
from relay.engine.finish import Settled, read_finished, send_settled
from tests.engine.rows import (
    add_jobs,
    add_worker,
    attempts,
    claim,
    events,
    hold,
    job_row,
    other_session,
)

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])

HOUR = timedelta(hours=1)


def add_late(session: EngineConnection, state: str = "queued", **columns: Any) -> UUID:
    """Insert a job whose deadline passed a second ago."""
    [job_id] = add_jobs(session, state=state, **columns)
    set_deadline(session, job_id, -1)
    return job_id


def set_deadline(session: EngineConnection, job_id: UUID, seconds: float) -> None:
    session.execute(
        "UPDATE relay_job SET deadline_at = clock_timestamp() "
        "+ make_interval(secs => %s) WHERE id = %s",
        (seconds, job_id),
    )


@pytest.mark.parametrize("state", ["blocked", "scheduled", "queued", "retrying"])
def test_a_waiting_job_fails_uncharged_once_its_deadline_has_passed(
    duty: EngineConnection, state: str
) -> None:
    job_id = add_late(duty, state, failures=2)

    assert expire(duty) == 1

    row = job_row(duty, job_id)
    assert (row["state"], row["error_class"]) == ("failed", "DeadlineExceeded")
    assert (row["failures"], row["crashes"], row["attempt"]) == (2, 0, 0)
    assert row["finished_at"] < row["expires_at"]
    assert events(duty, job_id) == ["expire"]
    assert attempts(duty, job_id) == []


def test_what_runs_has_ended_or_has_time_is_left_alone(duty: EngineConnection) -> None:
    worker_id = add_worker(duty)
    running = hold(duty, worker_id)
    ended = add_jobs(duty, state="completed") + add_jobs(duty, state="cancelled")
    for job_id in running + ended:
        set_deadline(duty, job_id, -1)
    in_time = add_jobs(duty)
    set_deadline(duty, in_time[0], 3_600)
    without = add_jobs(duty)
    before = [job_row(duty, job_id) for job_id in running + ended + in_time + without]

    assert expire(duty) == 0

    after = [job_row(duty, job_id) for job_id in running + ended + in_time + without]
    assert after == before


def test_it_goes_in_batches_the_earliest_deadlines_first(
    duty: EngineConnection,
) -> None:
    jobs = add_jobs(duty, 5)
    for place, job_id in enumerate(jobs):
        set_deadline(duty, job_id, -100 + place)

    counts = [expire(duty, limit=2)]
    first = [job_row(duty, job_id)["state"] for job_id in jobs]
    counts += [expire(duty, limit=2) for _ in range(3)]

    assert first == ["failed"] * 2 + ["queued"] * 3
    assert counts == [2, 2, 1, 0]


def test_a_unique_key_goes_unless_its_window_is_ahead(duty: EngineConnection) -> None:
    gone = add_late(duty, unique_key=b"a" * 16, unique_scope="finished:00")
    kept = add_late(duty, unique_key=b"b" * 16, unique_scope="window:00")
    duty.execute(
        "UPDATE relay_job SET unique_until = clock_timestamp() + interval '60 days' "
        "WHERE id = %s",
        (kept,),
    )

    expire(duty)

    assert job_row(duty, gone)["unique_key"] is None
    row = job_row(duty, kept)
    assert row["unique_key"] is not None
    assert row["expires_at"] == row["unique_until"]


def test_a_row_that_a_claim_has_locked_is_left_to_it(
    duty: EngineConnection, in_thread: Callable[[Callable[[], Any]], Future[Any]]
) -> None:
    job_id = add_late(duty)
    with other_session(autocommit=False) as claimer:
        claimer.execute("SELECT FROM relay_job WHERE id = %s FOR UPDATE", (job_id,))

        assert in_thread(lambda: expire(duty)).result(timeout=60) == 0


def test_a_claim_says_how_long_a_job_may_wait_by_the_clock_of_the_machine(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [with_deadline] = add_jobs(duty, timeout_ms=1_500)
    set_deadline(duty, with_deadline, 3_600)
    [plain] = add_jobs(duty)

    found = {job.id: job for job in claim(hot, worker_id)}

    first, second = found[with_deadline], found[plain]
    assert (first.timeout_ms, second.timeout_ms) == (1_500, None)
    assert (second.deadline_at, second.start_by) == (None, None)
    assert first.deadline_at is not None
    assert first.start_by is not None


def test_a_claim_counts_what_is_left_from_when_it_was_sent(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [job_id] = add_jobs(duty)
    set_deadline(duty, job_id, 60)
    spans = Marks().spans(["default"])

    cursor = send_claim(hot, spans, limit=1, worker_id=worker_id)
    [job] = read_claimed(cursor, ["default"], sent_at=1_000.0)

    assert job.start_by is not None
    assert 1_000 < job.start_by <= 1_060


def test_a_retry_past_the_deadline_waits_for_it_and_fails_then(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id)
    set_deadline(duty, job_id, 60)
    late = Settled(
        id=job_id,
        attempt=1,
        verb="retry",
        delay_seconds=120,
        is_charged=True,
        error_class="ValueError",
    )
    read_finished(send_settled(hot, [late], worker_id=worker_id, hand_back_limit=HOUR))
    assert expire(duty) == 0

    set_deadline(duty, job_id, -1)
    assert expire(duty) == 1

    row = job_row(duty, job_id)
    assert (row["state"], row["failures"]) == ("failed", 1)
    assert attempts(duty, job_id) == [(1, "retry", "ValueError")]
    assert events(duty, job_id) == ["retry", "expire"]


def test_it_reads_the_deadline_index_alone(duty: EngineConnection) -> None:
    add_jobs(duty, 3_000)
    late = add_jobs(duty, 3)
    for job_id in late:
        set_deadline(duty, job_id, -1)
    values = {"limit": 1_000, "error_class": "E", "error_message": "m"}
    values |= rules.values()
    duty.execute("ANALYZE relay_job")

    plan = "\n".join(
        row[0] for row in duty.execute(f"EXPLAIN {EXPIRE}".encode(), values)
    )

    assert "relay_job_deadline_idx" in plan
    assert "Seq Scan on relay_job" not in plan

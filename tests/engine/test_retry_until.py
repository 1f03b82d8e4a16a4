"""Retries that would come too late: by the job's age, or an instant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from relay.engine import control
from relay.engine.connection import EngineConnection
from relay.engine.finish import Settled, read_finished, send_settled
from tests.engine.rows import add_worker, attempts, hold, job_row, states

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])

HOUR = timedelta(hours=1)


def retry(
    session: EngineConnection,
    worker_id: UUID,
    job_id: UUID,
    *,
    until: timedelta | datetime,
    delay: timedelta = HOUR,
) -> None:
    outcome = Settled(
        id=job_id,
        attempt=1,
        verb="retry",
        delay_seconds=delay.total_seconds(),
        until=until,
        is_charged=True,
        error_class="ValueError",
        error_message="bad",
    )
    with session.block():
        sent = send_settled(
            session, [outcome], worker_id=worker_id, hand_back_limit=HOUR
        )
    assert read_finished(sent) == {job_id}


@pytest.mark.parametrize("as_instant", [False, True])
def test_a_retry_later_than_retry_until_fails_and_says_so(
    hot: EngineConnection, duty: EngineConnection, as_instant: bool
) -> None:
    worker_id = add_worker(duty)
    made_at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    [job_id] = hold(duty, worker_id, created_at=made_at)

    retry(hot, worker_id, job_id, until=made_at + HOUR if as_instant else HOUR)

    row = job_row(duty, job_id)
    message = "bad (no retry starts after 2026-03-01 13:00:00 UTC)"
    assert (row["state"], row["failures"]) == ("failed", 1)
    assert (row["error_class"], row["error_message"]) == ("ValueError", message)
    assert row["expires_at"] is not None
    assert attempts(duty, job_id) == [(1, "fail", "ValueError")]
    told = duty.execute("SELECT error_message FROM relay_attempt").fetchall()
    assert told == [(message,)]


def test_a_retry_within_retry_until_has_it_as_its_deadline(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    earlier, none = (
        hold(duty, worker_id, deadline_at=deadline)[0]
        for deadline in ("2026-01-01 00:00Z", None)
    )

    for job_id in (earlier, none):
        retry(hot, worker_id, job_id, until=datetime(2126, 1, 1, tzinfo=UTC))

    rows = [job_row(duty, job_id) for job_id in (earlier, none)]
    assert [row["state"] for row in rows] == ["retrying", "retrying"]
    assert [row["error_message"] for row in rows] == ["bad", "bad"]
    assert [row["deadline_at"][:10] for row in rows] == ["2026-01-01", "2126-01-01"]


def test_a_job_whose_row_is_gone_is_retried_no_more(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id)
    duty.execute("DELETE FROM relay_job")

    with pytest.raises(AssertionError):
        retry(hot, worker_id, job_id, until=HOUR)

    assert states(duty) == {}


@pytest.mark.parametrize("until", [timedelta.max, datetime.max.replace(tzinfo=UTC)])
def test_failure_063_a_limit_past_every_calendar_is_cut(
    hot: EngineConnection, duty: EngineConnection, until: timedelta | datetime
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id)

    retry(hot, worker_id, job_id, until=until)

    assert job_row(duty, job_id)["state"] == "retrying"


def test_a_retry_by_hand_runs_also_after_the_deadline(duty: EngineConnection) -> None:
    worker_id = add_worker(duty)
    past, ahead = (
        hold(duty, worker_id, state="failed", deadline_at=deadline)[0]
        for deadline in ("2026-01-01 00:00Z", "2126-01-01 00:00Z")
    )

    control.retry_many([past, ahead], actor="ada", using="default")

    assert job_row(duty, past)["deadline_at"] is None
    assert job_row(duty, ahead)["deadline_at"] is not None

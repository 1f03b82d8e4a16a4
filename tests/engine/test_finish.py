"""Every way in which an attempt ends, under its token and under no other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection
from psycopg.pq import TransactionStatus

from relay.engine import control, holdings
from relay.engine.claim import Marks, read_claimed, send_claim
from relay.engine.connection import EngineConnection, is_outage
from relay.engine.finish import (
    Completed,
    Outcome,
    Settled,
    is_bad_row,
    read_finished,
    send_completed,
    send_settled,
)
from relay.exceptions import StateConflict
from relay.ids import uuid7
from tests.engine.rows import (
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
)

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])

DAY_SECONDS = 86_400.0


def end(session: EngineConnection, worker_id: UUID, *outcomes: Outcome) -> set[UUID]:
    with session.block():
        sent = send_completed(
            session,
            [one for one in outcomes if isinstance(one, Completed)],
            worker_id=worker_id,
        )
        sent += send_settled(
            session,
            [one for one in outcomes if isinstance(one, Settled)],
            worker_id=worker_id,
            hand_back_limit=timedelta(hours=24),
        )
    return read_finished(sent)


def settled(job_id: UUID, attempt: int, verb: Any, **values: Any) -> Settled:
    values = {"error_class": "ValueError", "error_message": "no", **values}
    return Settled(id=job_id, attempt=attempt, verb=verb, **values)


def seconds_between(row: dict[str, Any], first: str, second: str) -> float:
    times = [datetime.fromisoformat(row[name]) for name in (first, second)]
    return (times[1] - times[0]).total_seconds()


def seconds_from_now(
    session: EngineConnection, row: dict[str, Any], name: str
) -> float:
    found = session.execute(
        "SELECT extract(epoch FROM %s::timestamptz - clock_timestamp())::float8",
        (row[name],),
    ).fetchone()
    assert found is not None
    return float(found[0])


# --- completed ---


def test_complete_writes_the_result_and_when_the_row_may_go(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id, error_class="ValueError", error_message="once")

    written = end(hot, worker_id, Completed(job_id, 1, '{"a": [1, "ü"]}', DAY_SECONDS))

    row = job_row(duty, job_id)
    assert written == {job_id}
    assert row["state"] == "completed"
    assert row["result"] == {"a": [1, "ü"]}
    assert row["error_class"] is None
    assert row["error_message"] is None
    assert row["worker_id"] == str(worker_id)
    assert seconds_between(row, "finished_at", "expires_at") == pytest.approx(
        DAY_SECONDS, abs=1
    )
    assert attempts(duty, job_id) == []
    assert events(duty, job_id) == []


def test_complete_without_retention_keeps_the_row_for_ever(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id)

    end(hot, worker_id, Completed(job_id, 1, "null", None))

    row = job_row(duty, job_id)
    assert row["state"] == "completed"
    assert row["expires_at"] is None


def test_complete_with_a_retention_of_nothing_deletes_the_row_and_its_children(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    gone, kept = hold(duty, worker_id, 2)
    end(hot, worker_id, settled(gone, 1, "retry"), settled(kept, 1, "retry"))
    duty.execute("UPDATE relay_job SET state = 'queued'")
    claim(hot, worker_id)

    written = end(
        hot, worker_id, Completed(gone, 2, "1", 0), Completed(kept, 2, "1", None)
    )

    assert written == {gone, kept}
    assert states(duty) == {"completed": 1}
    assert (attempts(duty, gone), events(duty, gone)) == ([], [])
    assert (len(attempts(duty, kept)), len(events(duty, kept))) == (1, 1)


def test_finish_of_a_batch_names_exactly_the_rows_it_wrote(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    mine = hold(duty, worker_id, 50)
    theirs = hold(duty, add_worker(duty), 50)

    written = end(
        hot, worker_id, *(Completed(one, 1, "1", None) for one in [*theirs, *mine])
    )

    assert written == set(mine)
    assert states(duty) == {"completed": 50, "running": 50}


# --- any other end ---


def test_retry_is_charged_and_due_again_after_its_delay(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id, failures=2)
    before = job_row(duty, job_id)

    end(
        hot,
        worker_id,
        settled(
            job_id, 1, "retry", delay_seconds=90, is_charged=True, traceback="at line 1"
        ),
    )

    row = job_row(duty, job_id)
    assert 85 < seconds_from_now(duty, row, "run_at") <= 90
    assert row == {
        **before,
        "state": "retrying",
        "failures": 3,
        "worker_id": None,
        "error_class": "ValueError",
        "error_message": "no",
        "run_at": row["run_at"],
    }
    assert attempts(duty, job_id) == [(1, "retry", "ValueError")]
    assert events(duty, job_id) == ["retry"]
    found = duty.execute("SELECT traceback, worker_id FROM relay_attempt").fetchone()
    assert found == ("at line 1", worker_id)


def test_fail_is_final_and_keeps_who_ran_it(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id)

    end(hot, worker_id, settled(job_id, 1, "fail", is_charged=True))

    row = job_row(duty, job_id)
    assert (row["state"], row["failures"]) == ("failed", 1)
    assert row["worker_id"] == str(worker_id)
    assert seconds_between(row, "finished_at", "expires_at") == pytest.approx(
        30 * DAY_SECONDS, abs=1
    )
    assert attempts(duty, job_id) == [(1, "fail", "ValueError")]


def test_cancel_is_final_charges_nothing_and_keeps_who_ran_it(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id, failures=1)

    end(hot, worker_id, settled(job_id, 1, "cancel"))

    row = job_row(duty, job_id)
    assert (row["state"], row["failures"]) == ("cancelled", 1)
    assert row["worker_id"] == str(worker_id)
    assert seconds_between(row, "finished_at", "expires_at") == pytest.approx(
        30 * DAY_SECONDS, abs=1
    )
    assert attempts(duty, job_id) == [(1, "cancel", "ValueError")]
    assert events(duty, job_id) == ["cancel"]


def test_cancel_before_the_start_leaves_no_attempt(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id)

    end(hot, worker_id, Settled(id=job_id, attempt=1, verb="cancel"))

    assert job_row(duty, job_id)["state"] == "cancelled"
    assert (attempts(duty, job_id), events(duty, job_id)) == ([], ["cancel"])


@pytest.mark.parametrize("verb", ["retry", "hand_back", "snooze", "release"])
def test_j17_a_job_that_was_asked_to_stop_never_runs_again(
    hot: EngineConnection, duty: EngineConnection, verb: str
) -> None:
    worker_id = add_worker(duty)
    [asked] = hold(duty, worker_id, cancel_requested_at="now")
    [other] = hold(duty, worker_id)

    end(
        hot,
        worker_id,
        *(settled(job_id, 1, verb, is_charged=True) for job_id in (asked, other)),
    )

    row = job_row(duty, asked)
    assert (row["state"], row["failures"]) == ("cancelled", 0)
    assert seconds_between(row, "finished_at", "expires_at") == pytest.approx(
        30 * DAY_SECONDS, abs=1
    )
    assert events(duty, asked) == ["cancel"]
    assert job_row(duty, other)["state"] in ("queued", "retrying")
    assert events(duty, other) == [verb]


def test_j17_what_ended_before_it_could_stop_stays_as_it_ended(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    done, failed = hold(duty, worker_id, 2, cancel_requested_at="now")

    end(hot, worker_id, Completed(done, 1, "1", None), settled(failed, 1, "fail"))

    assert job_row(duty, done)["state"] == "completed"
    assert job_row(duty, failed)["state"] == "failed"


@pytest.mark.slow
def test_failure_034_cancel_against_finish_ends_in_exactly_one(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    ends: dict[tuple[bool, str], int] = {}

    def cancel(job_id: UUID, barrier: threading.Barrier) -> str:
        barrier.wait(timeout=60)
        try:
            control.cancel(job_id, actor=None, using="default")
        except StateConflict as conflict:
            return str(conflict.state)
        finally:
            connection.close()
        return "asked"

    with ThreadPoolExecutor(1) as pool:
        for number in range(200):
            is_retry = number % 2 == 0
            [job_id] = hold(duty, worker_id)
            barrier = threading.Barrier(2)
            answer = pool.submit(cancel, job_id, barrier)
            barrier.wait(timeout=60)
            written = end(
                hot,
                worker_id,
                settled(job_id, 1, "release")
                if is_retry
                else Completed(job_id, 1, "1", None),
            )

            said, row = answer.result(timeout=60), job_row(duty, job_id)
            assert written == {job_id}
            if is_retry:
                # Asked or found queued again: either way it is cancelled.
                assert (said, row["state"]) == ("asked", "cancelled")
            else:
                assert row["state"] == "completed"
                assert (said == "asked") == (row["cancel_requested_at"] is not None)
            key = is_retry, said
            ends[key] = ends.get(key, 0) + 1

    assert sum(ends.values()) == 200


def test_snoozes_charge_nothing_and_leave_no_error(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id)

    end(
        hot,
        worker_id,
        settled(job_id, 1, "snooze", delay_seconds=60, most=3, error_class="Snooze"),
    )

    row = job_row(duty, job_id)
    assert (row["state"], row["failures"]) == ("retrying", 0)
    assert (row["error_class"], row["error_message"]) == (None, None)
    assert 55 < seconds_from_now(duty, row, "run_at") <= 60
    assert (attempts(duty, job_id), events(duty, job_id)) == ([], ["snooze"])


def test_failure_124_a_job_that_snoozes_for_ever_fails_with_that_reason(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id, attempt=0)

    def snooze(reason: str | None = "Snooze", most: int | None = 3) -> str:
        duty.execute(
            "UPDATE relay_job SET state = 'running', attempt = attempt + 1, "
            "worker_id = %s",
            (worker_id,),
        )
        values = {"error_class": reason, "most": most}
        attempt = job_row(duty, job_id)["attempt"]
        end(hot, worker_id, settled(job_id, attempt, "snooze", **values))
        return str(job_row(duty, job_id)["state"])

    # What relay itself puts off does not count.
    assert [snooze(None, None) for _ in range(5)] == ["retrying"] * 5
    assert [snooze() for _ in range(4)] == ["retrying"] * 3 + ["failed"]
    row = job_row(duty, job_id)
    assert (row["failures"], row["error_class"]) == (0, "Snooze")
    assert row["expires_at"] is not None
    control.retry(job_id, actor="ada", using="default")
    assert [snooze() for _ in range(4)] == ["retrying"] * 3 + ["failed"]


def test_release_charges_nothing_and_is_ready_at_once_behind_what_waits(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id, failures=1, crashes=1, losses=1, max_retries=1)
    [waiting] = add_jobs(duty)

    end(hot, worker_id, Settled(id=job_id, attempt=1, verb="release"))

    row = job_row(duty, job_id)
    assert (row["state"], row["started_at"], row["worker_id"]) == ("queued", None, None)
    assert (row["failures"], row["crashes"], row["losses"]) == (1, 1, 1)
    assert (attempts(duty, job_id), events(duty, job_id)) == ([], ["release"])
    assert [job.id for job in claim(hot, worker_id)] == [waiting, job_id]


@pytest.mark.parametrize("verb", ["hand_back", "snooze"])
def test_hand_back_and_snooze_charge_nothing_and_are_due_after_their_delay(
    hot: EngineConnection, duty: EngineConnection, verb: str
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id, failures=1)

    end(hot, worker_id, settled(job_id, 1, verb, delay_seconds=60))

    row = job_row(duty, job_id)
    assert (row["state"], row["failures"]) == ("retrying", 1)
    assert 55 < seconds_from_now(duty, row, "run_at") <= 60
    assert (attempts(duty, job_id), events(duty, job_id)) == ([], [verb])


@pytest.mark.parametrize(
    ("between", "state"),
    [
        (None, "failed"),
        ("release", "failed"),
        ("retry", "retrying"),
        ("snooze", "retrying"),
        ("crash", "retrying"),
    ],
)
def test_b10_hand_back_fails_once_its_limit_has_passed_and_nothing_ran_since(
    hot: EngineConnection, duty: EngineConnection, between: str | None, state: str
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id, attempt=3)
    duty.execute(
        "INSERT INTO relay_history (job_id, event, at) "
        "VALUES (%(id)s, 'hand_back', now() - interval '25 hours'),"
        "(%(id)s, 'hand_back', now() - interval '1 hour')",
        {"id": job_id},
    )
    if between:
        duty.execute(
            "INSERT INTO relay_history (job_id, event, at) "
            "VALUES (%s, %s, now() - interval '2 hours')",
            (job_id, between),
        )

    end(
        hot,
        worker_id,
        settled(job_id, 3, "hand_back", error_class="UnknownTask"),
    )

    row = job_row(duty, job_id)
    assert (row["state"], row["error_class"]) == (state, "UnknownTask")
    assert (row["expires_at"] is not None) == (state == "failed")
    assert len(attempts(duty, job_id)) == (state == "failed")


def test_hand_back_within_the_limit_goes_on(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id)
    duty.execute(
        "INSERT INTO relay_history (job_id, event, at) "
        "VALUES (%s, 'hand_back', now() - interval '23 hours')",
        (job_id,),
    )

    end(hot, worker_id, settled(job_id, 1, "hand_back", delay_seconds=5))

    assert states(duty) == {"retrying": 1}


def test_failure_063_delays_and_retentions_past_every_calendar_are_cut(
    hot: EngineConnection, duty: EngineConnection, settings: Any
) -> None:
    settings.RELAY = {"RETENTION_FAILED": timedelta.max}
    worker_id = add_worker(duty)
    retried, failed, completed = hold(duty, worker_id, 3)
    endless = timedelta.max.total_seconds()

    written = end(
        hot,
        worker_id,
        settled(retried, 1, "retry", delay_seconds=endless),
        settled(failed, 1, "fail"),
        Completed(completed, 1, "1", endless),
    )

    assert len(written) == 3
    for job_id, column in (
        (retried, "run_at"),
        (failed, "expires_at"),
        (completed, "expires_at"),
    ):
        row = job_row(duty, job_id)
        assert seconds_from_now(duty, row, column) > 99 * 365 * DAY_SECONDS


# --- the fence ---

PATHS: dict[str, Callable[[EngineConnection, UUID, UUID, int], set[UUID]]] = {
    "complete": lambda session, worker_id, job_id, attempt: end(
        session, worker_id, Completed(job_id, attempt, "1", None)
    ),
    "complete and delete": lambda session, worker_id, job_id, attempt: end(
        session, worker_id, Completed(job_id, attempt, "1", 0)
    ),
    **{
        verb: lambda session, worker_id, job_id, attempt, verb=verb: end(  # type: ignore[misc]
            session, worker_id, settled(job_id, attempt, verb, is_charged=True)
        )
        for verb in ("retry", "fail", "hand_back", "snooze", "release")
    },
    "release held": lambda session, worker_id, job_id, attempt: holdings.release_held(
        session, worker_id, [(job_id, attempt)], reason="tests"
    ),
}


@pytest.mark.parametrize("path", PATHS)
def test_b02_settling_with_an_old_token_changes_nothing(
    hot: EngineConnection, duty: EngineConnection, path: str
) -> None:
    worker_id = add_worker(duty)
    settle = PATHS[path]
    [job_id] = hold(duty, worker_id, attempt=2)
    others = [
        add_jobs(duty, state=state, worker_id=worker_id, attempt=2)[0]
        for state in (
            "blocked",
            "scheduled",
            "queued",
            "retrying",
            "completed",
            "failed",
            "cancelled",
        )
    ]
    before = everything(duty)

    written = [
        settle(hot, worker_id, job_id, 1),
        settle(hot, worker_id, job_id, 3),
        settle(hot, add_worker(duty), job_id, 2),
        settle(hot, uuid7(), job_id, 2),
        *(settle(hot, worker_id, other, 2) for other in others),
    ]

    assert written == [set()] * len(written)
    assert everything(duty) == before
    assert settle(hot, worker_id, job_id, 2) == {job_id}


@pytest.mark.parametrize("path", PATHS)
def test_b09_settling_a_job_whose_row_is_gone_says_so_and_goes_on(
    hot: EngineConnection, duty: EngineConnection, path: str
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id)
    duty.execute("DELETE FROM relay_job")

    assert PATHS[path](hot, worker_id, job_id, 1) == set()

    assert everything(duty) == []


@pytest.mark.parametrize("path", PATHS)
def test_settling_a_second_time_changes_nothing(
    hot: EngineConnection, duty: EngineConnection, path: str
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id)
    PATHS[path](hot, worker_id, job_id, 1)
    before = everything(duty)

    assert PATHS[path](hot, worker_id, job_id, 1) == set()

    assert everything(duty) == before


@pytest.mark.parametrize("path", PATHS)
def test_d2_job_and_its_attempt_and_history_are_one_transaction(
    hot: EngineConnection, duty: EngineConnection, path: str
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id)
    before = everything(duty)
    expected = {
        "complete": ([], []),
        "complete and delete": ([], []),
        "retry": (["retry"], ["retry"]),
        "fail": (["fail"], []),
        "hand_back": ([], ["hand_back"]),
        "snooze": ([], ["snooze"]),
        "release": ([], ["release"]),
        "release held": ([], ["release"]),
    }

    with hot.transaction(force_rollback=True):
        PATHS[path](hot, worker_id, job_id, 1)
    assert everything(duty) == before
    PATHS[path](hot, worker_id, job_id, 1)

    outcomes = [outcome for _, outcome, _ in attempts(duty, job_id)]
    assert (outcomes, events(duty, job_id)) == expected[path]


# --- batches, bad rows and the claim beside them ---


def finish_and_claim(
    session: EngineConnection,
    worker_id: UUID,
    job_id: UUID,
    *,
    limit: int = 5,
    then: str | None = None,
) -> tuple[list[Any], Any]:
    """Send a finish and a claim in one block; then may name a backend to end."""
    with session.block():
        finishing = send_completed(
            session, [Completed(job_id, 1, "1", None)], worker_id=worker_id
        )
        claiming = send_claim(
            session, Marks().spans(["default"]), limit=limit, worker_id=worker_id
        )
        if then:
            session.execute(f"SELECT pg_terminate_backend({then})")
    return finishing, claiming


@pytest.mark.parametrize(
    "result",
    ['"\\u0000"', '"\\ud800"', "[" * 50_000 + "]" * 50_000, "1e200000"],
    ids=["NUL", "surrogate", "depth", "number"],
)
def test_result_that_postgresql_refuses_is_a_bad_row_and_nothing_is_written(
    hot: EngineConnection, duty: EngineConnection, result: str
) -> None:
    worker_id = add_worker(duty)
    good, bad = hold(duty, worker_id, 2)
    before = everything(duty)

    with pytest.raises(psycopg.Error) as caught:
        end(
            hot,
            worker_id,
            Completed(good, 1, "1", None),
            Completed(bad, 1, result, None),
        )

    assert is_bad_row(caught.value)
    assert not is_outage(caught.value)
    assert everything(duty) == before
    assert end(hot, worker_id, Completed(good, 1, "1", None)) == {good}


def test_document_larger_than_jsonb_takes_is_a_bad_row() -> None:
    assert is_bad_row(psycopg.errors.ProgramLimitExceeded("too large"))
    assert is_bad_row(psycopg.errors.UntranslatableCharacter("NUL"))
    assert is_bad_row(psycopg.errors.CheckViolation("run_at"))


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("connection lost"),
        psycopg.errors.QueryCanceled("statement timeout"),
        psycopg.errors.AdminShutdown("bye"),
        psycopg.errors.DeadlockDetected("40P01"),
        psycopg.errors.UndefinedColumn("old schema"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_trouble_of_the_database_is_no_bad_row(error: psycopg.Error) -> None:
    assert not is_bad_row(error)


def test_finish_and_claim_in_one_block_are_one_transaction(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id)
    [waiting] = add_jobs(duty)

    finishing, claiming = finish_and_claim(hot, worker_id, job_id)

    assert read_finished(finishing) == {job_id}
    assert [job.id for job in read_claimed(claiming, ["default"])] == [waiting]
    assert hot.info.transaction_status == TransactionStatus.IDLE
    found = duty.execute("SELECT count(DISTINCT xmin::text) FROM relay_job").fetchone()
    assert found == (1,)


def test_claim_that_fails_takes_the_finish_of_its_block_with_it(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id)
    add_jobs(duty)
    before = everything(duty)

    with pytest.raises(psycopg.errors.DataError):
        finish_and_claim(hot, worker_id, job_id, limit=-1)

    assert everything(duty) == before
    assert end(hot, worker_id, Completed(job_id, 1, "1", None)) == {job_id}


def test_failure_079_connection_cut_inside_a_block_leaves_everything_as_it_was(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id)
    add_jobs(duty)
    before = everything(duty)

    with pytest.raises(psycopg.Error) as caught:
        finish_and_claim(hot, worker_id, job_id, then="pg_backend_pid()")

    assert is_outage(caught.value)
    assert everything(duty) == before


def test_nothing_to_settle_sends_nothing(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    assert end(hot, uuid7()) == set()


def test_finish_waits_for_a_lock_only_as_long_as_its_statement_may_last(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    [job_id] = hold(duty, worker_id)
    hot.execute("SET statement_timeout = '100ms'")

    with other_session(autocommit=False) as other:
        other.execute("SELECT FROM relay_job FOR UPDATE")
        with pytest.raises(psycopg.errors.QueryCanceled):
            end(hot, worker_id, Completed(job_id, 1, "1", None))

    assert states(duty) == {"running": 1}
    hot.execute("RESET statement_timeout")
    assert end(hot, worker_id, Completed(job_id, 1, "1", None)) == {job_id}

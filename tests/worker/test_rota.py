"""The rota: each duty as often as there is something to do, and never much later."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

import psycopg
import pytest

from relay.engine.connection import EngineConnection
from relay.worker import rota as rota_module
from relay.worker.duties import Duty, Expire, Promote, Prune, PruneRecords, Reap
from relay.worker.rota import Rota, upcoming
from tests.engine.rows import add_jobs, add_worker, other_session, states

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])

LONG = timedelta(hours=1)
NEVER = float("inf")


class Errand:
    """A duty that is asked for at an instant given as SQL."""

    interval = timedelta(0)
    rest = LONG

    def __init__(self, next_at: str, *, has_more: bool = False) -> None:
        self.next_at = next_at
        self.has_more = has_more
        self.ticks = 0

    def tick(self, connection: EngineConnection) -> bool:
        self.ticks += 1
        return self.has_more


def started(connection: EngineConnection, *duties: Duty) -> Rota:
    """Return a rota whose duties have ticked once, as they do first."""
    rota = Rota(duties)
    rota.turn(connection, until=NEVER)
    return rota


def look(rota: Rota, connection: EngineConnection) -> list[float]:
    """Let a second pass; return in how many seconds each duty is due by now."""
    rota._look_at = 0.0
    rota.turn(connection, until=NEVER)
    return [timer.due_at - time.monotonic() for timer in rota.timers]


def in_seconds(duty: EngineConnection, column: str, seconds: float) -> None:
    duty.execute(
        f"UPDATE relay_job SET {column} = clock_timestamp() "
        "+ make_interval(secs => %s)",
        (seconds,),
    )


def test_a_duty_that_nothing_asks_for_ticks_at_the_end_of_its_rest(
    duty: EngineConnection,
) -> None:
    errand = Errand("NULL::timestamptz")
    rota = started(duty, errand)

    [seconds] = look(rota, duty)
    assert seconds > 3_500
    assert errand.ticks == 1
    rota.timers[0].due_at = rota.timers[0].rest_until = 0.0
    rota.turn(duty, until=NEVER)

    assert errand.ticks == 2


def test_a_look_brings_a_duty_forward_to_its_time_and_the_next_puts_it_off(
    duty: EngineConnection,
) -> None:
    errand = Errand("clock_timestamp() + interval '100 s'")
    rota = started(duty, errand)

    [seconds] = look(rota, duty)
    assert 90 < seconds < 110
    errand.next_at = "clock_timestamp() + interval '200 s'"
    [seconds] = look(rota, duty)

    assert 190 < seconds < 210
    assert errand.ticks == 1


def test_what_comes_after_a_tick_that_was_asked_for_is_looked_up_at_once(
    duty: EngineConnection,
) -> None:
    errand = Errand("statement_timestamp()")
    rota = started(duty, errand)
    assert errand.ticks == 1

    errand.next_at = "clock_timestamp() + interval '100 s'"
    rota.turn(duty, until=NEVER)

    assert errand.ticks == 2
    assert 90 < rota.timers[0].due_at - time.monotonic() < 110


def test_no_duty_ticks_before_its_interval_is_over(duty: EngineConnection) -> None:
    errand = Errand("clock_timestamp() - interval '1 day'", has_more=True)
    errand.interval = timedelta(seconds=100)
    rota = started(duty, errand)

    [seconds] = look(rota, duty)

    assert 90 < seconds < 120
    assert errand.ticks == 1


def test_a_duty_that_left_something_goes_on_after_its_interval(
    duty: EngineConnection,
) -> None:
    errand = Errand("NULL::timestamptz", has_more=True)
    rota = started(duty, errand)
    assert rota.due_at <= time.monotonic()

    rota.turn(duty, until=NEVER)

    assert errand.ticks == 2


def test_duties_stop_for_a_renewal_that_is_due(duty: EngineConnection) -> None:
    errand = Errand("statement_timestamp()")
    rota = Rota([errand])

    rota.turn(duty, until=time.monotonic())

    assert errand.ticks == 0


def test_where_the_look_fails_each_duty_looks_for_itself(
    duty: EngineConnection, caplog: pytest.LogCaptureFixture
) -> None:
    errand = Errand("nonsense")
    rota = Rota([errand])
    for _ in range(15):
        rota._look_at = 0.0
        rota.turn(duty, until=NEVER)

    assert errand.ticks >= 14
    assert not duty.closed
    assert "duty failed" in caplog.text
    assert 50 < rota._look_at - time.monotonic() < 70


def test_a_look_that_meets_an_outage_is_the_keepers_trouble(
    duty: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(connection: EngineConnection, duties: Sequence[Duty]) -> tuple[()]:
        raise psycopg.errors.AdminShutdown("shutdown")

    monkeypatch.setattr(rota_module, "upcoming", fail)

    with pytest.raises(psycopg.errors.AdminShutdown):
        started(duty, Errand("NULL::timestamptz"))


# --- what each duty asks --------------------------------------------------------------


def seconds_of(connection: EngineConnection, one: Duty) -> float | None:
    [seconds] = upcoming(connection, [one])
    return seconds


@pytest.mark.parametrize("state", ["scheduled", "retrying"])
def test_promotion_is_asked_for_when_the_first_job_is_due(
    duty: EngineConnection, state: str
) -> None:
    assert seconds_of(duty, Promote()) is None
    add_jobs(duty, 3, state=state)
    in_seconds(duty, "run_at", 100)

    assert 90 < (seconds_of(duty, Promote()) or 0) < 101


def test_a_due_job_is_promoted_by_the_turn_after_the_look(
    duty: EngineConnection,
) -> None:
    rota = started(duty, Promote())
    add_jobs(duty, state="scheduled")
    in_seconds(duty, "run_at", -1)
    rota.timers[0].not_before = 0.0

    look(rota, duty)
    rota.turn(duty, until=NEVER)

    assert states(duty) == {"queued": 1}


def test_expiry_is_asked_for_by_jobs_that_wait_and_by_no_others(
    duty: EngineConnection,
) -> None:
    add_jobs(duty, state="running", worker_id=add_worker(duty))
    add_jobs(duty, state="completed")
    in_seconds(duty, "deadline_at", -5)
    assert seconds_of(duty, Expire()) is None

    add_jobs(duty, state="queued")
    in_seconds(duty, "deadline_at", -5)

    assert -100 < (seconds_of(duty, Expire()) or 0) < -4


def test_the_reaper_is_asked_for_when_the_first_lease_ends(
    duty: EngineConnection,
) -> None:
    for state in ("lost", "stopped"):
        add_worker(duty, state=state)
    reap = Reap(lambda: True)
    assert seconds_of(duty, reap) is None
    add_worker(duty)
    duty.execute(
        "UPDATE relay_worker "
        "SET lease_expires_at = clock_timestamp() + interval '100 s'"
    )

    assert 90 < (seconds_of(duty, reap) or 0) < 101


def test_pruning_is_asked_for_by_finished_jobs_whose_time_is_over(
    duty: EngineConnection,
) -> None:
    add_jobs(duty, state="queued")
    in_seconds(duty, "expires_at", -5)
    assert seconds_of(duty, Prune()) is None
    assert seconds_of(duty, PruneRecords()) is None

    add_jobs(duty, state="failed")
    in_seconds(duty, "expires_at", 100)

    assert 90 < (seconds_of(duty, Prune()) or 0) < 101


def test_a_look_holds_no_snapshot(duty: EngineConnection) -> None:
    started(duty, Promote(), Expire(), Reap(lambda: True), Prune())

    with other_session() as other:
        rows = other.execute(
            "SELECT state, backend_xmin FROM pg_stat_activity WHERE pid = %s",
            (duty.info.backend_pid,),
        ).fetchall()

    assert rows == [("idle", None)]

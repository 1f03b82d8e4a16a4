"""What duties do and tell, and how much of the time they take."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from relay.engine import prune
from relay.engine.connection import EngineConnection
from relay.worker import duties
from relay.worker.duties import Prune, Reap, prune_share
from tests.engine.rows import add_jobs, add_worker, hold, other_session, states

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])


def old(duty: EngineConnection, count: int) -> None:
    add_jobs(duty, count, state="completed", expires_at="2026-01-01")


def test_a_backlog_is_pruned_tick_by_tick_with_pauses_between(
    duty: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "PRUNE_BUDGET_SECONDS", 0.0)
    monkeypatch.setattr(prune, "PRUNE_BATCH", 10)
    monkeypatch.setattr(prune.Pruner.prune, "__kwdefaults__", {"limit": 10})
    old(duty, 25)
    one = Prune()

    left = []
    for _ in range(3):
        left.append((one.tick(duty), sum(states(duty).values())))
        assert one.interval > timedelta(0)

    assert left == [(True, 15), (True, 5), (False, 0)]
    assert one.interval == duties.PRUNE_INTERVAL


def test_the_next_look_for_pruning_starts_where_the_last_tick_ended(
    duty: EngineConnection,
) -> None:
    one = Prune()
    before = one.next_at
    old(duty, 1)

    one.tick(duty)

    assert one.next_at != before


def test_pruning_takes_more_of_the_time_the_later_it_is() -> None:
    shares = [prune_share(seconds) for seconds in (-5, 0, 15, 30, 60, 10_000)]

    assert shares == pytest.approx([0.2, 0.2, 0.35, 0.5, 0.8, 0.8])


def test_only_who_takes_jobs_back_says_so(
    duty: EngineConnection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="relay.worker")
    hold(duty, add_worker(duty, state="lost"), 2)
    one = Reap(lambda: True)
    with other_session(autocommit=False) as faster:
        faster.execute("SELECT FROM relay_job FOR NO KEY UPDATE")

        one.tick(duty)

        assert caplog.records == []
        faster.rollback()
    one.tick(duty)

    [record] = caplog.records
    assert (record.__dict__["event"], record.__dict__["jobs"]) == ("worker.reaped", 2)

"""The deploy campaign sees locks that stand in the way of jobs, and no others."""

from __future__ import annotations

import threading

import psycopg
from django.db import connection

from tests.chaos.lockwatch import LockWatch, Obstacle
from tests.waiting import until


def _session() -> psycopg.Connection[tuple[object, ...]]:
    parameters = connection.get_connection_params()
    parameters.pop("cursor_factory", None)
    parameters.pop("context", None)
    return psycopg.connect(**parameters, application_name="lock watch test")


def _of_this_test(watch: LockWatch) -> dict[str, Obstacle]:
    return {
        each.kind: each
        for each in watch.obstacles()
        if each.session == "lock watch test" and each.table == "relay_job"
    }


def test_a_lock_that_keeps_writers_out_is_seen_and_so_is_who_waits_for_it(
    transactional_db: None,
) -> None:
    with _session() as holder, _session() as other, LockWatch(_session()) as watch:
        holder.execute("LOCK TABLE relay_job IN SHARE MODE")
        waiting = threading.Thread(
            target=other.execute, args=("LOCK TABLE relay_job IN ROW EXCLUSIVE MODE",)
        )
        waiting.start()

        until(lambda: _of_this_test(watch).keys() == {"held", "waited for"})
        first = _of_this_test(watch)
        until(lambda: _of_this_test(watch)["held"].seconds > first["held"].seconds)
        until(
            lambda: (
                _of_this_test(watch)["waited for"].seconds > first["waited for"].seconds
            )
        )
        holder.rollback()
        waiting.join()

    assert first["held"].mode == "ShareLock"
    assert first["waited for"].mode == "RowExclusiveLock"


def test_locks_that_stand_in_nobodys_way_are_not_reported(
    transactional_db: None,
) -> None:
    with _session() as holder, LockWatch(_session()) as watch:
        holder.execute("LOCK TABLE relay_job IN SHARE UPDATE EXCLUSIVE MODE")
        samples = watch.samples
        until(lambda: watch.samples > samples + 2)
        holder.rollback()

    assert _of_this_test(watch) == {}

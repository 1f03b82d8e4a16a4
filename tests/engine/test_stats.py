"""Statistics by the minute and the hour: added to, read and pruned."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from relay.buckets import STAT_BOUNDS
from relay.engine.connection import EngineConnection, connect
from relay.engine.stats import NewStat, add_stats, prune_stats
from relay.exceptions import ArgumentError
from relay.stats import read_series, read_totals

pytestmark = pytest.mark.django_db(transaction=True)

ZEROS = [0] * (len(STAT_BOUNDS) + 1)


@pytest.fixture
def session(transactional_db: None) -> Iterator[EngineConnection]:
    with connect("default", role="duty", name="tests") as made:
        yield made


def new(
    *, queue: str = "q", task: str = "t", outcome: str = "completed", count: int = 1
) -> NewStat:
    buckets = [count, *ZEROS[1:]]
    return NewStat(
        queue,
        task,
        outcome,
        jobs=count,
        run_s=0.0005 * count,
        wait_s=0.0002 * count,
        run=buckets,
        wait=buckets,
    )


def minute_now(session: psycopg.Connection[Any]) -> datetime:
    row = session.execute("SELECT date_trunc('minute', now())").fetchone()
    assert row is not None
    return row[0].astimezone(UTC)


def shift(session: psycopg.Connection[Any], by: timedelta) -> None:
    """Let what there is have happened so much earlier."""
    session.execute("UPDATE relay_stat SET at = at - %s", (by,))


def test_the_same_minute_is_added_to_and_the_hour_with_it(
    session: EngineConnection,
) -> None:
    add_stats(session, [new(count=2), new(outcome="failed")])
    add_stats(session, [new(count=3)])

    found = session.execute(
        "SELECT seconds, outcome, sum(count)::int, sum(run_buckets[1])::int, "
        "count(*) FROM relay_stat GROUP BY 1, 2 ORDER BY 1, 2"
    ).fetchall()
    # A minute may have passed between the two.
    assert [row[:4] for row in found] == [
        (60, "completed", 5, 5),
        (60, "failed", 1, 1),
        (3600, "completed", 5, 5),
        (3600, "failed", 1, 1),
    ]
    assert all(row[4] <= 2 for row in found)


def test_workers_that_add_at_once_wait_for_one_another_and_lose_nothing(
    session: EngineConnection,
) -> None:
    rows = [new(task=f"t{number}") for number in range(20)]
    failures: list[Exception] = []

    def add(given: list[NewStat]) -> None:
        try:
            with connect("default", role="duty", name="tests") as own:
                for _ in range(20):
                    add_stats(own, given)
        except Exception as error:
            failures.append(error)

    threads = [
        threading.Thread(target=add, args=(given,)) for given in (rows, rows[::-1])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failures
    row = session.execute(
        "SELECT sum(count)::int FROM relay_stat WHERE seconds = 60"
    ).fetchone()
    assert row == (800,)


def test_a_series_has_one_entry_a_step_also_where_nothing_was(
    session: EngineConnection,
) -> None:
    add_stats(session, [new(count=4), new(task="other", outcome="retried")])
    shift(session, timedelta(minutes=2))
    now = minute_now(session)
    since = now - timedelta(minutes=10)

    all_of_it = read_series(using="default", since=since, until=now)
    of_one = read_series(
        using="default", since=since, until=now, queue="q", task="other"
    )
    together = read_series(
        using="default", since=since, until=now, step=timedelta(minutes=5)
    )

    assert [each.at for each in all_of_it] == [
        since + timedelta(minutes=number) for number in range(10)
    ]
    [busy] = [each for each in all_of_it if each.counts]
    assert busy.counts == {"completed": 4, "retried": 1}
    assert busy.finished == 4
    assert busy.run.mean == pytest.approx(0.0005)
    assert 0 < (busy.wait.quantile(0.95) or 0) <= 0.001
    assert [each.counts for each in of_one if each.counts] == [{"retried": 1}]
    assert [bool(each.counts) for each in together] == [False, True]


def test_hours_are_read_for_a_step_of_hours(session: EngineConnection) -> None:
    add_stats(session, [new(count=2)])
    session.execute("DELETE FROM relay_stat WHERE seconds = 60")
    hour = minute_now(session).replace(minute=0)

    [found] = read_series(
        using="default",
        since=hour - timedelta(hours=1),
        until=hour + timedelta(hours=2),
        step=timedelta(hours=3),
    )

    assert found.counts == {"completed": 2}


def test_totals_are_by_queue_and_task(session: EngineConnection) -> None:
    add_stats(session, [new(count=2), new(outcome="failed"), new(queue="r", task="u")])
    now = minute_now(session)

    found = read_totals(
        using="default",
        since=now - timedelta(minutes=5),
        until=now + timedelta(minutes=5),
    )

    assert [(each.queue, each.task, each.counts) for each in found] == [
        ("q", "t", {"completed": 2, "failed": 1}),
        ("r", "u", {"completed": 1}),
    ]


@pytest.mark.parametrize(
    ("step", "hours"), [(timedelta(seconds=30), 1), (timedelta(minutes=1), 100)]
)
def test_a_series_that_cannot_be_read_is_refused(step: timedelta, hours: int) -> None:
    until = datetime(2026, 1, 1, tzinfo=UTC)

    with pytest.raises(ArgumentError, match="step"):
        read_series(
            using="default",
            since=until - timedelta(hours=hours),
            until=until,
            step=step,
        )


def test_old_minutes_go_before_old_hours(session: EngineConnection) -> None:
    add_stats(session, [new()])
    shift(session, timedelta(hours=73, minutes=1))

    assert prune_stats(session) == 1
    left = session.execute("SELECT seconds FROM relay_stat").fetchall()
    shift(session, timedelta(days=90))
    assert prune_stats(session) == 1

    assert left == [(3600,)]
    assert session.execute("SELECT FROM relay_stat").fetchall() == []

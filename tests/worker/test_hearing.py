"""Wake-ups heard over the connection with which a child claims."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from unittest.mock import Mock

import psycopg
import pytest
from django.test import override_settings

from relay.conf import OWN_QUEUE
from relay.engine.claim import START, ClaimedJob, Marks
from relay.engine.connection import EngineConnection, connect
from relay.engine.wakeup import NOTIFY, payload
from relay.ids import uuid7
from relay.worker.hearing import Hearing
from relay.worker.pace import Sweeps
from tests.waiting import WAIT_SECONDS

# No other test's: the thread that sends may still owe a wake-up of theirs.
QUEUE = "heard"


@pytest.fixture
def hot(transactional_db: None) -> Iterator[EngineConnection]:
    made = connect("default", role="hot", name="worker")
    yield made
    made.close()


@pytest.fixture
def hearing(hot: EngineConnection) -> Hearing:
    made = Hearing([QUEUE])
    made.listen(hot)
    return made


def claimed_up_to(ready_seq: int) -> Marks:
    marks = Marks()
    marks.spans([QUEUE])
    job = ClaimedJob(uuid7(), "t", QUEUE, 0, ready_seq, 1, {}, 0, 0, 0)
    marks.note([job], limit=2)
    return marks


def begins(marks: Marks) -> list[int]:
    return [span.mark for span in marks.spans([QUEUE]) if span.mark != START]


def wake(duty: EngineConnection, queue: str, ready_seq: int) -> None:
    duty.execute(NOTIFY, {"payload": payload(queue, 0, ready_seq)})


def read_until(hearing: Hearing, is_there: Callable[[], bool]) -> None:
    while not is_there():
        [connection] = hearing.readers
        assert select.select([connection], [], [], WAIT_SECONDS)[0]
        hearing.read()


def read_news(hearing: Hearing) -> None:
    read_until(hearing, lambda: hearing.has_news)


def never() -> bool:
    return False


def test_a_wake_up_ends_the_wait_and_lowers_the_mark(
    hearing: Hearing, duty: EngineConnection
) -> None:
    marks = claimed_up_to(100)
    assert begins(marks) == [100]

    wake(duty, QUEUE, 50)
    read_news(hearing)

    assert hearing.has_news
    assert hearing.take(marks, Sweeps())
    assert begins(marks) == [49]
    assert not hearing.take(marks, Sweeps())


def test_what_arrives_during_an_exchange_is_kept_for_after_it(
    hearing: Hearing, hot: EngineConnection, duty: EngineConnection
) -> None:
    marks = claimed_up_to(100)

    wake(duty, QUEUE, 50)
    hot.execute("SELECT 1")

    assert begins(marks) == [100]
    assert hearing.take(marks, Sweeps())
    assert begins(marks) == [49]


@pytest.mark.parametrize("text", ["mail 0 1", QUEUE, f"{QUEUE} 0 x", "é", ""])
def test_what_is_no_wake_up_of_a_queue_served_here_is_passed_over(
    hearing: Hearing, duty: EngineConnection, text: str
) -> None:
    duty.execute(NOTIFY, {"payload": text})
    wake(duty, QUEUE, 1)
    read_news(hearing)

    marks = Mock(Marks)
    assert hearing.take(marks, Sweeps())
    marks.hint.assert_called_once_with(QUEUE, 0, 1)


def test_a_job_of_relays_own_is_looked_for_at_once_whatever_is_served(
    hearing: Hearing, duty: EngineConnection
) -> None:
    sweeps = Sweeps()
    sweeps.note(0.0, 1e9)
    assert not sweeps.are_due(1.0)

    wake(duty, OWN_QUEUE, 50)
    read_news(hearing)

    assert hearing.take(Marks(), sweeps)
    assert sweeps.are_due(1.0)


def test_a_connection_that_is_closed_is_not_waited_for(
    hearing: Hearing, hot: EngineConnection
) -> None:
    hot.close()

    assert hearing.readers == []
    with pytest.raises(psycopg.OperationalError):
        hearing.read()


def test_a_session_that_the_server_ended_says_so(
    hearing: Hearing, hot: EngineConnection, duty: EngineConnection
) -> None:
    duty.execute("SELECT pg_terminate_backend(%s, 60000)", [hot.info.backend_pid])

    with pytest.raises(psycopg.OperationalError):
        read_until(hearing, never)


def test_a_new_connection_is_listened_to_in_place_of_the_one_before(
    hearing: Hearing, hot: EngineConnection, duty: EngineConnection
) -> None:
    hot.close()
    with connect("default", role="hot", name="worker") as again:
        hearing.listen(again)

        wake(duty, QUEUE, 1)
        read_news(hearing)

    assert hearing.has_news


@pytest.mark.parametrize("name", ["NOTIFY", "TRANSACTION_POOLER"])
def test_nobody_listens_where_nothing_is_sent_or_no_session_lasts(
    transactional_db: None, name: str
) -> None:
    with (
        override_settings(RELAY={name: name == "TRANSACTION_POOLER"}),
        connect("default", role="hot", name="worker") as made,
    ):
        hearing = Hearing([QUEUE])
        hearing.listen(made)

        assert hearing.readers == []
        hearing.read()
        assert not hearing.has_news

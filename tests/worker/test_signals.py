"""Signals about jobs: when they are sent, to whom, and what a receiver cannot do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.dispatch import Signal
from django.test import override_settings

from relay import (
    Cancel,
    Retry,
    Snooze,
    Unique,
    current_job,
    enqueue,
    enqueue_many,
    signals,
    task,
)
from relay.conf import LONGEST
from relay.engine.connection import EngineConnection
from relay.engine.finish import Completed, Settled, Written
from relay.models import Job
from relay.testing import drain
from relay.worker import announcing
from tests.engine import rows
from tests.waiting import until
from tests.worker.test_loop import Child

pytestmark = pytest.mark.django_db

ALL = {name: getattr(signals, name) for name in signals.__all__}
body: Callable[[], Any] = lambda: None  # noqa: E731 - replaced by each test


@task(name="tests.signals.plain", max_retries=1)
def plain() -> Any:
    return body()


@task(name="tests.signals.coroutine", max_retries=1)
async def coroutine() -> Any:
    await asyncio.sleep(0)
    return body()


@task(name="tests.signals.whole", transactional=True)
def whole() -> None: ...


class Heard:
    """What was sent, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, dict[str, Any]]] = []

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.calls]

    def receiver(self, name: str) -> Callable[..., None]:
        def receive(sender: Any, signal: Signal, **values: Any) -> None:
            self.calls.append((name, sender, values))

        return receive


@pytest.fixture
def heard() -> Iterator[Heard]:
    made = Heard()
    receivers = {name: made.receiver(name) for name in ALL}
    for name, receiver in receivers.items():
        ALL[name].connect(receiver)
    yield made
    for name, receiver in receivers.items():
        ALL[name].disconnect(receiver)


def say(monkeypatch: pytest.MonkeyPatch, said: Any) -> None:
    def handler() -> Any:
        if isinstance(said, BaseException):
            raise said
        return said

    monkeypatch.setitem(globals(), "body", handler)


kinds = pytest.mark.parametrize("made", [plain, coroutine])


@kinds
def test_a_job_that_completes(
    made: Any, heard: Heard, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        job = made.enqueue()
    drain()

    assert heard.names == ["job_enqueued", "job_started", "job_completed"]
    assert {sender for _, sender, _ in heard.calls} == {made}
    assert all(values["job"] == job for _, _, values in heard.calls)
    assert all(values["queue"] == "default" for _, _, values in heard.calls)
    started, completed = (values for _, _, values in heard.calls[1:])
    assert started["attempt"] == completed["attempt"] == 1
    assert completed["seconds"] >= 0


@kinds
def test_a_job_that_is_retried_and_fails(
    made: Any, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(monkeypatch, ValueError("no good"))
    made.enqueue()

    drain(with_retries=True)

    assert heard.names == ["job_started", "job_retrying", "job_started", "job_failed"]
    retrying, failed = heard.calls[1][2], heard.calls[3][2]
    assert (retrying["error_class"], retrying["error_message"]) == (
        "ValueError",
        "no good",
    )
    assert retrying["delay"] >= timedelta(0)
    assert (failed["error_class"], failed["attempt"]) == ("ValueError", 2)


@pytest.mark.parametrize(
    ("said", "last"),
    [
        (Cancel("enough"), ["job_cancelled"]),
        (Retry(after=timedelta(hours=1)), ["job_retrying"]),
        (Snooze(timedelta(hours=1)), []),
    ],
    ids=["cancel", "retry", "snooze"],
)
def test_what_a_handler_asks_for(
    said: Any, last: list[str], heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(monkeypatch, said)
    plain.enqueue()

    drain()

    assert heard.names == ["job_started", *last]


def test_a_transactional_job_completes(heard: Heard) -> None:
    whole.enqueue()

    drain()

    assert heard.names == ["job_started", "job_completed"]


def test_a_name_that_is_not_known_here_has_no_sender(
    heard: Heard, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        enqueue("tests.signals.nowhere")

    [(name, sender, values)] = heard.calls
    assert (name, sender) == ("job_enqueued", None)
    assert values["job"].task == "tests.signals.nowhere"


def test_duplicates_are_not_enqueued_again(
    heard: Heard, django_capture_on_commit_callbacks: Any
) -> None:
    keyed = plain.using(unique=Unique())
    with django_capture_on_commit_callbacks(execute=True):
        keyed.enqueue()
        keyed.enqueue()
        enqueue_many([keyed.job(), plain.job()])

    assert heard.names == ["job_enqueued"] * 2


@pytest.mark.django_db(transaction=True)
def test_what_is_rolled_back_was_not_enqueued(heard: Heard) -> None:
    with suppress(ZeroDivisionError), transaction.atomic():
        plain.enqueue()
        enqueue_many([plain.job()])
        assert heard.calls == []
        raise ZeroDivisionError

    assert heard.calls == []


@pytest.mark.django_db(transaction=True)
def test_what_is_enqueued_outside_is_told_at_once(heard: Heard) -> None:
    with transaction.atomic():
        plain.using(outside_transaction=True).enqueue()
        assert heard.names == ["job_enqueued"]


@kinds
def test_job_started_is_sent_where_the_handler_runs(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def receive(job: Any, **_: Any) -> None:
        seen.append((current_job().id, job.id))

    say(monkeypatch, None)
    signals.job_started.connect(receive)
    try:
        job = made.enqueue()
        drain()
    finally:
        signals.job_started.disconnect(receive)

    assert seen == [(job.id, job.id)]


def test_a_coroutine_may_receive(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def receive(signal: Signal, **_: Any) -> None:
        await asyncio.sleep(0)
        seen.append(next(name for name, one in ALL.items() if one is signal))

    say(monkeypatch, None)
    signals.job_started.connect(receive)
    signals.job_completed.connect(receive)
    try:
        coroutine.enqueue()
        plain.enqueue()
        drain()
    finally:
        signals.job_started.disconnect(receive)
        signals.job_completed.disconnect(receive)

    assert seen == ["job_started", "job_completed"] * 2


@pytest.mark.parametrize(
    ("made", "error"),
    [(plain, ValueError("no")), (coroutine, ValueError("no")), (plain, SystemExit(1))],
    ids=["plain", "coroutine", "exit"],
)
def test_a_receiver_that_raises_changes_no_job(
    made: Any,
    error: BaseException,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def receive(**_: Any) -> None:
        raise error

    say(monkeypatch, None)
    heard_by = (signals.job_started, signals.job_completed)
    for signal in heard_by:
        signal.connect(receive)
    try:
        job = made.enqueue()
        drain()
    finally:
        for signal in heard_by:
            signal.disconnect(receive)

    assert job.state == "completed"
    by = "django.dispatch" if isinstance(error, Exception) else "relay.worker"
    logged = [one for one in caplog.records if one.levelname == "ERROR"]
    assert [one.name for one in logged] == [by] * 2
    assert all(one.exc_info for one in logged)


# --- the child's own thread ----------------------------------------------------------


@pytest.fixture
def child(duty: EngineConnection, monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    with override_settings(RELAY={"POLL_INTERVAL": timedelta(milliseconds=20)}):
        made = Child(duty, monkeypatch)
        yield made
        announcer = made.loop._hands.announcer
        announcer.close()
        if announcer._thread is not None:
            announcer._thread.join(60)
        made.close()


def run(child: Child, duty: EngineConnection, count: int) -> None:
    rows.add_jobs(duty, count, task=plain.name)
    for job in child.claim(count):
        child.end(job, Completed(job.id, job.attempt, "1", 60.0))


def test_a_loop_announces_what_it_has_written(
    child: Child, duty: EngineConnection, heard: Heard
) -> None:
    run(child, duty, 3)

    child.step_until(lambda: len(heard.calls) == 3)

    assert heard.names == ["job_completed"] * 3
    assert Job.objects.filter(state="completed").count() == 3


def test_a_job_that_was_lost_is_not_announced(
    child: Child, duty: EngineConnection, heard: Heard
) -> None:
    rows.add_jobs(duty, 2, task=plain.name)
    lost, kept = child.claim(2)
    duty.execute("UPDATE relay_job SET attempt = 9 WHERE id = %s", (lost.id,))
    for job in (lost, kept):
        child.end(job, Completed(job.id, job.attempt, "1", 60.0))

    child.step_until(lambda: child.loop._hands.settled == 2)
    until(lambda: not child.loop._hands.announcer.is_busy)

    assert [values["job"].id for _, _, values in heard.calls] == [kept.id]


def test_a_receiver_that_waits_holds_up_no_finish_but_the_claims_behind_it(
    child: Child,
    duty: EngineConnection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(announcing, "BACKLOG", 2)
    may_go_on, told = threading.Event(), threading.Semaphore(0)

    def receive(**_: Any) -> None:
        assert may_go_on.wait(60)
        told.release()

    signals.job_completed.connect(receive)
    try:
        run(child, duty, 2)
        child.step_until(lambda: child.loop._hands.settled == 2)
        assert child.loop._room() == 0
        [record] = [r for r in caplog.records if r.levelname == "WARNING"]
        assert record.__dict__["event"] == "worker.receivers_behind"
        assert record.__dict__["untold"] == 2
        child.loop.drain()
        assert not child.loop._is_done()

        may_go_on.set()

        child.step_until(child.loop._is_done)
        assert all(told.acquire(timeout=60) for _ in range(2))
    finally:
        may_go_on.set()
        signals.job_completed.disconnect(receive)


def test_a_receivers_connection_is_cleaned_and_it_may_break_off(
    child: Child, duty: EngineConnection
) -> None:
    states: list[bool] = []

    def receive(**_: Any) -> None:
        states.append(connection.in_atomic_block)
        transaction.atomic().__enter__()
        if len(states) == 1:
            raise SystemExit(1)

    signals.job_completed.connect(receive)
    try:
        run(child, duty, 3)
        child.step_until(lambda: len(states) == 3)
        until(lambda: not child.loop._hands.announcer.is_busy)
    finally:
        signals.job_completed.disconnect(receive)

    assert states == [False] * 3


def test_nothing_is_gathered_while_nobody_listens(
    child: Child, duty: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("gathered")

    monkeypatch.setattr(announcing, "news_of", fail)
    run(child, duty, 3)

    child.step_until(lambda: child.loop._hands.settled == 3)

    assert child.loop._hands.announcer._thread is None


def test_what_became_of_a_job_decides_which_signal_is_sent(heard: Heard) -> None:
    [job_id] = [plain.enqueue().id]
    job = rows_claimed(job_id)
    retry = Settled(id=job_id, attempt=1, verb="retry", error_class="E")
    cases: list[tuple[Any, str | None, list[Signal]]] = [
        (retry, "retrying", [signals.job_retrying]),
        (retry, "failed", [signals.job_failed]),
        (retry, "cancelled", [signals.job_cancelled]),
        (retry, None, []),
        (Settled(id=job_id, attempt=1, verb="snooze"), "retrying", []),
        (
            Settled(id=job_id, attempt=1, verb="hand_back"),
            "failed",
            [signals.job_failed],
        ),
        (Settled(id=job_id, attempt=1, verb="release"), "queued", []),
        (Settled(id=job_id, attempt=1, verb="crash"), "failed", [signals.job_failed]),
        (Written(job_id, 1, "1"), None, [signals.job_completed]),
        (Written(job_id, 1, None), None, []),
    ]
    for outcome, state, expected in cases:
        states = {} if state is None else {job_id: state}
        found = announcing.news_of([(job, outcome, 0.5)], states)
        assert [news.signal for news in found] == expected, (outcome, state)


def test_a_retry_in_the_farthest_future_is_announced_as_its_row_has_it(
    heard: Heard, child: Child, duty: EngineConnection
) -> None:
    rows.add_jobs(duty, 1, task=plain.name)
    [job] = child.claim(1)
    farthest = timedelta.max.total_seconds()
    child.end(job, Settled(id=job.id, attempt=1, verb="retry", delay_seconds=farthest))

    child.step_until(lambda: heard.names == ["job_retrying"])

    assert heard.calls[0][2]["delay"] == LONGEST


def rows_claimed(job_id: Any) -> Any:
    from tests.worker.test_executor import claimed

    return claimed("plain", id=job_id)

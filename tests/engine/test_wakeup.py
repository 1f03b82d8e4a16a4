"""relay.engine.wakeup: what is sent, when, and that nothing of it can fail a caller."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection, connections, transaction
from django.test import override_settings

from relay import enqueue_many
from relay.engine import wakeup
from relay.engine.connection import connect
from relay.models import Job
from testproject.tasks import add

pytestmark = pytest.mark.django_db(transaction=True)


class Listener:
    """A connection that listens as a worker does."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._received: deque[str] = deque()
        connection.execute(f"LISTEN {wakeup.CHANNEL}")

    def next(self, timeout: float = 60) -> tuple[str, int, int] | None:
        """The next wake-up; None if none comes in time."""
        if not self._received:
            # All that arrive together are given, however many stop_after says.
            received = self._connection.notifies(timeout=timeout, stop_after=1)
            self._received.extend(notify.payload for notify in received)
        return wakeup.parse(self._received.popleft()) if self._received else None

    def all_before_a_marker(self) -> list[tuple[str, int, int]]:
        """The wake-ups whose transactions committed before this call."""
        with connection.cursor() as cursor:
            cursor.execute(wakeup.NOTIFY, {"payload": "marker 0 0"})
        found = []
        while (sent := self.next()) != ("marker", 0, 0):
            assert sent is not None
            found.append(sent)
        return found


@pytest.fixture
def listener(sender: wakeup._Sender) -> Iterator[Listener]:
    with connect("default", role="listen", name="test") as made:
        yield Listener(made)


@pytest.fixture(autouse=True)
def sender(monkeypatch: pytest.MonkeyPatch) -> Iterator[wakeup._Sender]:
    if (earlier := wakeup._sender._thread) is not None:
        earlier.join(60)  # what an earlier test enqueued is sent, and heard by nobody
    made = wakeup._Sender()
    monkeypatch.setattr(wakeup, "_sender", made)
    yield made
    if (thread := made._thread) is not None:
        thread.join(60)
        assert not thread.is_alive()


class Window:
    """Stands for the time module: a window goes on until the test ends it."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._is_over = threading.Event()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert self._is_over.wait(60)

    def end(self) -> None:
        self._is_over.set()


@pytest.fixture
def window(sender: wakeup._Sender, monkeypatch: pytest.MonkeyPatch) -> Iterator[Window]:
    made = Window()
    monkeypatch.setattr(wakeup, "time", made)
    yield made
    made.end()


@contextmanager
def rolled_back() -> Iterator[None]:
    with suppress(ZeroDivisionError), transaction.atomic():
        yield
        raise ZeroDivisionError


def ready_seq(job_id: Any) -> int:
    return Job.objects.values_list("ready_seq", flat=True).get(pk=job_id)


# --- the text ------------------------------------------------------------------------


def test_a_payload_is_read_back() -> None:
    text = wakeup.payload("q" * 100, -100, 2**63 - 1)

    assert len(text.encode()) < 200
    assert wakeup.parse(text) == ("q" * 100, -100, 2**63 - 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "default",
        "default 0",
        "default 0 x",
        "a b 0 1",
        "default 0 1\n",
        "é 0 1",
        "default \u0663 1",
        "/ 0 1",
        "default 0 " + "9" * 30,
    ],
)
def test_a_text_that_is_no_wake_up_is_none(text: str) -> None:
    assert wakeup.parse(text) is None


def test_wake_ups_merge_to_the_lowest_place_of_each_queue_and_priority() -> None:
    merged = wakeup.lowest([("a", 0, 7), ("a", 0, 5), ("a", 1, 9), ("b", 0, 6)])

    assert merged == [("a", 0, 5), ("a", 1, 9), ("b", 0, 6)]


# --- when ----------------------------------------------------------------------------


def test_a_commit_wakes_workers_with_queue_priority_and_place(
    listener: Listener,
) -> None:
    handle = add.using(queue="mail", priority=7).enqueue(1, 2)

    assert listener.next() == ("mail", 7, ready_seq(handle.id))


def test_failure_046_a_rollback_sends_nothing(listener: Listener) -> None:
    with rolled_back():
        add.enqueue(1, 2)
        enqueue_many([add.job(1, 2)])

    assert listener.all_before_a_marker() == []


def test_failure_092_a_savepoint_rolled_back_announces_only_the_outer_job(
    listener: Listener,
) -> None:
    with transaction.atomic():
        with rolled_back():
            add.using(queue="inner").enqueue(1, 2)
        add.using(queue="outer").enqueue(1, 2)

    sent = listener.all_before_a_marker()
    assert [queue for queue, _, _ in sent] == ["outer"]


def test_failure_133_nothing_is_sent_inside_the_transaction(listener: Listener) -> None:
    with transaction.atomic():
        add.enqueue(1, 2)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notification_queue_usage(), txid_current()")
        registered = len(connection.run_on_commit)
        with connect("default", role="duty", name="test") as other:
            other.execute(wakeup.NOTIFY, {"payload": "marker 0 0"})
        before = listener.next()

    assert registered == 1
    assert before == ("marker", 0, 0)


def test_a_job_due_later_or_there_already_is_not_announced(listener: Listener) -> None:
    first = add.enqueue(1, 2)
    assert listener.next() is not None

    add.using(run_in=timedelta(hours=1), queue="later").enqueue(1, 2)
    enqueue_many([add.using(run_in=timedelta(hours=1), queue="later").job(1, 2)])
    add.using(id=first.id, queue="again").enqueue(1, 2)

    assert listener.all_before_a_marker() == []


@override_settings(RELAY={"NOTIFY": False})
def test_failure_133_notify_can_be_turned_off(
    listener: Listener, sender: wakeup._Sender
) -> None:
    add.enqueue(1, 2)
    enqueue_many([add.job(1, 2)])
    with connect("default", role="duty", name="test") as other:
        wakeup.notify_with(other, [("default", 0, 1)])

    assert listener.all_before_a_marker() == []
    assert sender._thread is None


def test_a_transaction_managed_by_hand_is_left_to_polling(listener: Listener) -> None:
    transaction.set_autocommit(False)
    try:
        add.enqueue(1, 2)
        transaction.commit()
    finally:
        transaction.set_autocommit(True)

    assert listener.all_before_a_marker() == []
    assert Job.objects.count() == 1


# --- how often -----------------------------------------------------------------------


def test_a_burst_sends_one_at_once_and_one_more_for_the_rest(
    listener: Listener, window: Window
) -> None:
    handles = [add.enqueue(i, i) for i in range(20)]

    first = listener.next()
    window.end()
    rest = listener.next()

    assert first == ("default", 0, ready_seq(handles[0].id))
    assert rest == ("default", 0, ready_seq(handles[1].id))


def test_one_commit_of_many_jobs_sends_two_at_most(
    listener: Listener, window: Window
) -> None:
    with transaction.atomic():
        for number in range(50):
            add.enqueue(number, number)

    assert listener.next() is not None
    window.end()
    assert listener.next() is not None
    assert listener.all_before_a_marker() == []


@pytest.mark.usefixtures("window")
def test_queues_do_not_wait_for_one_another(
    listener: Listener, sender: wakeup._Sender
) -> None:
    add.using(queue="a").enqueue(1, 2)
    add.using(queue="b").enqueue(1, 2)

    assert sender._thread is None
    sent = listener.all_before_a_marker()
    assert [queue for queue, _, _ in sent] == ["a", "b"]


def test_the_rest_keeps_the_lowest_place_of_each_priority(
    listener: Listener, sender: wakeup._Sender, window: Window
) -> None:
    sender.send("default", "q", 0, 10)
    for priority, place in [(0, 12), (0, 11), (5, 30), (5, 20), (0, 13)]:
        sender.send("default", "q", priority, place)
    window.end()

    sent = {listener.next(), listener.next(), listener.next()}
    assert sent == {("q", 0, 10), ("q", 0, 11), ("q", 5, 20)}


def test_5000_jobs_in_one_call_send_one_wake_up_below_all_of_them(
    listener: Listener,
) -> None:
    enqueue_many([add.job(i, i) for i in range(5_000)])

    (sent,) = listener.all_before_a_marker()
    lowest = Job.objects.order_by("ready_seq").values_list("ready_seq", flat=True)[0]
    assert sent == ("default", 0, lowest - 1)


def test_the_connection_of_a_burst_is_closed_once_idle(
    listener: Listener, sender: wakeup._Sender, window: Window
) -> None:
    sender.send("default", "q", 0, 1)
    sender.send("default", "q", 0, 2)
    thread = sender._thread
    assert thread is not None
    window.end()

    thread.join(60)

    assert sender._thread is None
    assert sender._connections == {}
    assert listener.next() is not None
    assert listener.next() is not None

    # A later burst makes both anew.
    window.now += 1
    sender.send("default", "q", 0, 3)
    sender.send("default", "q", 0, 4)
    assert listener.next() == ("q", 0, 3)
    assert listener.next() == ("q", 0, 4)


def test_remembered_queues_are_bounded(
    sender: wakeup._Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "_REMEMBERED", 5)
    monkeypatch.setattr(wakeup, "WINDOW_SECONDS", 0.0)

    for number in range(50):
        sender.send("default", f"q{number}", 0, 1)

    assert len(sender._sent_at) <= 5


# --- what goes wrong -----------------------------------------------------------------


def fail_to_connect(*_: object, **__: object) -> psycopg.Connection[Any]:
    raise psycopg.OperationalError("no server")


@pytest.mark.usefixtures("window")
def test_a_failing_thread_is_logged_once_a_minute_and_fails_nobody(
    sender: wakeup._Sender,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(wakeup, "connect", fail_to_connect)

    with caplog.at_level(logging.WARNING, logger="relay.engine"):
        for place in range(2):
            add.enqueue(place, place)
        sender._flush()
        add.enqueue(3, 3)
        sender._flush()

    assert Job.objects.count() == 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert caplog.records[0].exc_info


def test_a_process_that_can_start_no_thread_leaves_the_rest_to_polling(
    listener: Listener,
    sender: wakeup._Sender,
    window: Window,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        sender.send("default", "q", 0, 1)
        sender.send("default", "q", 0, 2)
    assert sender._thread is None
    sender.send("default", "q", 0, 3)
    window.end()

    assert [listener.next(), listener.next()] == [("q", 0, 1), ("q", 0, 2)]


def test_a_connection_that_breaks_after_the_commit_leaves_it_to_the_thread(
    listener: Listener, sender: wakeup._Sender
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    with connect("default", role="duty", name="test") as other:
        other.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])

    sender.send("default", "q", 0, 1)

    assert listener.next() == ("q", 0, 1)
    connections["default"].close()


def test_a_broken_connection_of_the_thread_is_made_anew(
    listener: Listener, sender: wakeup._Sender, window: Window
) -> None:
    broken = connect("default", role="duty", name="test")
    pid = broken.info.backend_pid
    with connect("default", role="duty", name="test") as other:
        other.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])
    sender._connections["default"] = broken

    sender.send("default", "q", 0, 1)
    sender.send("default", "q", 0, 2)
    window.end()

    assert listener.next() == ("q", 0, 1)
    assert listener.next() == ("q", 0, 2)


def in_child(act: Callable[[], None]) -> int:
    """Run act in a forked child; its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_has_a_sender_of_its_own(
    listener: Listener, sender: wakeup._Sender, window: Window
) -> None:
    sender.send("default", "q", 0, 1)
    sender.send("default", "q", 0, 2)  # the parent's thread waits with this one
    assert listener.next() == ("q", 0, 1)

    def act() -> None:
        child = wakeup._sender
        assert child is not sender
        assert child._pending == {}
        assert child._thread is None
        for held in connections.all(initialized_only=True):
            held.connection = None  # the parent's: not to be used, nor closed
        child.send("default", "child", 0, 3)
        child.send("default", "child", 0, 4)
        thread = child._thread
        assert thread is not None
        window.end()  # here, not in the parent
        thread.join(60)

    status = in_child(act)
    window.end()

    assert status == 0
    sent = {listener.next(), listener.next(), listener.next()}
    assert sent == {("q", 0, 2), ("child", 0, 3), ("child", 0, 4)}
    assert Job.objects.count() == 0  # the parent's connection still works


def test_threads_announce_side_by_side(
    listener: Listener, sender: wakeup._Sender
) -> None:
    barrier = threading.Barrier(4)

    def run(number: int) -> None:
        try:
            barrier.wait(60)
            for place in range(50):
                sender.send("default", "q", 0, 100 * number + place)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    while (last := sender._thread) is not None:
        last.join(60)

    places = [place for _, _, place in listener.all_before_a_marker()]
    assert min(places) == 100

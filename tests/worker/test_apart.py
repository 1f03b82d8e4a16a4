"""An isolated process as its child sees it: what it sends, and that it has ended."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from relay import task
from relay.engine.claim import ClaimedJob
from relay.engine.finish import Completed, Settled
from relay.ids import uuid7
from relay.progress import Progress
from relay.worker import apart
from relay.worker.apart import Apart, Gone
from relay.worker.frames import Answer, pack_answer, pack_progress, unpack
from relay.worker.isolation import IsolatingExecutor
from relay.worker.nursery import CODE
from relay.worker.reports import Reports
from relay.worker.watch import UNWATCHED

PROGRESS = Progress(percent=99.0)
ANSWER = Answer(
    outcome=Completed(uuid7(), 1, "7", None), is_worn=False, log="a line of it"
)
SPAN = f"00-{1:032x}-{2:016x}-01"


@task(name="tests.apart.alone", isolation="process")
def alone() -> None: ...


class Peer:
    """The process's side of it."""

    def __init__(self) -> None:
        near, self.end = socket.socketpair()
        lifeline, self._teller = os.pipe()
        os.write(self._teller, CODE.pack(1))
        self.process = Apart(1, near, lifeline, near)

    def close(self) -> None:
        self.process.close()
        self.end.close()
        os.close(self._teller)


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.close()


def test_an_answer_that_comes_together_with_progress_is_received(peer: Peer) -> None:
    peer.end.sendall(pack_progress(PROGRESS) + pack_answer(ANSWER))

    received = [peer.process.receive(60.0) for _ in range(2)]

    assert [unpack(each) for each in received if each] == [PROGRESS, ANSWER]


def test_a_frame_that_comes_in_parts_is_received_once_it_is_whole(peer: Peer) -> None:
    frame = pack_progress(PROGRESS) + pack_answer(ANSWER)
    peer.end.sendall(frame[:-1])
    first = peer.process.receive(60.0)
    assert first is not None
    assert unpack(first) == PROGRESS
    assert peer.process.receive(0.0) is None

    peer.end.sendall(frame[-1:])

    last = peer.process.receive(60.0)
    assert last is not None
    assert unpack(last) == ANSWER


@pytest.mark.parametrize(
    ("sent", "taken"),
    [(SPAN, SPAN), (None, None), ("\x00", None), (f"{SPAN}\x00", None), (7, None)],
)
def test_what_is_no_span_is_not_taken_for_one(sent: Any, taken: str | None) -> None:
    frame = pack_answer(replace(ANSWER, span=sent))

    answer = unpack(frame[8:])

    assert isinstance(answer, Answer)
    assert answer.span == taken


def test_a_nursery_that_does_not_answer_is_taken_to_be_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(apart, "BIRTH_SECONDS", 0.01)
    near, far = socket.socketpair()
    lifeline, teller = os.pipe()

    with pytest.raises(Gone) as gone:
        Apart(1, near, lifeline, near)

    assert gone.value.code is None
    far.close()
    os.close(teller)


class Ending:
    """A nursery of processes that end at once; or of none, where it has no room."""

    is_broken = False

    def __init__(self, code: int) -> None:
        self.jobs = 0
        self._code = code

    def acquire(self, *_: Any) -> Ending:
        if self._code < 0:
            return self
        raise Gone(-self._code)

    def send(self, frame: bytes, seconds: float) -> bytes:
        return b""

    def receive(self, seconds: float) -> bytes:
        raise Gone(self._code)

    def release(self, *_: Any, is_good: bool) -> None:
        assert not is_good

    def note_end(self, process: Ending, code: int) -> None: ...


@pytest.mark.parametrize(("code", "verb"), [(-9, "crash"), (12, "hand_back")])
def test_a_log_that_raises_does_not_hide_how_a_process_ended(
    code: int, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("a filter of the project's")

    nursery: Any = Ending(code)
    executor = IsolatingExecutor(uuid7(), Reports(), nursery, watch=UNWATCHED)
    job = ClaimedJob(uuid7(), alone.name, "default", 0, 1, 1, {}, 0, 0, 3)
    monkeypatch.setattr(logging.getLogger("relay.worker"), "handle", broken)

    outcome = executor.run(job)

    assert isinstance(outcome, Settled)
    assert outcome.verb == verb

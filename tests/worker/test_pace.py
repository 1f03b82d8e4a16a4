"""How many jobs a child claims ahead, by how long they took lately."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from relay.conf import OWN_QUEUE
from relay.worker.pace import Pace


def ended(queue: str, seconds: float) -> Any:
    return SimpleNamespace(job=SimpleNamespace(queue=queue), seconds=seconds)


def test_a_long_job_of_relays_own_slows_no_other() -> None:
    pace = Pace()
    for _ in range(100):
        pace.measure(ended("mail", 0.001))
    before = pace.buffer(2)

    pace.measure(ended(OWN_QUEUE, 60.0))

    assert pace.buffer(2) == before > 0
    assert not pace.is_slow


def test_a_long_job_of_a_queue_ends_claiming_ahead() -> None:
    pace = Pace()
    for _ in range(100):
        pace.measure(ended("mail", 0.001))

    pace.measure(ended("mail", 60.0))

    assert pace.buffer(2) == 0
    assert pace.is_slow

"""A connection in trouble: tried again for ever, soon, and with few words."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import psycopg
import pytest

from relay.worker import link as link_module
from relay.worker.link import LONGEST_BACKOFF_SECONDS, Link

OUTAGE_SECONDS = 600.0


class Clock:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(link_module, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


def test_b11_an_outage_is_tried_again_for_ever_and_told_once_a_minute(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise psycopg.OperationalError("connection refused")

    monkeypatch.setattr(link_module, "connect", refuse)
    link = Link(role="duty", name="tests", trouble="trouble", event="tests.trouble")
    waits, ends_at = [], clock.now + OUTAGE_SECONDS

    with caplog.at_level(logging.WARNING, "relay.worker"):
        while clock.now < ends_at:
            with pytest.raises(psycopg.OperationalError) as caught:
                link.connected()
            link.lose(caught.value)
            waits.append(link.retry_at - clock.now)
            clock.now = link.retry_at

    # So the first try after its end comes within one wait.
    assert 0 < min(waits) < 0.06
    assert max(waits) <= LONGEST_BACKOFF_SECONDS < 5
    assert sum(waits) >= OUTAGE_SECONDS
    assert 9 <= caplog.text.count("trouble") <= 11


def test_b11_what_went_through_makes_the_next_waits_short_again(clock: Clock) -> None:
    link = Link(role="duty", name="tests", trouble="trouble", event="tests.trouble")
    for _ in range(20):
        link.lose(psycopg.OperationalError("connection refused"))

    link.is_sound()
    link.lose(psycopg.OperationalError("connection refused"))

    assert link.retry_at - clock.now < 0.06

"""What is sent of attempts whose processes died."""

from __future__ import annotations

from datetime import timedelta

from relay.engine.crash import crash_delays
from relay.retry import Backoff


def test_each_crash_below_the_limit_has_its_delay() -> None:
    backoff = Backoff(base=timedelta(seconds=1), factor=2, jitter=False)

    assert crash_delays(backoff, 3) == [
        backoff.delay(crashes).total_seconds() for crashes in range(3)
    ]


def test_a_limit_that_is_meant_as_none_makes_no_document_of_megabytes() -> None:
    assert len(crash_delays(Backoff(), 1_000_000)) <= 1_000

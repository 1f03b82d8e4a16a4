"""The hours of the wall clock, of which no test may see one begin."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from relay.scheduler import duty as duty_module
from tests.waiting import until

# At the end of each half hour, in which no test of schedules begins: those that are
# due once an hour would be due once more than the test says.
MARGIN_SECONDS = 40


@pytest.fixture(autouse=True)
def within_one_half_hour() -> None:
    until(_is_far_from_the_next, seconds=2 * MARGIN_SECONDS)


@pytest.fixture(autouse=True)
def patient_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a tick come to all that is due, however slow the machine."""
    monkeypatch.setattr(duty_module, "BUDGET_SECONDS", 60.0)


def _is_far_from_the_next() -> bool:
    now = datetime.now(UTC)
    return 60 * (now.minute % 30) + now.second < 1_800 - MARGIN_SECONDS

"""The hours of the wall clock, of which no test may see one begin."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.waiting import until

# At the end of each half hour, in which no test of schedules begins: those that are
# due once an hour would be due once more than the test says.
MARGIN_SECONDS = 10


@pytest.fixture(autouse=True)
def within_one_half_hour() -> None:
    until(_is_far_from_the_next)


def _is_far_from_the_next() -> bool:
    now = datetime.now(UTC)
    return 60 * (now.minute % 30) + now.second < 1_800 - MARGIN_SECONDS

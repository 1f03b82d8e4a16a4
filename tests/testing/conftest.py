"""What the tasks of these tests did, forgotten between tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testing import tasks


@pytest.fixture(autouse=True)
def ran() -> Iterator[list[object]]:
    tasks.ran.clear()
    yield tasks.ran
    tasks.ran.clear()

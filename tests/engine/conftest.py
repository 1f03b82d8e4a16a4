"""The engine's own connections, closed before the tables are emptied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from relay.engine.connection import EngineConnection, connect


@pytest.fixture
def hot(transactional_db: None) -> Iterator[EngineConnection]:
    connection = connect("default", role="hot", name="tests")
    yield connection
    connection.close()


@pytest.fixture
def duty(transactional_db: None) -> Iterator[EngineConnection]:
    connection = connect("default", role="duty", name="tests")
    yield connection
    connection.close()


@pytest.fixture
def in_thread() -> Iterator[Callable[[Callable[[], Any]], Future[Any]]]:
    """Run calls beside the test; each must have ended when the test does."""
    with ThreadPoolExecutor() as pool:
        yield pool.submit

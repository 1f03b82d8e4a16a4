"""The pytest plugin: the fixture relay, and the marker of the same name.

Tests that ask for neither are left as they are. It is loaded before Django is set up,
so relay.testing, which needs models, is imported by the first test that asks for it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from relay.testing import RelayHelpers

__all__ = ["pytest_configure", "pytest_runtest_call", "relay"]

T = TypeVar("T")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "relay(mode): what an enqueue does in the test: 'inline', 'manual' or 'off'",
    )


def _mode_of(item: pytest.Item) -> AbstractContextManager[None] | None:
    mark = item.get_closest_marker("relay")
    if mark is None:
        return None
    from relay.testing import mode

    return mode(*mark.args, **mark.kwargs)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Run a marked test in its mode."""
    with _mode_of(item) or ExitStack():
        return (yield)


@pytest.fixture
def relay() -> Iterator[RelayHelpers]:
    """All of relay.testing as attributes, in mode 'manual' unless marked."""
    from relay.testing import RelayHelpers, mode

    with ExitStack() as stack:

        class Relay(RelayHelpers):
            def _last(self, manager: AbstractContextManager[T]) -> T:
                return stack.enter_context(manager)

        stack.enter_context(mode("manual"))
        yield Relay()

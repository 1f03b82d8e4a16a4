"""What these tests' own tools let pass, and what not."""

from __future__ import annotations

from itertools import chain, count, repeat
from pathlib import Path
from typing import Any

import pytest

from tests.standstill import Standstill
from tests.worker import harness
from tests.worker.harness import Database, Workers


class Replacing(Database):
    """A database whose workers have lost a child each time it is asked, for a while."""

    def __init__(self, folder: Path, *, asked: int) -> None:
        super().__init__("", folder)
        self._counts = chain(range(asked), repeat(asked))

    def ask(self, query: str, *values: Any) -> Any:
        return next(self._counts)


def test_a_child_that_is_replaced_on_a_machine_that_goes_on_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "Standstill", lambda: Standstill(lambda: 0.0))
    workers, acts = Workers(Replacing(tmp_path, asked=2), tmp_path), count(1)

    with pytest.raises(AssertionError, match=r"were replaced, and .* for 0\.0 s"):
        workers.undisturbed(lambda: next(acts))

    assert next(acts) == 2


def test_a_child_that_is_replaced_on_a_machine_that_stood_still_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = count(0.0, 3_600.0)
    monkeypatch.setattr(harness, "Standstill", lambda: Standstill(lambda: next(hours)))
    workers, acts = Workers(Replacing(tmp_path, asked=2), tmp_path), count(1)

    assert workers.undisturbed(lambda: next(acts)) == 2

"""F16 at the size of a test; `python -m tests.chaos faults` does it at full size."""

from __future__ import annotations

import pytest

from tests.chaos.parts.poison import poisons, strike
from tests.worker.harness import Database, Workers

pytestmark = pytest.mark.slow


def test_f16_poison_of_every_kind_ends_and_harms_neither_worker_nor_neighbours(
    database: Database, workers: Workers
) -> None:
    kinds = poisons(result_bytes=5_000_000, generations=5)

    assert strike(database, workers, kinds, neighbours=100) == []

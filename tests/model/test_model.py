"""Every state of the protocol for three workers and two jobs, and what breaks it."""

from __future__ import annotations

import pytest

from tests.model.protocol import MUTANTS
from tests.model.search import search
from tests.scale import scale


@pytest.mark.slow
def test_three_workers_and_two_jobs_break_no_rule_in_any_state() -> None:
    """With two faults in a run; at full size (--full) with three."""
    result = search(3, 2, faults=3 if scale() == 1 else 2)

    print(result.describe())  # noqa: T201 - shown by -rP, and where it fails
    assert result.rule is None, result.describe()
    assert result.states > 10_000


def test_one_job_breaks_no_rule_with_four_faults() -> None:
    result = search(3, 1, faults=4)

    assert result.rule is None, result.describe()


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_protocol_made_worse_is_found(mutant: str) -> None:
    result = search(3, 1, faults=2, mutant=mutant)

    assert result.rule is not None, f"{mutant} was not found"
    assert result.rule.startswith(f"{MUTANTS[mutant]}:"), result.describe()
    assert result.trace[0].startswith("  1. worker 1: ")

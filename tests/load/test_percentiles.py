"""Percentiles by nearest rank."""

from __future__ import annotations

import random

import pytest

from relay.load.percentiles import nearest_rank, summary_ms


@pytest.mark.parametrize(
    ("percent", "expected"), [(1, 15), (5, 15), (30, 20), (40, 20), (50, 35), (100, 50)]
)
def test_a_percentile_is_the_sample_of_that_rank(percent: int, expected: int) -> None:
    assert nearest_rank([15, 20, 35, 40, 50], percent) == expected


def test_so_many_percent_do_not_exceed_it_and_no_smaller_sample_will_do() -> None:
    chance = random.Random(4)
    for _ in range(200):
        samples = sorted(chance.choices(range(50), k=chance.randint(1, 400)))
        for percent in (1, 50, 90, 95, 99, 100):
            found = nearest_rank(samples, percent)

            assert 100 * sum(s <= found for s in samples) >= percent * len(samples)
            assert 100 * sum(s < found for s in samples) < percent * len(samples)


def test_the_summary_is_in_milliseconds_and_takes_samples_in_any_order() -> None:
    assert summary_ms(each / 1_000 for each in range(1_000, 0, -1)) == {
        "p50": 500,
        "p90": 900,
        "p95": 950,
        "p99": 990,
        "max": 1_000,
    }


def test_of_no_samples_there_is_no_summary() -> None:
    assert summary_ms([]) is None

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.buckets import (
    FINE,
    RUN_BOUNDS,
    STAT_BOUNDS,
    WAIT_BOUNDS,
    coarse,
    quantile,
)
from relay.metrics.names import API_BOUNDS, CLAIM_BOUNDS

SECONDS = st.floats(min_value=0, max_value=10_000)


@pytest.mark.parametrize(
    "bounds", [RUN_BOUNDS, WAIT_BOUNDS, STAT_BOUNDS, CLAIM_BOUNDS, API_BOUNDS]
)
@given(seconds=st.lists(SECONDS, max_size=50))
def test_what_was_counted_finely_is_counted_by_coarser_bounds_exactly(
    bounds: tuple[float, ...], seconds: list[float]
) -> None:
    fine = [0] * (len(FINE) + 1)
    for each in seconds:
        fine[bisect_left(FINE, each)] += 1

    expected = [0] * (len(bounds) + 1)
    for each in seconds:
        expected[bisect_left(bounds, each)] += 1
    assert coarse(fine, bounds) == expected


@given(
    seconds=st.lists(st.floats(0.001, 4_000), min_size=1, max_size=50),
    share=st.floats(0.01, 1),
)
def test_a_quantile_is_off_by_no_more_than_its_bucket(
    seconds: list[float], share: float
) -> None:
    counts = [0] * (len(STAT_BOUNDS) + 1)
    for each in seconds:
        counts[bisect_left(STAT_BOUNDS, each)] += 1

    found = quantile(counts, share)

    ordered = sorted(seconds)
    wanted = share * len(seconds)
    true = next(each for place, each in enumerate(ordered, 1) if place >= wanted)
    assert found is not None
    assert found / 2.001 <= true <= found * 2.001 or true <= STAT_BOUNDS[0]


def test_a_quantile_of_nothing_is_none_and_past_the_last_bound_is_that() -> None:
    assert quantile([0] * 24, 0.5) is None
    assert quantile([*[0] * 23, 7], 0.5) == STAT_BOUNDS[-1]

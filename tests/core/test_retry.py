from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.exceptions import Retry
from relay.retry import Backoff


class Always(random.Random):
    """A source that always draws the same number."""

    def __init__(self, drawn: float) -> None:
        super().__init__()
        self.drawn = drawn

    def random(self) -> float:
        return self.drawn


def test_delays_double_from_the_base_to_the_cap() -> None:
    backoff = Backoff(base=timedelta(seconds=15), cap=timedelta(minutes=2))

    limits = [backoff.limit(failures) for failures in range(1, 6)]

    assert [limit.total_seconds() for limit in limits] == [15, 30, 60, 120, 120]


def test_full_jitter_draws_from_nothing_to_the_limit() -> None:
    backoff = Backoff(base=timedelta(seconds=10))

    assert backoff.delay(1, rng=Always(0.0)) == timedelta(0)
    assert backoff.delay(1, rng=Always(0.5)) == timedelta(seconds=5)
    assert backoff.delay(2, rng=Always(0.5)) == timedelta(seconds=10)


def test_without_jitter_the_whole_limit_is_waited() -> None:
    backoff = Backoff(base=timedelta(seconds=10), jitter=False)

    assert backoff.delay(2, rng=Always(0.1)) == timedelta(seconds=20)


def test_the_first_run_is_treated_as_the_first_failure() -> None:
    backoff = Backoff(base=timedelta(seconds=10))

    assert backoff.limit(0) == backoff.limit(-5) == backoff.limit(1)


def test_a_factor_of_one_waits_the_same_each_time() -> None:
    backoff = Backoff(base=timedelta(seconds=10), factor=1)

    assert backoff.limit(50) == timedelta(seconds=10)


def test_exponential_names_the_same_rule() -> None:
    assert Backoff.exponential(base=timedelta(1), cap=timedelta(2)) == Backoff(
        base=timedelta(1), cap=timedelta(2)
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"base": timedelta(seconds=-1)},
        {"cap": timedelta(seconds=-1)},
        {"factor": 0.5},
        {"factor": float("nan")},
        {"factor": float("inf")},
    ],
)
def test_rules_that_make_no_sense_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        Backoff(**arguments)


@given(
    failures=st.integers(min_value=-10, max_value=10**9),
    base=st.timedeltas(min_value=timedelta(0)),
    cap=st.timedeltas(min_value=timedelta(0)),
    factor=st.floats(min_value=1, max_value=1e300),
    drawn=st.floats(min_value=0, max_value=1, exclude_max=True),
)
def test_no_delay_is_negative_or_above_the_cap(
    failures: int, base: timedelta, cap: timedelta, factor: float, drawn: float
) -> None:
    backoff = Backoff(base=base, cap=cap, factor=factor)

    delay = backoff.delay(failures, rng=Always(drawn))

    # total_seconds() of centuries is a float that is rough by milliseconds.
    assert timedelta(0) <= delay <= cap + timedelta(milliseconds=1)


@given(failures=st.integers(min_value=1, max_value=200))
def test_limits_never_shrink(failures: int) -> None:
    backoff = Backoff()

    assert backoff.limit(failures) <= backoff.limit(failures + 1) <= backoff.cap


def test_a_delay_that_is_no_timedelta_is_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match=r"base=3: give a timedelta"):
        Backoff(base=3)  # type: ignore[arg-type] # the mistake
    with pytest.raises(TypeError, match=r"cap='1h': give a timedelta"):
        Backoff.exponential(cap="1h")  # type: ignore[arg-type] # the mistake
    with pytest.raises(TypeError, match=r"after=30: give a timedelta"):
        Retry(after=30)  # type: ignore[arg-type] # the mistake

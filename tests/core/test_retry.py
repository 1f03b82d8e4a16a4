from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay import task
from relay.exceptions import ArgumentError, Retry
from relay.retry import NO_RULES, Backoff, RetryRules


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"factor": "2"}, "factor='2': give a number"),
        ({"factor": True}, "factor=True: give a number"),
        ({"jitter": "no"}, "jitter='no': give True or False"),
    ],
    ids=str,
)
def test_rules_of_another_type_are_refused(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
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


# --- the rules of a task -------------------------------------------------------------

PLAIN = Backoff(base=timedelta(seconds=7), jitter=False)
MINUTE = timedelta(minutes=1)


def delay(
    error: BaseException | None = None, *, failures: int = 1, **options: Any
) -> timedelta | None:
    rules = RetryRules.of(options)
    return rules.delay(failures, error or ValueError(), default=PLAIN)


def test_a_linear_backoff_adds_its_step_up_to_the_cap() -> None:
    backoff = Backoff.linear(
        base=timedelta(seconds=10),
        step=timedelta(seconds=20),
        cap=timedelta(seconds=45),
        jitter=False,
    )

    seconds = [backoff.delay(failures).total_seconds() for failures in range(1, 5)]

    assert seconds == [10, 30, 45, 45]
    assert backoff.delay(10**400) == timedelta(seconds=45)


def test_a_timedelta_waits_the_same_each_time() -> None:
    assert [delay(failures=n, backoff=MINUTE) for n in (1, 2, 99)] == [MINUTE] * 3


def test_a_list_gives_a_delay_for_each_failure_and_its_last_one_repeats() -> None:
    backoff = [timedelta(0), MINUTE, 2 * MINUTE]

    delays = [delay(failures=n, backoff=backoff) for n in (1, 2, 3, 4, 500)]

    assert delays == [timedelta(0), MINUTE, 2 * MINUTE, 2 * MINUTE, 2 * MINUTE]


def test_a_function_is_given_the_failures_and_the_error() -> None:
    def backoff(failures: int, error: BaseException) -> timedelta:
        return timedelta(seconds=failures * len(str(error)))

    assert delay(ValueError("four"), failures=3, backoff=backoff) == timedelta(
        seconds=12
    )


def test_a_function_gives_up_with_none_and_a_negative_delay_is_none() -> None:
    assert delay(backoff=lambda failures, error: None) is None
    assert delay(backoff=lambda failures, error: -MINUTE) == timedelta(0)


@pytest.mark.parametrize(
    "returned", [30, 1.5, True, "soon", float("nan"), MINUTE.total_seconds(), object()]
)
def test_what_is_no_delay_is_logged_and_the_settings_backoff_used(
    returned: object, caplog: pytest.LogCaptureFixture
) -> None:
    assert delay(failures=2, backoff=lambda *_: returned) == timedelta(seconds=14)
    assert "backoff returned no timedelta" in caplog.text


def test_a_function_that_raises_is_logged_and_the_settings_backoff_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def backoff(failures: int, error: BaseException) -> timedelta:
        raise LookupError("no such host")

    assert delay(backoff=backoff) == timedelta(seconds=7)
    assert "backoff raised" in caplog.text
    assert "no such host" in caplog.text


def test_the_most_specific_class_of_a_mapping_decides() -> None:
    backoff = {
        OSError: timedelta(seconds=1),
        ConnectionError: [timedelta(seconds=2)],
        ConnectionResetError: lambda failures, error: timedelta(seconds=3),
    }

    assert delay(OSError(), backoff=backoff) == timedelta(seconds=1)
    assert delay(ConnectionAbortedError(), backoff=backoff) == timedelta(seconds=2)
    assert delay(ConnectionResetError(), backoff=backoff) == timedelta(seconds=3)
    assert delay(ValueError(), backoff=backoff) == timedelta(seconds=7)


@pytest.mark.parametrize(
    ("error", "gives_up"),
    [
        (ConnectionError(), False),
        (ConnectionResetError(), True),
        (OSError(), True),
        (ValueError(), True),
        (SystemExit(), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_most_specific_class_says_whether_an_error_is_retried(
    error: BaseException, gives_up: bool
) -> None:
    rules = RetryRules.of(
        {"retry_on": ConnectionError, "give_up_on": [OSError, ConnectionResetError]}
    )

    assert rules.gives_up_on(error) is gives_up


def test_what_give_up_on_does_not_name_is_retried() -> None:
    rules = RetryRules.of({"give_up_on": (ValueError,)})

    assert rules.gives_up_on(UnicodeDecodeError("utf-8", b"", 0, 1, "bad"))
    assert not rules.gives_up_on(TypeError())
    assert not NO_RULES.gives_up_on(TypeError())


async def coroutine(failures: int, error: BaseException) -> timedelta:
    return MINUTE


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"backoff": 30}, "backoff=30: give a relay.Backoff"),
        ({"backoff": []}, r"backoff=\[\]: give"),
        ({"backoff": "1 min"}, "backoff='1 min': give"),
        ({"backoff": Backoff}, "backoff=<class .*: give"),
        ({"backoff": [MINUTE, 30]}, r"backoff\[1\]=30: give a timedelta"),
        ({"backoff": -MINUTE}, "backoff=.*: give a timedelta of 0 or more"),
        ({"backoff": lambda: MINUTE}, "function of two positional arguments"),
        ({"backoff": coroutine}, "coroutine function: give a plain one"),
        ({"backoff": {}}, "has no rule"),
        ({"backoff": {"OSError": MINUTE}}, "backoff names 'OSError'"),
        ({"backoff": {int: MINUTE}}, "backoff names <class 'int'>"),
        ({"backoff": {OSError: {}}}, r"backoff\[OSError\]={}: give"),
        ({"retry_on": ()}, r"retry_on=\(\) names no class: leave it out"),
        ({"retry_on": "OSError"}, "retry_on='OSError': give classes"),
        ({"retry_on": (OSError(),)}, r"retry_on names OSError\(\)"),
        ({"give_up_on": (int,)}, "give_up_on names <class 'int'>"),
        (
            {"retry_on": OSError, "give_up_on": (OSError,)},
            "OSError is in retry_on and in give_up_on",
        ),
        ({"retry_until": timedelta(0)}, "retry_until="),
        ({"retry_until": -MINUTE}, "retry_until="),
        ({"retry_until": 3600}, "retry_until=3600: give a timedelta above 0"),
        ({"retry_until": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001 - refused
    ],
    ids=str,
)
def test_rules_that_cannot_be_kept_are_refused_at_decoration(
    options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ArgumentError, match=named):
        task(name="tests.retry.refused", **options)

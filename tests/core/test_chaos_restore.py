"""What the part `restore` takes for a clash of tokens."""

from __future__ import annotations

import pytest

from tests.chaos.histories import Effect, Histories
from tests.chaos.parts.restore import judge_tokens


def effect(phase: str, mono: float, *, attempt: int = 1, worker: str = "w1") -> Effect:
    return Effect(
        phase=phase,
        job="j1",
        attempt=attempt,
        worker=worker,
        pid=1,
        mono=mono,
        at=mono,
    )


def test_a_run_that_begins_while_one_of_its_token_goes_on_is_a_clash() -> None:
    effects = [effect("start", 1.0), effect("start", 2.0), effect("end", 3.0)]

    (text,) = judge_tokens([Histories(effects=effects)])

    assert text == "two runs at once of attempt 1 of j1 by w1"


@pytest.mark.parametrize(
    "second",
    [
        effect("start", 4.0),  # the first had ended before the database went back
        effect("start", 2.0, attempt=2),
        effect("start", 2.0, worker="w2"),
    ],
)
def test_a_run_of_another_token_or_after_the_first_has_ended_is_none(
    second: Effect,
) -> None:
    effects = [effect("start", 1.0), effect("end", 3.0), second]

    assert list(judge_tokens([Histories(effects=effects)])) == []

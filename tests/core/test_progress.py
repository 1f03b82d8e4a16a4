"""relay.progress: what a handler tells of how far it is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from relay import ArgumentError, Progress
from relay.progress import measured, read_progress


@pytest.mark.parametrize(
    ("told", "percent"),
    [
        ((40, None), 40.0),
        ((0, None), 0.0),
        ((250, None), 100.0),
        ((1, 3), 33.33),
        ((3, 3), 100.0),
        ((4, 3), 100.0),
        ((0, 0), 100.0),
        ((10**400, 10**400), 100.0),
    ],
)
def test_a_percentage_or_a_count_is_a_percentage(
    told: tuple[Any, Any], percent: float
) -> None:
    if told[0] == 10**400:
        with pytest.raises(ArgumentError, match="finite"):
            measured(*told, None)
        return
    assert measured(*told, None).percent == percent


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "1", None, True])
def test_what_is_no_number_is_refused_by_its_name(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^percent="):
        measured(value, None, None)
    with pytest.raises(ArgumentError, match=r"^done="):
        measured(value, 3, None)
    if value is not None:
        with pytest.raises(ArgumentError, match=r"^total="):
            measured(1, value, None)


def test_a_count_and_a_message_come_back_from_the_row() -> None:
    told = measured(3, 10, "importing")

    assert told == Progress(percent=30.0, done=3, total=10, message="importing")
    assert read_progress(json.dumps(told.document())) == told
    assert measured(30, None, None).document() == {"percent": 30.0}


def test_a_message_is_one_that_the_row_can_hold() -> None:
    told = measured(1, None, "a\x00b\ud800" + "x" * 1_000)

    assert told.message.startswith("a\\x00b\\ud800")
    assert len(told.message) == 500


@pytest.mark.parametrize("text", [None, "null", "[]", '{"percent": "a lot"}', "7"])
def test_a_row_without_readable_progress_has_none(text: str | None) -> None:
    assert read_progress(text) is None


def test_what_others_have_written_is_read_as_far_as_it_goes() -> None:
    text = '{"percent": 5, "done": "x", "total": 3, "message": 7}'

    assert read_progress(text) == Progress(percent=5.0)

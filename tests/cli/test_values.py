"""What people write for spans, instants, values and filters."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relay.cli.errors import UsageError
from relay.cli.values import (
    assignment,
    filled,
    filter_text,
    instant,
    merged,
    pause,
    span,
)
from relay.operations import parse


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        ("0.5", 0.5),
        ("30s", 30.0),
        ("2m", 120.0),
        ("1h30m", 5_400.0),
        ("250ms", 0.25),
        ("1d12h", 129_600.0),
        ("PT90S", 90.0),
        ("P1DT1H", 90_000.0),
    ],
)
def test_a_span_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert span(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1", "1y", "P", "PT", "9" * 50, "nan"])
def test_what_is_no_span_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="1h30m"):
        span(text)


def test_an_instant_is_written_in_utc() -> None:
    assert instant("2026-11-30T09:00:00+01:00") == "2026-11-30T08:00:00Z"
    assert instant("2026-11-30T08:00:00Z") == "2026-11-30T08:00:00Z"


def test_an_instant_may_be_from_now() -> None:
    before = datetime.now(UTC)

    found = datetime.fromisoformat(instant("+10m"))

    assert timedelta(0) <= found - before - timedelta(minutes=10) < timedelta(minutes=1)


@pytest.mark.parametrize(
    "text",
    [
        "tomorrow",
        "2026-11-30T08:00:00",
        "+soon",
        "9999-12-31T23:59:59-10:00",
        "0001-01-01T00:00:00+10:00",
    ],
)
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        instant(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1", 1),
        ("a=june", "june"),
        ('a="1"', "1"),
        ("a=", ""),
        ("a=[1, 2]", [1, 2]),
        ("a=x=y", "x=y"),
    ],
)
def test_a_value_is_json_or_a_text(text: str, value: Any) -> None:
    assert assignment(text) == ("a", value)


def test_arguments_are_changed_by_their_paths() -> None:
    args: list[Any] = [1, {"id": 2}]
    kwargs: dict[str, Any] = {"user": {"id": 3}}

    merged(
        [
            ("args.0", 10),
            ("args.1.id", 20),
            ("args.user.id", 30),
            ("kwargs.user.name", "ada"),
            ("args.new.deep", 40),
            ("args.2", 50),
        ],
        args,
        kwargs,
    )

    assert args == [10, {"id": 20}, 50]
    assert kwargs == {"user": {"id": 30, "name": "ada"}, "new": {"deep": 40}}


@pytest.mark.parametrize("path", ["x.0", "args", "args.", "args.5", "args.0.a"])
def test_a_path_that_leads_nowhere_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match=path):
        merged([(path, 1)], [1], {})


def test_a_filter_is_put_together_of_words_and_flags() -> None:
    text = filter_text(
        ["tag:a", "connection refused", 'error:"x y"'],
        state=["failed", "cancelled"],
        queue=None,
        task=["app.*"],
    )

    assert text == (
        'tag:a "connection refused" error:"x y" state:failed,cancelled task:app.*'
    )


@pytest.mark.parametrize("path", ["args.0.²", "args.99999999999", "args.0.9999999999"])
def test_a_place_that_no_list_has_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="no such place"):
        merged([(path, 1)], [[1]], {})


def test_a_pause_and_a_name_have_a_least_length() -> None:
    assert pause("100ms") == 0.1
    assert filled("low") == "low"
    with pytest.raises(argparse.ArgumentTypeError, match="too often"):
        pause("0")
    with pytest.raises(argparse.ArgumentTypeError, match="no name"):
        filled(" ")


def test_a_value_with_spaces_and_quotation_marks_means_itself() -> None:
    name = 'the "nightly" report'

    wanted = parse(filter_text((), task=[name]))

    assert [term.values for term in wanted.terms] == [(name,)]

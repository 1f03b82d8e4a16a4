"""Keys that are pressed while top draws."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from relay.cli.verbs.top import _Keys


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for each in (reader, writer):
        try:
            os.close(each)
        except OSError:
            continue


def test_a_q_behind_other_keys_is_heard_at_once(ends: tuple[int, int]) -> None:
    reader, writer = ends
    os.write(writer, b"xyq")

    assert _Keys(reader).is_q_within(3_600)


def test_other_keys_do_not_end_the_wait(ends: tuple[int, int]) -> None:
    reader, writer = ends
    os.write(writer, b"xyz")

    assert not _Keys(reader).is_q_within(0.01)
    os.write(writer, b"Q")
    assert _Keys(reader).is_q_within(3_600)


def test_a_terminal_that_is_gone_ends_it(ends: tuple[int, int]) -> None:
    reader, writer = ends
    os.close(writer)

    assert _Keys(reader).is_q_within(3_600)

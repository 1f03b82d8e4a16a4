from __future__ import annotations

import time
from uuid import RFC_4122

import pytest

from relay.ids import uuid7, uuid7s


def test_an_id_is_a_uuid_of_version_7() -> None:
    made = uuid7()

    assert made.version == 7
    assert made.variant == RFC_4122


def test_an_id_begins_with_the_milliseconds_of_its_making() -> None:
    before = time.time_ns() // 1_000_000
    made = uuid7()
    after = time.time_ns() // 1_000_000

    assert before <= made.int >> 80 <= after


def test_ids_are_not_repeated() -> None:
    assert len({uuid7() for _ in range(10_000)}) == 10_000


def test_every_random_bit_is_used() -> None:
    ones = zeros = 0
    for _ in range(200):
        made = uuid7().int
        ones |= made
        zeros |= ~made

    random_bits = (0xFFF << 64) | ((1 << 62) - 1)
    assert ones & random_bits == random_bits
    assert zeros & random_bits == random_bits


@pytest.mark.parametrize("count", [0, 1, 1_000])
def test_so_many_ids_at_once_are_each_one_of_its_own(count: int) -> None:
    before = time.time_ns() // 1_000_000
    made = list(uuid7s(count))
    after = time.time_ns() // 1_000_000

    assert len(set(made)) == len(made) == count
    assert {(each.version, each.variant) for each in made} <= {(7, RFC_4122)}
    assert all(before <= each.int >> 80 <= after for each in made)


def test_ids_made_at_once_use_every_random_bit() -> None:
    ones = zeros = 0
    for made in uuid7s(200):
        ones |= made.int
        zeros |= ~made.int

    random_bits = (0xFFF << 64) | ((1 << 62) - 1)
    assert ones & zeros & random_bits == random_bits

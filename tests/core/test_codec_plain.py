"""Arguments that are written as they are, beside the way that packs each value."""

from __future__ import annotations

import json
from enum import Enum, IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from relay import codec, packing
from relay.exceptions import EncodeError
from relay.packing import TAG, is_plain


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    SMALL = 1


class Kind(Enum):
    ONE = "one"


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class Number(int):
    def __repr__(self) -> str:
        return "something else"


EDGES = [
    *(2**63, 2**63 - 1, -(2**63), -(2**63) + 1, 2**64, 0, True, False, None),
    *("", "é", "𝄞", "\x00", "a\x00b", "\udce9", "\x7f", "\n\t\\\"'", "\u2028", TAG),
    *(Text("a"), Text("é"), Text("\x00"), Number(1), Number(2**63)),
    *(Colour.RED, Size.SMALL, Kind.ONE, 1.5, -0.0, 1e16, float("nan"), b"x"),
    *((), (1, (2,)), [], [[1]], {}, {"a": {"b": 1}}, {TAG: 1}, {1: 2}, object()),
]
values = st.one_of(
    st.sampled_from(EDGES),
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.text(max_size=5),
    st.floats(),
    st.lists(st.integers(), max_size=2),
)
keys = st.one_of(st.text(max_size=3), st.sampled_from(["a", TAG, Text("a"), "\x00"]))


def written(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the arguments' text, or the refusal, when each value is packed."""
    if TAG in kwargs:
        return f"kwargs[{TAG!r}]: is a name that relay keeps for itself"
    try:
        return (
            f'{{"args":{codec.encode(args, "args")},'
            f'"kwargs":{codec.encode(kwargs, "kwargs")}}}'
        )
    except EncodeError as error:
        return str(error)


@given(st.lists(values, max_size=4).map(tuple), st.dictionaries(keys, values))
@example((1, "a", None, True), {"b": -1})
@example((Text("a"),), {Text("a"): Text("b")})
def test_both_ways_write_the_same_text_and_refuse_the_same(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    expected = written(args, kwargs)

    try:
        text = codec.encode_arguments(args, kwargs)
    except EncodeError as error:
        text = str(error)
    assert text == expected


@given(values)
def test_what_is_plain_is_carried_as_it_is(value: Any) -> None:
    if is_plain(value):
        assert packing.Packer(strict=True).pack(value) is value
        text = codec.encode_arguments((value,), {})
        (back,), _ = codec.decode_arguments(json.loads(text))
        assert back == value
        assert type(back) is type(value)


def test_no_other_type_is_plain() -> None:
    plain = [value for value in EDGES if is_plain(value)]

    assert {type(value) for value in plain} == {str, int, bool, type(None)}


@pytest.mark.parametrize(
    ("args", "kwargs", "path"),
    [
        ((1, "\x00"), {}, "args[1]"),
        ((1, {"a": [object()]}), {}, "args[1]['a'][0]"),
        ((), {"a": "\udce9"}, "kwargs['a']"),
        ((), {"a": 1, "b": Colour.RED}, "kwargs['b']"),
        ((), {"a": 1, TAG: 2}, f"kwargs['{TAG}']"),
    ],
    ids=["nul", "nested", "surrogate", "enum", "tag"],
)
def test_what_is_refused_is_named_by_its_path(
    args: tuple[Any, ...], kwargs: dict[str, Any], path: str
) -> None:
    with pytest.raises(EncodeError) as caught:
        codec.encode_arguments(args, kwargs)

    assert caught.value.path == path


@pytest.mark.parametrize("value", ["x" * 100, ["x" * 100]], ids=["plain", "packed"])
def test_the_limit_of_bytes_holds_either_way(value: Any) -> None:
    size = len(codec.encode_arguments((value,), {}))

    codec.encode_arguments((value,), {}, limit_bytes=size)
    with pytest.raises(EncodeError, match=f"{size} bytes"):
        codec.encode_arguments((value,), {}, limit_bytes=size - 1)


def test_the_limit_of_depth_holds_for_arguments_beside_plain_ones() -> None:
    deep: Any = 1
    for _ in range(10):
        deep = (deep,)

    assert codec.encode_arguments((1, deep), {}, depth=10).count("[") == 11
    with pytest.raises(EncodeError, match="more than 9 deep"):
        codec.encode_arguments((1, deep), {}, depth=9)

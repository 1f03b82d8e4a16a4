"""relay.codec: values to JSON and back, and what is refused."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections import OrderedDict, namedtuple
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay import codec, packing
from relay.dataclass_names import register_annotations, registered
from relay.exceptions import DecodeError, EncodeError


def carried(value: Any) -> Any:
    """What a worker gets for the value."""
    return codec.decode(json.loads(codec.encode(value)))


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    SMALL = 1


@codec.register
@dataclass(frozen=True)
class Point:
    x: int
    y: Decimal
    seen: datetime | None = None
    total: int = field(init=False, default=0)


@dataclass
class Inner:
    value: int


@dataclass
class Outer:
    inner: list[Inner]
    again: Outer | None = None


@dataclass
class Stranger:
    value: int


Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -(2**63),
        10**400,
        1.5,
        -0.0,
        1e16,
        1e308,
        5e-324,
        "",
        "naïve 𝄞",
        [],
        {},
        [[1], {"a": [None]}],
        datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
        datetime(2026, 3, 29, 1, 30, 0, 123456),  # noqa: DTZ001 - naive on purpose
        datetime(2026, 3, 29, tzinfo=timezone(timedelta(hours=5, minutes=45))),
        datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        date(2026, 2, 28),
        time(23, 59, 59, 1),
        time(12, tzinfo=UTC),
        timedelta(days=-1, microseconds=1),
        timedelta.max,
        Decimal("1.10"),
        Decimal("-0"),
        UUID(int=7),
        b"\x00\xff",
        {1, 2},
        frozenset({"a"}),
        {(1, (2, 3))},
        {"__relay__": "datetime", "value": 1},
        Point(1, Decimal("2.50"), datetime(2026, 1, 1, tzinfo=UTC)),
    ],
    ids=repr,
)
def test_a_value_comes_back_equal_and_of_its_type(value: Any) -> None:
    back = carried(value)

    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value)


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
        | st.binary()
        | st.decimals(allow_nan=False)
        | st.uuids()
        | st.datetimes(timezones=st.just(UTC))
        | st.timedeltas(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.text(
                    st.characters(exclude_characters="\x00", exclude_categories=["Cs"])
                ),
                inner,
            )
        ),
        max_leaves=20,
    )
)
def test_any_nested_value_comes_back_equal(value: Any) -> None:
    assert carried(value) == value


def test_failure_148_a_tuple_comes_back_as_a_list_and_that_is_all_that_changes() -> (
    None
):
    assert carried({"ids": (1, 2), "b": True}) == {"ids": [1, 2], "b": True}
    assert carried(Pair(1, 2)) == [1, 2]
    assert carried(OrderedDict(a=1)) == {"a": 1}


def test_a_zone_survives_and_not_only_its_offset() -> None:
    back = carried(datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Rome")))

    assert back.tzinfo == ZoneInfo("Europe/Rome")


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ({"ids": (1, 2), 3: "x"}, "value", "key 3 of type int"),
        ({"a": [{"b": float("nan")}]}, "value['a'][0]['b']", "nan"),
        ({"x": float("inf")}, "value['x']", "inf"),
        (["a\x00b"], "value[0]", "NUL"),
        ({"a\x00": 1}, "value", "NUL"),
        ({"p": "\ud800"}, "value['p']", r"\ud800"),
        ([object()], "value[0]", "builtins.object"),
        ([{1: 2}], "value[0]", "key 1"),
        ({"c": Colour.RED}, "value['c']", "pass its .value"),
        ([Size.SMALL], "value[0]", "pass its .value"),
        ([10**5000], "value[0]", "bits"),
        ((x for x in "ab"), "value", "generator"),
        ([time(12, tzinfo=ZoneInfo("Europe/Rome"))], "value[0]", "pass a datetime"),
        ([Stranger(1)], "value[0]", "relay.codec.register"),
        (Point(1, Decimal(2), "\x00"), "value.seen", "NUL"),  # type: ignore[arg-type] # wrong on purpose
        ([Stranger], "value[0]", "cannot be carried"),
        ([1j], "value[0]", "complex"),
        ([bytearray(b"x")], "value[0]", "bytearray"),
    ],
)
def test_failures_073_102_148_what_cannot_be_carried_is_refused_with_its_path(
    value: Any, path: str, reason: str
) -> None:
    with pytest.raises(EncodeError) as refused:
        codec.encode(value)

    assert refused.value.path == path
    assert reason in refused.value.reason
    assert str(refused.value).startswith(path)


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)

    with pytest.raises(EncodeError, match="contains itself"):
        codec.encode(value)


def test_a_value_as_deep_as_the_limit_is_carried_and_one_deeper_is_not() -> None:
    value: list[Any] = []
    for _ in range(packing.DEPTH_LIMIT):
        value = [value]

    assert carried(value) == value
    with pytest.raises(EncodeError, match="nested"):
        codec.encode([value])


def test_arguments_round_trip() -> None:
    text = codec.encode_arguments((1, UUID(int=1)), {"when": date(2026, 1, 1)})

    assert codec.decode_arguments(json.loads(text)) == (
        [1, UUID(int=1)],
        {"when": date(2026, 1, 1)},
    )


def test_arguments_without_models_are_decoded_in_the_loop_itself() -> None:
    document = json.loads(codec.encode_arguments(([{1}],), {}))

    assert asyncio.run(codec.adecode_arguments(document)) == ([[{1}]], {})


def test_the_path_of_a_refused_argument_says_which_it_is() -> None:
    with pytest.raises(EncodeError) as first:
        codec.encode_arguments((1, {"x": float("nan")}), {})
    with pytest.raises(EncodeError) as second:
        codec.encode_arguments((), {"when": [object()]})

    assert first.value.path == "args[1]['x']"
    assert second.value.path == "kwargs['when'][0]"


def test_a_keyword_that_looks_like_a_tag_is_refused() -> None:
    with pytest.raises(EncodeError, match="keeps for itself"):
        codec.encode_arguments((), {"__relay__": "date"})


@pytest.mark.parametrize("letter", ["x", "é", "𝄞"])
def test_failure_120_arguments_are_bounded_in_bytes(letter: str) -> None:
    size = len(letter.encode())
    most = (codec.ARGUMENTS_LIMIT_BYTES - len('{"args":[""],"kwargs":{}}')) // size

    codec.encode_arguments((letter * most,), {})
    with pytest.raises(EncodeError, match="bytes as JSON"):
        codec.encode_arguments((letter * (most + 1),), {})


@pytest.mark.parametrize("document", [None, [], 3, {"args": 1}, {"kwargs": []}])
def test_a_document_that_holds_no_arguments_is_refused(document: object) -> None:
    with pytest.raises(DecodeError, match="holds no arguments"):
        codec.decode_arguments(document)


# --- dataclasses: only what a task asks for is ever made -----------------------------


def test_dataclasses_in_annotations_need_no_registration() -> None:
    def function(value: Outer | None, others: dict[str, list[Outer]]) -> None: ...

    register_annotations(function)

    assert carried([Outer([Inner(1)], Outer([]))]) == [Outer([Inner(1)], Outer([]))]


def test_annotations_that_cannot_be_read_are_passed_over() -> None:
    def function(value: Missing) -> None: ...  # type: ignore[name-defined] # noqa: F821 # missing on purpose

    register_annotations(function)

    with pytest.raises(EncodeError, match="no task's annotations name"):
        codec.encode(Stranger(1))


@dataclass
class Awaited:
    value: int


def test_a_thread_that_reads_annotations_hides_no_class_from_another() -> None:
    reading, go_on = threading.Event(), threading.Event()

    def read() -> type[Awaited]:
        if threading.current_thread() is first:
            reading.set()
            go_on.wait(30)
        return Awaited

    def function(value: Any) -> None: ...

    function.__annotations__["value"] = "read()"
    function.__globals__["read"] = read
    register_annotations(function)
    first = threading.Thread(target=registered, args=("no.such.Class",))
    first.start()
    try:
        assert reading.wait(30)
        assert carried(Awaited(1)) == Awaited(1)
    finally:
        go_on.set()
        first.join(60)
        del function.__globals__["read"]


@dataclass
class DefinedLater:
    value: int


def test_an_annotation_whose_name_is_defined_later_is_read_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def function(value: Later) -> None: ...  # type: ignore[name-defined] # noqa: F821 # defined below

    register_annotations(function)
    with pytest.raises(EncodeError, match="no task's annotations name"):
        codec.encode(DefinedLater(1))
    monkeypatch.setitem(function.__globals__, "Later", DefinedLater)

    assert carried(DefinedLater(1)) == DefinedLater(1)


def test_a_dataclass_defined_in_a_function_is_not_registered() -> None:
    @dataclass
    class Local:
        value: int

    with pytest.raises(TypeError, match="inside a function"):
        codec.register(Local)
    with pytest.raises(EncodeError):
        codec.encode(Local(1))


@dataclass
class WithInitVar:
    value: int
    extra: InitVar[int]


def test_a_dataclass_that_its_fields_do_not_make_is_refused() -> None:
    def function(value: WithInitVar) -> None: ...

    register_annotations(function)

    with pytest.raises(TypeError, match="InitVar"):
        codec.register(WithInitVar)
    with pytest.raises(EncodeError, match="WithInitVar"):
        codec.encode(WithInitVar(1, 2))


def test_only_dataclasses_are_registered() -> None:
    with pytest.raises(TypeError, match="no dataclass"):
        codec.register(int)


def test_a_document_nested_past_pythons_stack_is_refused() -> None:
    document: list[Any] = []
    for _ in range(100_000):
        document = [document]

    with pytest.raises(DecodeError, match="nested too deep"):
        codec.decode_arguments({"args": document})
    with pytest.raises(DecodeError, match="nested too deep"):
        asyncio.run(codec.adecode_arguments({"args": document}))


@pytest.mark.parametrize(
    "name", ["os.system", "builtins.eval", "subprocess.Popen", "no.such.Class"]
)
def test_x12_a_stored_name_is_never_imported(name: str) -> None:
    document = {"__relay__": "dataclass", "class": name, "value": {"args": "id"}}

    with pytest.raises(DecodeError, match="not known in this process"):
        codec.decode(document)


@pytest.mark.parametrize(
    "document",
    [
        {"__relay__": "date", "value": "yesterday"},
        {"__relay__": "datetime"},
        {"__relay__": "datetime", "value": "2026-01-01", "zone": "../../etc/passwd"},
        {"__relay__": "datetime", "value": "2026-01-01T00:00:00", "zone": "Mars/One"},
        {"__relay__": "bytes", "value": "!"},
        {"__relay__": "Decimal", "value": "x"},
        {"__relay__": "timedelta", "value": [10**12]},
        {"__relay__": "set", "value": [{}]},
        {"__relay__": "model", "model": "no.Such", "pk": 1},
        {"__relay__": "__import__", "value": "os"},
        {"__relay__": ["date"]},
        {"__relay__": "dataclass", "class": f"{__name__}.Point", "value": {"z": 1}},
        {"__relay__": "dataclass", "class": ["x"], "value": {}},
    ],
    ids=str,
)
def test_a_document_that_encode_did_not_write_is_refused(document: Any) -> None:
    with pytest.raises(DecodeError):
        codec.decode([document])


# --- results: never an exception -----------------------------------------------------


def test_a_plain_result_has_no_note() -> None:
    assert codec.encode_result({"ok": [1, "x"]}) == ('{"ok":[1,"x"]}', None)
    assert codec.encode_result(None) == ("null", None)


def test_failure_102_nan_in_a_result_becomes_null_with_a_note() -> None:
    text, note = codec.encode_result({"score": [float("nan"), 1.0, float("-inf")]})

    assert json.loads(text) == {"score": [None, 1.0, None]}
    assert note == (
        "stored as null: result['score'][0] is nan; result['score'][2] is -inf"
    )


def test_a_note_stays_short_however_many_values_were_lost() -> None:
    _, note = codec.encode_result([float("nan")] * 1000)

    assert note is not None
    assert note.endswith("and 995 more")


def test_failure_009_nul_in_a_result_is_stored_as_a_visible_escape() -> None:
    text, note = codec.encode_result({"a\x00b": "a\x00b"})

    assert json.loads(text) == {"a\\x00b": "a\\x00b"}
    assert note is None


def test_failure_085_a_lone_surrogate_in_a_result_is_stored_as_a_visible_escape() -> (
    None
):
    text, note = codec.encode_result([os.fsdecode(b"caf\xe9"), "\ud800", "é"])

    assert json.loads(text) == ["caf\\udce9", "\\ud800", "é"]
    assert note is None


class Hostile(dict[str, int]):
    def items(self) -> Any:
        raise RuntimeError("no\x00")


@pytest.mark.parametrize(
    "value",
    [object(), {(1, 2): 3}, {"a": [object()]}, 10**5000, Hostile(), Colour.RED],
    ids=["object", "key", "nested", "integer", "hostile", "enum"],
)
def test_failure_073_a_result_that_cannot_be_carried_is_null_with_a_note(
    value: Any,
) -> None:
    text, note = codec.encode_result(value)

    assert text == "null"
    assert note is not None
    assert note.startswith("result not stored: ")


def test_a_result_that_contains_itself_is_null_with_a_note() -> None:
    value: dict[str, Any] = {}
    value["self"] = value

    text, note = codec.encode_result(value)

    assert text == "null"
    assert note is not None
    assert "contains itself" in note


def test_failure_087_a_result_that_is_too_large_is_null_with_a_note() -> None:
    text, note = codec.encode_result("x" * codec.RESULT_LIMIT_BYTES)

    assert text == "null"
    assert note is not None
    assert "bytes as JSON" in note


# --- text ----------------------------------------------------------------------------


def test_failures_009_085_clean_text_shows_what_postgresql_cannot_store() -> None:
    assert codec.clean_text("bad\x00bytes") == "bad\\x00bytes"
    assert codec.clean_text(os.fsdecode(b"caf\xe9")) == "caf\\udce9"
    assert codec.clean_text("é 𝄞") == "é 𝄞"


def test_clean_text_is_cut_to_its_limit() -> None:
    assert codec.clean_text("x" * 20, limit=10) == "x" * 9 + "…"
    assert codec.clean_text("x" * 10, limit=10) == "x" * 10
    assert len(codec.clean_text("\x00" * 20, limit=10)) == 10


def test_importing_the_codec_needs_no_settings() -> None:
    code = "import relay.codec; print(relay.codec.encode([1]))"

    done = subprocess.run(
        [sys.executable, "-c", code],
        env={k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "[1]\n"

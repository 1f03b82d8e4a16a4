"""relay.unique: what a rule may say, and the key of a call."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay import ArgumentError, EncodeError, Unique, enqueue, task
from relay.parameters import Parameters
from relay.unique import LONGEST_WINDOW


def sync(user_id: int, field: Any = None, *, deep: bool = False) -> None: ...
def open_call(*args: Any, **kwargs: Any) -> None: ...


def key(*args: Any, rule: Unique | None = None, **kwargs: Any) -> bytes:
    return key_of(sync, rule or Unique(), args, kwargs)


def key_of(
    function: Callable[..., Any] | None,
    rule: Unique,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    name: str = "tests.sync",
) -> bytes:
    made = None if function is None else Parameters(inspect.signature(function))
    return rule.resolve(name, made, args, kwargs or {}).key


def open_key(**kwargs: Any) -> bytes:
    return key_of(open_call, Unique(), (), kwargs)


# --- the key -------------------------------------------------------------------------


def test_the_key_has_16_bytes_that_no_release_may_change() -> None:
    made = key(1, {"b": {2}, "a": [1.5, None, "é", Decimal("1.0")]}, deep=True)

    assert made.hex() == "5503b2a7c8e3094f0af89400f079d10d"


def test_failure_043_the_order_of_keywords_does_not_matter() -> None:
    assert open_key(a=1, b=2) == open_key(b=2, a=1)
    assert key(1, {"a": {"x": 1, "y": 2}}) == key(1, {"a": {"y": 2, "x": 1}})
    assert key(user_id=1, field=2) == key(field=2, user_id=1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"id": 1}, {"id": "1"}),
        ({"id": 1}, {"id": 1, "x": None}),
        ({}, {"field": 1}),
        ({"field": 1}, {"field": True}),
        ({"field": 0}, {"field": False}),
        ({"field": 0}, {"field": None}),
        ({"field": 1}, {"field": Decimal(1)}),
        ({"field": {"a": {"b": 1}}}, {"field": {"a": {"b": 2}}}),
        ({"field": {"a": 1}}, {"field": [["a", 1]]}),
        ({"field": ""}, {"field": None}),
        ({"field": b"a"}, {"field": "a"}),
        ({"field": {1}}, {"field": [1]}),
        ({"field": "2030-01-01"}, {"field": date(2030, 1, 1)}),
        ({"field": datetime(2030, 1, 1, tzinfo=UTC)}, {"field": date(2030, 1, 1)}),
        (
            {"field": {"__relay__": "set", "value": [1]}},
            {"field": {1}},
        ),
    ],
    ids=str,
)
def test_failure_043_other_arguments_have_another_key(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert open_key(**one) != open_key(**other)
    assert open_key(deep=[one]) != open_key(deep=[other])


def test_failure_043_numbers_that_are_equal_have_one_key() -> None:
    assert key(1) == key(1.0)
    assert key(1, [10**16]) == key(1, [1e16])
    assert key(1, -0.0) == key(1, 0)
    assert key(1, 1.5) != key(1, 1)


def test_defaults_and_the_way_an_argument_is_passed_do_not_matter() -> None:
    assert key(1) == key(user_id=1) == key(1, None) == key(1, field=None, deep=False)
    assert key(1) != key(1, deep=True)


def test_the_order_in_a_set_does_not_matter_between_processes() -> None:
    code = (
        "import inspect\n"
        "from relay import Unique\n"
        "from relay.parameters import Parameters\n"
        "def f(a): ...\n"
        "names = {str(n) for n in range(50)}\n"
        "taken = Parameters(inspect.signature(f))\n"
        "rule = Unique().resolve('a', taken, ([names],), {})\n"
        "print(rule.key.hex())"
    )

    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(printed) == 1


def test_failure_147_8_kb_of_arguments_have_a_short_key() -> None:
    assert len(key(1, "x" * 8192)) == 16


def test_tasks_have_keys_of_their_own_unless_they_share_a_scope() -> None:
    def made(name: str, scope: str | None) -> bytes:
        return key_of(sync, Unique(scope=scope), (1,), name=name)

    assert made("a", None) != made("b", None)
    assert made("a", "both") == made("b", "both")
    assert made("a", "b") != made("b", None)  # a scope is no task of that name


def test_an_explicit_key_counts_instead_of_the_arguments() -> None:
    rule = Unique(key="invoice 7")

    assert key(1, rule=rule) == key(2, rule=rule)
    assert key(1, rule=rule) != key(1, rule=Unique(key="invoice 8"))
    assert key_of(None, rule, (5,)) == key(1, rule=rule)


def test_chosen_arguments_count_in_any_order_and_others_do_not() -> None:
    rule = Unique(on=("user_id",))

    assert key(1, "a", rule=rule) == key(user_id=1, deep=True, rule=rule)
    assert key(1, rule=rule) != key(2, rule=rule)
    both = Unique(on=("user_id", "field")), Unique(on=["field", "user_id"])
    assert key(1, 2, rule=both[0]) == key(1, 2, rule=both[1])


def test_chosen_arguments_may_be_open_keywords() -> None:
    rule = Unique(on=("a",))

    def made(**kwargs: Any) -> bytes:
        return key_of(open_call, rule, (), kwargs)

    assert made(a=1, b=2) == made(a=1, b=3)
    assert made(a=1) != made(b=1)


def test_without_the_code_chosen_arguments_must_be_given_by_name() -> None:
    rule = Unique(on=("user_id",))

    found = key_of(None, rule, ("x",), {"user_id": 1})

    assert found == key(1, rule=rule)
    with pytest.raises(ArgumentError, match="pass user_id by name"):
        key_of(None, rule, (1,))


def test_chosen_arguments_that_the_task_does_not_have_are_refused() -> None:
    with pytest.raises(ArgumentError, match="has no argument user"):
        task(name="tests:unique", unique=Unique(on=("user",)))(sync)
    with pytest.raises(ArgumentError, match="has no argument user"):
        key(1, rule=Unique(on=("user",)))


def test_an_argument_that_cannot_be_carried_is_refused() -> None:
    with pytest.raises(EncodeError):
        key(1, object())


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.uuids()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abcd"), inner),
    max_leaves=8,
)


def shown(value: Any) -> str:
    """Write values so that two texts are equal if and only if the keys should be."""
    if isinstance(value, dict):
        return f"{{{sorted((name, shown(item)) for name, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{[shown(item) for item in value]}]"
    if isinstance(value, float) and value.is_integer():
        return repr(int(value))
    if isinstance(value, Decimal):
        return f"Decimal {value}"
    if isinstance(value, UUID):
        return f"UUID {value}"
    return repr(value)


@given(VALUES, VALUES)
def test_keys_are_equal_if_and_only_if_the_arguments_are(one: Any, other: Any) -> None:
    assert (key(1, one) == key(1, other)) == (shown(one) == shown(other))


@given(st.permutations(["a", "b", "c", "d"]), st.dictionaries(st.text("ab"), VALUES))
def test_keys_do_not_depend_on_the_order_of_insertion(
    names: list[str], deep: dict[str, Any]
) -> None:
    turned = dict(reversed(deep.items()))

    assert open_key(**dict.fromkeys("abcd", deep)) == open_key(
        **dict.fromkeys(names, turned)
    )


# --- the rule ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"on": "user_id"}, "on='user_id'"),
        ({"on": ()}, "on="),
        ({"on": (1,)}, "on="),
        ({"on": ("a",), "key": "b"}, "give one of them"),
        ({"key": ""}, "key=''"),
        ({"key": 7}, "key=7"),
        ({"scope": ""}, "scope=''"),
        ({"until": "queued"}, "'started', 'finished', 'forever'"),
        ({"until": "finished", "for_": timedelta(1)}, "give one of them"),
        ({"for_": 60}, "for_=60"),
        ({"for_": timedelta(0)}, "above 0"),
        ({"for_": LONGEST_WINDOW + timedelta(seconds=1)}, "until='forever'"),
        ({"on_conflict": "ignore"}, "'return', 'raise', 'replace'"),
        ({"due": "later"}, "'keep', 'push'"),
        ({"on_conflict": "raise", "due": "push"}, "give one of them"),
    ],
    ids=str,
)
def test_a_rule_that_means_nothing_is_refused(options: Any, named: str) -> None:
    with pytest.raises(ArgumentError, match=named):
        Unique(**options)


def test_a_key_is_held_until_the_end_unless_duplicates_change_the_job() -> None:
    assert Unique().mode == "finished"
    assert Unique(on_conflict="raise").mode == "finished"
    assert Unique(on_conflict="replace").mode == "started"
    assert Unique(due="push").mode == "started"
    assert Unique(due="push", until="finished").mode == "finished"
    assert Unique(for_=timedelta(1), due="push").mode == "window"


def test_what_is_no_rule_is_refused_as_an_option() -> None:
    wrong: Any = True
    with pytest.raises(ArgumentError, match="unique=True"):
        task(name="tests:unique", unique=wrong)(sync)
    with pytest.raises(ArgumentError, match="unique=True"):
        enqueue("no:code", unique=wrong)

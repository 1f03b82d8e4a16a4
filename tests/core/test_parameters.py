"""A call that surely fits a signature, beside what inspect says of it."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.parameters import Parameters

NAMES = "abcdef"
FIXED = (
    Parameter.POSITIONAL_ONLY,
    Parameter.POSITIONAL_OR_KEYWORD,
    Parameter.KEYWORD_ONLY,
)
Call = tuple[tuple[Any, ...], dict[str, Any]]


@st.composite
def signatures(draw: st.DrawFn, *, is_open: bool) -> Signature:
    """Draw a signature; an open one may take any number of arguments."""
    kinds = sorted(draw(st.lists(st.sampled_from(FIXED), max_size=5)))
    made: list[Parameter] = []
    needs_default = False
    for name, kind in zip(NAMES, kinds, strict=False):
        has_default = draw(st.booleans())
        if kind is not Parameter.KEYWORD_ONLY:
            # After one with a default none goes without.
            needs_default = has_default = has_default or needs_default
        made.append(
            Parameter(name, kind, default=None if has_default else Parameter.empty)
        )
    if is_open:
        rest = draw(st.sampled_from(["args", "kwargs", "both"]))
        if rest != "kwargs":
            named = sum(each.kind is not Parameter.KEYWORD_ONLY for each in made)
            made.insert(named, Parameter("args", Parameter.VAR_POSITIONAL))
        if rest != "args":
            made.append(Parameter("kwargs", Parameter.VAR_KEYWORD))
    return Signature(made)


calls = st.tuples(
    st.lists(st.integers(), max_size=6).map(tuple),
    st.dictionaries(st.sampled_from(NAMES + "x"), st.integers(), max_size=6),
)


def binds(signature: Signature, call: Call) -> bool:
    args, kwargs = call
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


@given(signatures(is_open=False), calls)
def test_a_call_fits_a_closed_signature_exactly_where_it_can_be_bound(
    signature: Signature, call: Call
) -> None:
    assert Parameters(signature).surely_take(*call) is binds(signature, call)


@given(signatures(is_open=False), st.data())
def test_every_fitting_call_is_taken(signature: Signature, data: st.DataObject) -> None:
    parameters = list(signature.parameters.values())
    places = [each for each in parameters if each.kind is not Parameter.KEYWORD_ONLY]
    needed = [
        place
        for place, each in enumerate(places, start=1)
        if each.kind is Parameter.POSITIONAL_ONLY and each.default is Parameter.empty
    ]
    count = data.draw(st.integers(max(needed, default=0), len(places)))
    kwargs = {
        each.name: 1
        for each in parameters[count:]
        if each.kind is not Parameter.POSITIONAL_ONLY
        and (each.default is Parameter.empty or data.draw(st.booleans()))
    }
    call = ((1,) * count, kwargs)

    assert binds(signature, call)
    assert Parameters(signature).surely_take(*call)


@given(signatures(is_open=True), calls)
def test_where_any_number_may_come_nothing_is_sure(
    signature: Signature, call: Call
) -> None:
    assert not Parameters(signature).surely_take(*call)


def test_no_parameters_take_a_call_of_nothing_alone() -> None:
    nothing = Parameters(Signature())

    assert nothing.surely_take((), {})
    assert not nothing.surely_take((1,), {})
    assert not nothing.surely_take((), {"a": 1})


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (lambda a, b=2, *, c=3: None, (1,), {}),
        (lambda a, b=2, *, c=3: None, (), {"c": 4, "a": 1}),
        (lambda a, /, b=2: None, (1, 5), {}),
        (lambda *args, **kwargs: None, (1, 2), {"x": 3}),
        (lambda: None, (), {}),
    ],
)
def test_arguments_are_those_of_the_bound_signature(
    function: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    signature = Signature.from_callable(function)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()

    assert Parameters(signature).arguments(args, kwargs) == dict(bound.arguments)


def test_arguments_of_a_call_that_does_not_fit_are_refused() -> None:
    with pytest.raises(TypeError, match="too many"):
        Parameters(Signature()).arguments((1,), {})

"""How a call fits a function's parameters, told at once for most calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any

__all__ = ["Parameters"]

_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class Parameters:
    """What a call must and may name, for each number of positional arguments.

    Signature.bind() says why a call does not fit, but takes ten times as long.
    Source: docs/explanation/speed.md, "What an enqueue does not pay for".
    """

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        # At each number of positional arguments: the names required and allowed then.
        self._names: list[tuple[frozenset[str], frozenset[str]]] = []
        parameters = list(signature.parameters.values())
        if any(each.kind not in (*_BY_PLACE, *_BY_NAME) for each in parameters):
            return  # *args or **kwargs: every call takes a closer look
        places = [each for each in parameters if each.kind in _BY_PLACE]
        self._places = [each.name for each in places]
        self._defaults = {
            each.name: each.default
            for each in parameters
            if each.default is not Parameter.empty
        }
        named = [each for each in parameters if each.kind not in _BY_PLACE]
        for count in range(len(places) + 1):
            left = [*places[count:], *named]
            required = frozenset(
                each.name for each in left if each.default is Parameter.empty
            )
            allowed = frozenset(each.name for each in left if each.kind in _BY_NAME)
            self._names.append((required, allowed))

    def surely_take(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Tell whether the call fits; where it is False, Signature.bind() knows."""
        if len(args) >= len(self._names):
            return False
        required, allowed = self._names[len(args)]
        return required <= kwargs.keys() <= allowed

    def arguments(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the arguments by name, with those left to their defaults.

        What *args and **kwargs take stands under their names.

        Raises:
            TypeError: the call does not fit.
        """
        if self.surely_take(args, kwargs):
            # One name more than places: so many or fewer are given.
            given = dict(zip(self._places, args, strict=False))
            return {**self._defaults, **given, **kwargs}
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

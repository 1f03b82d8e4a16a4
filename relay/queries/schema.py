"""JSON Schema of a task's arguments, read off its function's annotations."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence, Set
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from inspect import Parameter
from typing import Any, Final, Literal, Union, get_args, get_origin
from uuid import UUID

from relay.tasks import Task

__all__ = ["arguments_schema"]

Schema = dict[str, Any]

# Of JSON's own types. Others come as text, and the codec's tagged form is taken too.
_PLAIN: Final[Mapping[Any, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    None: {"type": "null"},
}
_TAGGED: Final = (datetime, date, time, Decimal, UUID, bytes)
_DEEPEST: Final = 8


def arguments_schema(task: Task[..., Any]) -> Schema:
    """Return an object with the arguments by name, as enqueue's kwargs take them.

    Arguments that only a place names stand under x-positional, in their order. Where an
    annotation says nothing that JSON knows, anything is taken: what an enqueue refuses
    is said by the codec, not here.
    """
    hints = _hints(task)
    properties: dict[str, Schema] = {}
    required: list[str] = []
    positional: list[str] = []
    is_open = False
    for name, each in task.signature.parameters.items():
        if each.kind is Parameter.VAR_KEYWORD:
            is_open = True
            continue
        if each.kind is Parameter.VAR_POSITIONAL:
            properties[name] = {
                "type": "array",
                "items": _schema(hints.get(name, Any), 0),
            }
            positional.append(f"*{name}")
            continue
        properties[name] = _schema(hints.get(name, Any), 0)
        if each.kind is Parameter.POSITIONAL_ONLY:
            positional.append(name)
        if each.default is Parameter.empty:
            required.append(name)
    made: Schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": is_open,
    }
    return made | ({"x-positional": positional} if positional else {})


def _hints(task: Task[..., Any]) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(task.function)
    except (
        Exception
    ):  # an edge: annotations are any code, and may name what is not there
        return {}


def _schema(hint: Any, depth: int) -> Schema:
    if depth > _DEEPEST:
        return {}
    if (plain := _plain(hint)) is not None:
        return plain
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(each, depth + 1) for each in inner]}
    if origin is Literal:
        return {"enum": list(inner)} if all(map(_is_json, inner)) else {}
    base = origin or hint
    if not isinstance(base, type):
        return {}
    if issubclass(base, Mapping) or typing.is_typeddict(base):
        rest = inner[1] if len(inner) == 2 else Any
        values = _schema(rest, depth + 1)
        return {"type": "object"} | ({"additionalProperties": values} if values else {})
    if issubclass(base, Sequence) and not issubclass(base, str | bytes):
        items = inner[0] if inner else Any
        is_fixed = base is tuple and Ellipsis not in inner and len(inner) != 1
        item = {} if is_fixed else _schema(items, depth + 1)
        return {"type": "array"} | ({"items": item} if item else {})
    return {}


def _plain(hint: Any) -> Schema | None:
    try:
        found = _PLAIN.get(hint)
    except TypeError:  # of what cannot be a key
        return None
    if found is not None:
        return dict(found)
    is_other = isinstance(hint, type) and issubclass(hint, (*_TAGGED, Enum, Set))
    return {} if is_other else None


def _is_json(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)

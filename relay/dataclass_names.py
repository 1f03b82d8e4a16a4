"""Which dataclasses may be made from stored data, by their names."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = [
    "class_name",
    "register",
    "register_annotations",
    "registered",
    "signature",
]

DataclassT = TypeVar("DataclassT")

# A stored name is only ever looked up here, never imported (X12): a row that
# somebody else wrote cannot reach a class that no task asks for.
_dataclasses: dict[str, type[Any]] = {}
# Functions whose annotations have not been read, or could not be: a dict for its order.
_annotated: dict[Callable[..., Any], None] = {}


def class_name(kind: type[Any]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def register(kind: type[DataclassT]) -> type[DataclassT]:
    """Let a dataclass travel in arguments and results; usable as a decorator.

    Dataclasses in the annotations of a task need no registration.

    Raises:
        TypeError: it is no dataclass, not at the top level of a module, or not to be
            made from its fields alone.
    """
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"{kind!r} is no dataclass: only dataclasses are registered")
    if "<locals>" in kind.__qualname__:
        raise TypeError(
            f"{class_name(kind)} is defined inside a function, where no worker can "
            "find it: move it to the top level of its module"
        )
    if not _is_made_from_fields(kind):
        raise TypeError(
            f"{class_name(kind)} cannot be made anew from its fields: its __init__ "
            "takes other arguments (InitVar, or one of its own)"
        )
    _dataclasses[class_name(kind)] = kind
    return kind


def _is_made_from_fields(kind: type[Any]) -> bool:
    fields = {field.name for field in dataclasses.fields(kind) if field.init}
    return set(signature(kind).parameters) == fields


def signature(called: Callable[..., Any]) -> inspect.Signature:
    """Return the signature, with names in annotations that are not defined left so."""
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(called, annotation_format=Format.FORWARDREF)
    return inspect.signature(called)


def register_annotations(function: Callable[..., Any]) -> None:
    """Let the dataclasses in the function's annotations travel.

    The annotations are read when an unknown dataclass is first met: at decoration
    the names in them may not be defined yet.
    """
    _annotated[function] = None


def _read_annotations() -> None:
    # Threads may do this side by side: each function is taken off only when its classes
    # are registered, so that none finds it gone and its classes not there yet.
    for function in list(_annotated):
        try:
            hints = typing.get_type_hints(function)
        except Exception:  # noqa: S112 - a name that is not defined yet, or never here
            continue
        for hint in hints.values():
            _register_within(hint)
        _annotated.pop(function, None)


def _register_within(hint: object) -> None:
    for part in typing.get_args(hint):
        _register_within(part)
    if (
        isinstance(hint, type)
        and dataclasses.is_dataclass(hint)
        and _dataclasses.get(class_name(hint)) is not hint
        and "<locals>" not in hint.__qualname__
        and _is_made_from_fields(hint)
    ):
        register(hint)
        try:
            inner = typing.get_type_hints(hint)
        except Exception:  # as above: the fields' classes need register()
            return
        for part in inner.values():
            _register_within(part)


def registered(name: str) -> type[Any] | None:
    if name not in _dataclasses:
        _read_annotations()
    return _dataclasses.get(name)

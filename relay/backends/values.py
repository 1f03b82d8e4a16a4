"""Values as django.tasks carries them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relay.exceptions import ArgumentError, EncodeError
from relay.packing import DEPTH_LIMIT

__all__ = ["to_json"]


def to_json(value: Any, path: str, depth: int = 0) -> Any:
    """Return the value as django.tasks carries it: JSON's own types, and no others.

    Raises:
        ArgumentError: it has another type; a TypeError, as of Django's.
        EncodeError: bytes that are no text, or a value that contains itself.
    """
    if depth > DEPTH_LIMIT:
        raise EncodeError(path, "is nested too deep, or contains itself")
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise EncodeError(
                path, f"Unsupported value: {type(value)} that is no UTF-8"
            ) from None
    if isinstance(value, Mapping):
        return {
            key: to_json(item, f"{path}[{key!r}]", depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, Sequence):
        return [
            to_json(item, f"{path}[{index}]", depth + 1)
            for index, item in enumerate(value)
        ]
    raise ArgumentError(
        f"{path}: Unsupported type: {type(value)}; django.tasks carries JSON only: "
        "pass plain values, or the key to look it up by"
    )

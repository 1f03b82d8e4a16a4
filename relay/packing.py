"""Values as the plain ones that json can write; what cannot be carried is refused."""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db.models import Model

from relay.dataclass_names import class_name, registered

__all__ = [
    "DEPTH_LIMIT",
    "TAG",
    "Packer",
    "RefusedError",
    "clean_text",
    "is_plain",
    "shown",
]

# Source: docs/reference/arguments.md, "Limits". Deeper values are cycles or mistakes.
DEPTH_LIMIT: Final = 64
TEXT_LIMIT: Final = 10_000
# Source: sys.int_info.default_max_str_digits (4,300): longer numbers cannot be read.
_INTEGER_LIMIT_BITS: Final = 14_000
_PLAIN_INTEGER: Final = 2**63

# The key that marks a tagged value; a user's dict that has it is tagged itself.
TAG: Final = "__relay__"


def is_plain(value: Any) -> bool:
    """Tell whether JSON and jsonb surely carry a value as it is."""
    kind = type(value)
    if kind is str:
        return bool(value.isascii() and "\x00" not in value)
    if kind is int:
        return bool(-_PLAIN_INTEGER < value < _PLAIN_INTEGER)
    return value is None or kind is bool


class RefusedError(Exception):
    """A value that cannot be carried; containers add where it stands."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = []

    def path(self, root: str) -> str:
        return root + "".join(reversed(self.steps))


class Packer:
    """Turns values into what json can write; strict refuses what would be changed."""

    def __init__(self, *, strict: bool, depth: int = DEPTH_LIMIT) -> None:
        self.strict = strict
        self.depth = depth
        self.notes: list[RefusedError] = []

    def pack(self, value: Any, depth: int = 0) -> Any:
        kind = type(value)
        if kind is str:
            return self.text(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return self.integer(value)
        if depth > self.depth:
            raise RefusedError(
                f"is nested more than {self.depth} deep, or contains itself"
            )
        if kind is list or kind is tuple:
            return self.items(value, depth)
        if kind is dict:
            return self.mapping(value, depth)
        if kind is float:
            return self.number(value)
        return self.other(value, depth)

    def text(self, value: str) -> str:
        if value.isascii() and "\x00" not in value:
            return value
        if not self.strict:
            return clean_text(value, limit=None)
        if "\x00" in value:
            raise RefusedError(
                "contains the character NUL (\\x00), which PostgreSQL cannot store: "
                "remove it, or pass bytes"
            )
        try:
            value.encode()
        except UnicodeEncodeError as error:
            found = f"\\u{ord(value[error.start]):04x}"
            raise RefusedError(
                f"contains the lone surrogate {found}, which is no text: decode the "
                "bytes it came from, or pass them as bytes (os.fsencode)"
            ) from None
        return value

    def integer(self, value: int) -> int:
        if value.bit_length() > _INTEGER_LIMIT_BITS:
            raise RefusedError(
                f"is an integer of {value.bit_length()} bits; at most "
                f"{_INTEGER_LIMIT_BITS} are carried: pass it as bytes"
            )
        return value

    def number(self, value: float) -> Any:
        if not math.isfinite(value):
            refused = RefusedError(
                f"is {value!r}, which JSON cannot carry: use None or a finite number"
            )
            if self.strict:
                raise refused
            self.notes.append(refused)
            return None
        text = repr(value)
        # jsonb keeps neither the exponent (1e+16 would come back as an integer) nor
        # the sign of zero.
        if "e+" in text or text == "-0.0":
            return {TAG: "float", "value": text}
        return value

    def items(self, value: Any, depth: int) -> list[Any]:
        return [
            item if is_plain(item) else self.step(item, f"[{index}]", depth)
            for index, item in enumerate(value)
        ]

    def mapping(self, value: Any, depth: int) -> dict[str, Any]:
        packed: dict[str, Any] = {}
        for key, item in value.items():
            if type(key) is str and is_plain(key):
                packed[key] = (
                    item if is_plain(item) else self.step(item, f"[{key!r}]", depth)
                )
                continue
            if not isinstance(key, str) or isinstance(key, Enum):
                raise RefusedError(
                    f"has the key {shown(key)} of type {type(key).__name__}; JSON has "
                    "only text as keys: use str(key), or pass a list of pairs"
                )
            try:
                name = self.text(str(key))
            except RefusedError as refused:
                refused.reason = f"has a key that {refused.reason}"
                raise
            packed[name] = self.step(item, f"[{key!r}]", depth)
        return {TAG: "dict", "value": packed} if TAG in packed else packed

    def step(self, value: Any, step: str, depth: int) -> Any:
        noted = len(self.notes)
        try:
            packed = self.pack(value, depth + 1)
        except RefusedError as refused:
            refused.steps.append(step)
            raise
        for note in self.notes[noted:]:
            note.steps.append(step)
        return packed

    def other(self, value: Any, depth: int) -> Any:
        if isinstance(value, Enum):
            raise RefusedError(f"is the enum member {value!r}: pass its .value")
        for kind, pack in _PACKERS:
            if isinstance(value, kind):
                return {TAG: kind.__name__, **pack(value)}
        if isinstance(value, (set, frozenset)):
            tag = "set" if isinstance(value, set) else "frozenset"
            return {TAG: tag, "value": self.items(value, depth)}
        if isinstance(value, Model):
            return self.instance(value, depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self.fields(value, depth)
        return self.subclass(value, depth)

    def subclass(self, value: Any, depth: int) -> Any:
        # SafeString, OrderedDict, named tuples …: carried as what they are based on.
        if isinstance(value, str):
            return self.text(str.__str__(value))
        if isinstance(value, int):
            return self.integer(int(value))
        if isinstance(value, float):
            return self.number(float(value))
        if isinstance(value, (list, tuple)):
            return self.items(value, depth)
        if isinstance(value, dict):
            return self.mapping(value, depth)
        raise RefusedError(
            f"is a {type(value).__module__}.{type(value).__qualname__}, which cannot "
            "be carried: pass plain values, or the key to look it up by"
        )

    def instance(self, value: Model, depth: int) -> dict[str, Any]:
        label = value._meta.label
        if value.pk is None or value._state.adding:
            raise RefusedError(
                f"is a {label} that is not saved; it travels by its primary key: save "
                "it first"
            )
        packed = {
            TAG: "model",
            "model": label,
            "pk": self.step(value.pk, ".pk", depth),
        }
        if value._state.db not in (None, "default"):
            packed["using"] = value._state.db
        return packed

    def fields(self, value: Any, depth: int) -> dict[str, Any]:
        name = class_name(type(value))
        if registered(name) is not type(value):
            raise RefusedError(
                f"is the dataclass {name}, which no task's annotations name: decorate "
                "it with relay.codec.register, at the top level of its module"
            )
        packed = {
            field.name: self.step(getattr(value, field.name), f".{field.name}", depth)
            for field in dataclasses.fields(value)
            if field.init
        }
        return {TAG: "dataclass", "class": name, "value": packed}


def _pack_datetime(value: datetime) -> dict[str, Any]:
    packed = {"value": value.isoformat()}
    if isinstance(value.tzinfo, ZoneInfo) and value.tzinfo.key:
        packed["zone"] = value.tzinfo.key
    return packed


def _pack_time(value: time) -> dict[str, Any]:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise RefusedError(
            f"is {value!r}, a time in a zone without a date, which has no offset: "
            "pass a datetime"
        )
    return {"value": value.isoformat()}


# datetime before date, whose subclass it is.
_PACKERS: Final[tuple[tuple[type[Any], Callable[[Any], dict[str, Any]]], ...]] = (
    (datetime, _pack_datetime),
    (date, lambda value: {"value": value.isoformat()}),
    (time, _pack_time),
    (
        timedelta,
        lambda value: {"value": [value.days, value.seconds, value.microseconds]},
    ),
    (Decimal, lambda value: {"value": str(value)}),
    (UUID, lambda value: {"value": str(value)}),
    (bytes, lambda value: {"value": base64.b64encode(value).decode("ascii")}),
)


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def clean_text(text: str, *, limit: int | None = TEXT_LIMIT) -> str:
    r"""Return the text as PostgreSQL can store it, cut to at most limit characters.

    NUL and lone surrogates are shown as an escape: \x00, \udce9.
    """
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()
    text = text.replace("\x00", "\\x00")
    if limit is not None and len(text) > limit:
        return text[: max(limit - 1, 0)] + "…"
    return text

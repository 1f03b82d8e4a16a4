"""Values to JSON and back; what JSON or PostgreSQL cannot carry is refused.

Besides JSON's own types: datetime, date, time, timedelta, Decimal, UUID, bytes, set,
frozenset, dataclasses, and model instances by reference. A tuple comes back as a
list. Everything else is refused with the path of the offending value.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Model

from relay.dataclass_names import (
    class_name,
    register,
    register_annotations,
    registered,
)
from relay.exceptions import DecodeError, EncodeError

__all__ = [
    "adecode_arguments",
    "clean_text",
    "decode",
    "decode_arguments",
    "encode",
    "encode_arguments",
    "encode_result",
    "register",
    "register_annotations",
]

# Source: docs/reference/arguments.md, "Limits". Deeper values are cycles or mistakes;
# larger ones belong in a table or a file, with their key as the argument.
DEPTH_LIMIT: Final = 64
ARGUMENTS_LIMIT_BYTES: Final = 256 * 1024
RESULT_LIMIT_BYTES: Final = 1024 * 1024
TEXT_LIMIT: Final = 10_000
# Source: sys.int_info.default_max_str_digits (4,300): longer numbers cannot be read.
_INTEGER_LIMIT_BITS: Final = 14_000

# The key that marks a tagged value; a user's dict that has it is tagged itself.
_TAG: Final = "__relay__"

_dumps: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode


class _RefusedError(Exception):
    """A value that cannot be carried; containers add where it stands."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = []

    def path(self, root: str) -> str:
        return root + "".join(reversed(self.steps))


# --- values to JSON -------------------------------------------------------------


class _Packer:
    """Turns values into what json can write; strict refuses what would be changed."""

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.notes: list[_RefusedError] = []

    def pack(self, value: Any, depth: int = 0) -> Any:
        kind = type(value)
        if kind is str:
            return self.text(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return self.integer(value)
        if depth > DEPTH_LIMIT:
            raise _RefusedError(
                f"is nested more than {DEPTH_LIMIT} deep, or contains itself"
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
            raise _RefusedError(
                "contains the character NUL (\\x00), which PostgreSQL cannot store: "
                "remove it, or pass bytes"
            )
        try:
            value.encode()
        except UnicodeEncodeError as error:
            found = f"\\u{ord(value[error.start]):04x}"
            raise _RefusedError(
                f"contains the lone surrogate {found}, which is no text: decode the "
                "bytes it came from, or pass them as bytes (os.fsencode)"
            ) from None
        return value

    def integer(self, value: int) -> int:
        if value.bit_length() > _INTEGER_LIMIT_BITS:
            raise _RefusedError(
                f"is an integer of {value.bit_length()} bits; at most "
                f"{_INTEGER_LIMIT_BITS} are carried: pass it as bytes"
            )
        return value

    def number(self, value: float) -> Any:
        if not math.isfinite(value):
            refused = _RefusedError(
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
            return {_TAG: "float", "value": text}
        return value

    def items(self, value: Any, depth: int) -> list[Any]:
        packed = []
        for index, item in enumerate(value):
            packed.append(self.step(item, f"[{index}]", depth))
        return packed

    def mapping(self, value: Any, depth: int) -> dict[str, Any]:
        packed: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str) or isinstance(key, Enum):
                raise _RefusedError(
                    f"has the key {_shown(key)} of type {type(key).__name__}; JSON has "
                    "only text as keys: use str(key), or pass a list of pairs"
                )
            try:
                name = self.text(str(key))
            except _RefusedError as refused:
                refused.reason = f"has a key that {refused.reason}"
                raise
            packed[name] = self.step(item, f"[{key!r}]", depth)
        return {_TAG: "dict", "value": packed} if _TAG in packed else packed

    def step(self, value: Any, step: str, depth: int) -> Any:
        noted = len(self.notes)
        try:
            packed = self.pack(value, depth + 1)
        except _RefusedError as refused:
            refused.steps.append(step)
            raise
        for note in self.notes[noted:]:
            note.steps.append(step)
        return packed

    def other(self, value: Any, depth: int) -> Any:
        if isinstance(value, Enum):
            raise _RefusedError(f"is the enum member {value!r}: pass its .value")
        for kind, pack in _PACKERS:
            if isinstance(value, kind):
                return {_TAG: kind.__name__, **pack(value)}
        if isinstance(value, (set, frozenset)):
            tag = "set" if isinstance(value, set) else "frozenset"
            return {_TAG: tag, "value": self.items(value, depth)}
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
        raise _RefusedError(
            f"is a {type(value).__module__}.{type(value).__qualname__}, which cannot "
            "be carried: pass plain values, or the key to look it up by"
        )

    def instance(self, value: Model, depth: int) -> dict[str, Any]:
        label = value._meta.label
        if value.pk is None or value._state.adding:
            raise _RefusedError(
                f"is a {label} that is not saved; it travels by its primary key: save "
                "it first"
            )
        packed = {
            _TAG: "model",
            "model": label,
            "pk": self.step(value.pk, ".pk", depth),
        }
        if value._state.db not in (None, "default"):
            packed["using"] = value._state.db
        return packed

    def fields(self, value: Any, depth: int) -> dict[str, Any]:
        name = class_name(type(value))
        if registered(name) is not type(value):
            raise _RefusedError(
                f"is the dataclass {name}, which no task's annotations name: decorate "
                "it with relay.codec.register, at the top level of its module"
            )
        packed = {
            field.name: self.step(getattr(value, field.name), f".{field.name}", depth)
            for field in dataclasses.fields(value)
            if field.init
        }
        return {_TAG: "dataclass", "class": name, "value": packed}


def _pack_datetime(value: datetime) -> dict[str, Any]:
    packed = {"value": value.isoformat()}
    if isinstance(value.tzinfo, ZoneInfo) and value.tzinfo.key:
        packed["zone"] = value.tzinfo.key
    return packed


def _pack_time(value: time) -> dict[str, Any]:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise _RefusedError(
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


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _size_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _encode(value: object, path: str) -> str:
    packer = _Packer(strict=True)
    try:
        return _dumps(packer.pack(value))
    except _RefusedError as refused:
        raise EncodeError(refused.path(path), refused.reason) from None


def encode(value: object, path: str = "value") -> str:
    """Return the value as JSON text for a jsonb column.

    Raises:
        EncodeError: something in it cannot be carried; path says where it stands,
            counted from the given root.
    """
    return _encode(value, path)


def encode_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return a call's arguments as the JSON text of relay_job.args.

    Raises:
        EncodeError: an argument cannot be carried, or all are larger than 256 KiB.
    """
    text = (
        f'{{"args":{_encode(args, "args")},'
        f'"kwargs":{_encode_keywords(kwargs) if kwargs else "{}"}}}'
    )
    size = _size_bytes(text)
    if size > ARGUMENTS_LIMIT_BYTES:
        raise EncodeError(
            "args",
            f"are {size} bytes as JSON; at most {ARGUMENTS_LIMIT_BYTES} are stored "
            "with a job: save the data and pass its key",
        )
    return text


def _encode_keywords(kwargs: dict[str, Any]) -> str:
    if _TAG in kwargs:
        raise EncodeError(f"kwargs[{_TAG!r}]", "is a name that relay keeps for itself")
    return _encode(kwargs, "kwargs")


def encode_result(value: object) -> tuple[str, str | None]:
    """Return a task's result as JSON text, and a note if it is not all there.

    Never raises: the work is done, so its result must not make it run again. NaN and
    the infinities become null, NUL and lone surrogates a visible escape; a value that
    cannot be carried at all, or is larger than 1 MiB, is stored as null. The note
    says what was lost and where.
    """
    packer = _Packer(strict=False)
    try:
        text = _dumps(packer.pack(value))
        size = _size_bytes(text)
    except _RefusedError as refused:
        return _unstored(f"{refused.path('result')} {refused.reason}")
    except Exception as error:  # an edge: a value's own code may raise anything
        return _unstored(f"encoding it raised {type(error).__name__}")
    if size > RESULT_LIMIT_BYTES:
        return _unstored(f"it is {size} bytes as JSON, above {RESULT_LIMIT_BYTES}")
    if not packer.notes:
        return text, None
    lost = "; ".join(
        f"{note.path('result')} {note.reason.split(',')[0]}"
        for note in packer.notes[:5]
    )
    more = f" and {len(packer.notes) - 5} more" if len(packer.notes) > 5 else ""
    return text, clean_text(f"stored as null: {lost}{more}")


def _unstored(reason: str) -> tuple[str, str]:
    return "null", clean_text(f"result not stored: {reason}")


# --- JSON to values -------------------------------------------------------------


def decode(document: object) -> Any:
    """Return the value of a document that encode wrote and json has parsed.

    Raises:
        DecodeError: a model's row was deleted, a class is not known here, or the
            document was not written by encode.
    """
    try:
        return _decode(document)
    except RecursionError:
        raise DecodeError("the document is nested too deep to be read") from None


def _decode(document: object) -> Any:
    if isinstance(document, dict):
        if _TAG in document:
            return _decode_tagged(document)
        return {key: _decode(item) for key, item in document.items()}
    if isinstance(document, list):
        return [_decode(item) for item in document]
    return document


def decode_arguments(document: object) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and keyword arguments of a relay_job.args document.

    Raises:
        DecodeError: as decode, or the document is no pair of args and kwargs.
    """
    if isinstance(document, dict):
        args, kwargs = document.get("args", []), document.get("kwargs", {})
        if isinstance(args, list) and isinstance(kwargs, dict):
            # Its keys are names: none of them marks a tagged value.
            return decode(args), {key: decode(item) for key, item in kwargs.items()}
    raise DecodeError(
        f"{_shown(document)} holds no arguments: relay_job.args is "
        '{"args": [...], "kwargs": {...}}'
    )


async def adecode_arguments(document: object) -> tuple[list[Any], dict[str, Any]]:
    """As decode_arguments, for an event loop: model instances are read in a thread."""
    if _names_a_model(document):
        read = sync_to_async(decode_arguments, thread_sensitive=True)
        return await read(document)
    return decode_arguments(document)


def _names_a_model(document: object) -> bool:
    waiting = [document]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if item.get(_TAG) == "model":
                return True
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
    return False


def _decode_tagged(document: dict[str, Any]) -> Any:
    tag = document[_TAG]
    unpack = _UNPACKERS.get(tag) if isinstance(tag, str) else None
    if unpack is None:
        raise DecodeError(f"{_shown(tag)} is no kind of value that this relay knows")
    try:
        return unpack(document)
    except (ArithmeticError, KeyError, TypeError, ValueError, LookupError) as error:
        if isinstance(error, DecodeError):
            raise
        raise DecodeError(
            f"{_shown(document)} is not readable as {tag}: {error}"
        ) from error


def _unpack_datetime(document: dict[str, Any]) -> datetime:
    value = datetime.fromisoformat(document["value"])
    return value.astimezone(ZoneInfo(document["zone"])) if "zone" in document else value


def _unpack_model(document: dict[str, Any]) -> Model:
    model, key = apps.get_model(document["model"]), _decode(document["pk"])
    using = document.get("using", "default")
    try:
        instance: Model = model._base_manager.using(using).get(pk=key)
    except ObjectDoesNotExist:
        raise DecodeError(
            f"{document['model']} with primary key {key!r} no longer exists: it was "
            "deleted after the job was enqueued"
        ) from None
    return instance


def _unpack_dataclass(document: dict[str, Any]) -> Any:
    kind = registered(document["class"])
    if kind is None:
        raise DecodeError(
            f"the dataclass {_shown(document['class'])} is not known in this process: "
            "name it in a task's annotations, or decorate it with relay.codec.register"
        )
    return kind(**{name: _decode(item) for name, item in document["value"].items()})


_UNPACKERS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "datetime": _unpack_datetime,
    "date": lambda document: date.fromisoformat(document["value"]),
    "time": lambda document: time.fromisoformat(document["value"]),
    "timedelta": lambda document: timedelta(*document["value"]),
    "Decimal": lambda document: Decimal(document["value"]),
    "UUID": lambda document: UUID(document["value"]),
    "bytes": lambda document: base64.b64decode(document["value"], validate=True),
    "float": lambda document: float(document["value"]),
    "set": lambda document: {_hashable(item) for item in document["value"]},
    "frozenset": lambda document: frozenset(map(_hashable, document["value"])),
    "dict": lambda document: {
        key: _decode(item) for key, item in document["value"].items()
    },
    "model": _unpack_model,
    "dataclass": _unpack_dataclass,
}


def _hashable(document: object) -> Any:
    # A tuple in a set was stored as a list, which no set can hold.
    value = _decode(document)
    return _tuples(value) if isinstance(value, list) else value


def _tuples(value: list[Any]) -> tuple[Any, ...]:
    return tuple(_tuples(item) if isinstance(item, list) else item for item in value)


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

"""Values to JSON and back; what JSON or PostgreSQL cannot carry is refused.

Besides JSON's own types: datetime, date, time, timedelta, Decimal, UUID, bytes, set,
frozenset, dataclasses, and model instances by reference. A tuple comes back as a
list. Everything else is refused with the path of the offending value.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Model

from relay.dataclass_names import register, register_annotations, registered
from relay.exceptions import DecodeError, EncodeError
from relay.packing import (
    DEPTH_LIMIT,
    TAG,
    Packer,
    RefusedError,
    clean_text,
    is_plain,
    shown,
)

__all__ = [
    "adecode_arguments",
    "check_count",
    "clean_text",
    "decode",
    "decode_arguments",
    "encode",
    "encode_arguments",
    "encode_result",
    "register",
    "register_annotations",
]

# Unless the settings say otherwise. Source: docs/reference/arguments.md, "Limits".
# Larger values belong in a table or a file, with their key as the argument.
ARGUMENTS_LIMIT_BYTES: Final = 256 * 1024
RESULT_LIMIT_BYTES: Final = 1024 * 1024
# Of what comes from outside; the same source.
VALUES_LIMIT: Final = 10_000
_NESTED: Final = (list, tuple, dict)

_dumps: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode


# --- values to JSON -------------------------------------------------------------


def _size_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def encode(value: object, path: str = "value", *, depth: int = DEPTH_LIMIT) -> str:
    """Return the value as JSON text for a jsonb column.

    Args:
        depth: how deep it may be nested.

    Raises:
        EncodeError: something in it cannot be carried; path says where it stands,
            counted from the given root.
    """
    return _dumps(_pack(Packer(strict=True, depth=depth), value, path))


def _pack(packer: Packer, value: object, path: str) -> Any:
    try:
        return packer.pack(value)
    except RefusedError as refused:
        raise EncodeError(refused.path(path), refused.reason) from None


def encode_arguments(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    limit_bytes: int = ARGUMENTS_LIMIT_BYTES,
    depth: int = DEPTH_LIMIT,
) -> str:
    """Return a call's arguments as the JSON text of relay_job.args.

    Raises:
        EncodeError: an argument cannot be carried, or all are larger than the limit.
    """
    if TAG in kwargs:
        raise EncodeError(f"kwargs[{TAG!r}]", "is a name that relay keeps for itself")
    call: dict[str, Any] = {"args": args, "kwargs": kwargs}
    if not all(map(is_plain, (*args, *kwargs, *kwargs.values()))):
        packer = Packer(strict=True, depth=depth)
        call = {name: _pack(packer, given, name) for name, given in call.items()}
    text = _dumps(call)
    size = _size_bytes(text)
    if size > limit_bytes:
        raise EncodeError(
            "args",
            f"are {size} bytes as JSON; at most {limit_bytes} are stored with a job "
            "(RELAY['MAX_ARGUMENT_BYTES']): save the data and pass its key",
        )
    return text


def check_count(args: object, kwargs: object) -> None:
    """Refuse arguments from outside that hold more than 10,000 values.

    A text of "[[],[],…]" takes each reader of the row twenty times its size.
    Code may enqueue what it likes, within the limits of its size.

    Raises:
        EncodeError: they do, or contain themselves.
    """
    waiting: list[Any] = [each for each in (args, kwargs) if type(each) in _NESTED]
    count = 0
    while waiting:
        each = waiting.pop()
        count += len(each)
        if count > VALUES_LIMIT:
            raise EncodeError(
                "args",
                f"hold more than {VALUES_LIMIT:,} values: save the data and pass its "
                "key",
            )
        inner = each.values() if type(each) is dict else each
        waiting += [item for item in inner if type(item) in _NESTED]


def encode_result(
    value: object,
    *,
    limit_bytes: int = RESULT_LIMIT_BYTES,
    depth: int = DEPTH_LIMIT,
) -> tuple[str, str | None]:
    """Return a task's result as JSON text, and a note if it is not all there.

    Never raises: the work is done, so its result must not make it run again. NaN and
    the infinities become null, NUL and lone surrogates a visible escape; a value that
    cannot be carried at all, or is larger than the limit, is stored as null. The note
    says what was lost and where.
    """
    packer = Packer(strict=False, depth=depth)
    try:
        text = _dumps(packer.pack(value))
        size = _size_bytes(text)
    except RefusedError as refused:
        return _unstored(f"{refused.path('result')} {refused.reason}")
    except Exception as error:  # an edge: a value's own code may raise anything
        return _unstored(f"encoding it raised {type(error).__name__}")
    if size > limit_bytes:
        return _unstored(f"it is {size} bytes as JSON, above {limit_bytes}")
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
        if TAG in document:
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
        f"{shown(document)} holds no arguments: relay_job.args is "
        '{"args": [...], "kwargs": {...}}'
    )


async def adecode_arguments(document: object) -> tuple[list[Any], dict[str, Any]]:
    """As decode_arguments, for an event loop: model instances are read in a thread."""
    if _names_a_model(document):
        read = sync_to_async(decode_arguments, thread_sensitive=True)
        return await read(document)
    return decode_arguments(document)


# As json makes them.
_CONTAINERS: Final = (dict, list)


def _names_a_model(document: object) -> bool:
    waiting = [document]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if item.get(TAG) == "model":
                return True
            waiting += [each for each in item.values() if type(each) in _CONTAINERS]
        elif isinstance(item, list):
            waiting += [each for each in item if type(each) in _CONTAINERS]
    return False


def _decode_tagged(document: dict[str, Any]) -> Any:
    tag = document[TAG]
    unpack = _UNPACKERS.get(tag) if isinstance(tag, str) else None
    if unpack is None:
        raise DecodeError(f"{shown(tag)} is no kind of value that this relay knows")
    try:
        return unpack(document)
    except (ArithmeticError, KeyError, TypeError, ValueError, LookupError) as error:
        if isinstance(error, DecodeError):
            raise
        raise DecodeError(
            f"{shown(document)} is not readable as {tag}: {error}"
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
            f"the dataclass {shown(document['class'])} is not known in this process: "
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

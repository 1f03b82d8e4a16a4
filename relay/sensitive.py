"""Sensitive arguments and results: encrypted in the row, shown nowhere.

AES-256-GCM, one envelope for each value, in the value's own place of the document. The
table, the job's id and that place are bound into it, so that no ciphertext can be read
in another row or as another argument. Source: docs/howto/sensitive-arguments.md.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from asgiref.sync import sync_to_async

from relay import codec
from relay.conf import get_settings
from relay.envelopes import SEALED, is_current, is_sealed, open_, seal
from relay.exceptions import (
    DecodeError,
    EncodeError,
    MissingKey,
    SettingsError,
)
from relay.packing import TAG
from relay.sensitive_places import Place, path_of

__all__ = [
    "MASK",
    "adecode_arguments",
    "decode_arguments",
    "decode_result",
    "decode_step",
    "encode_result",
    "encode_step",
    "has_sealed",
    "is_sealed",
    "mask_arguments",
    "mask_text",
    "reseal_arguments",
    "reseal_result",
    "reseal_step",
    "seal_arguments",
]

MASK: Final = "•••"

_RESULT: Final = "result"
# Shorter values stand in texts by chance.
_LEAST_MASKED: Final = 3


def _decode(document: Any, job_id: UUID, field: str) -> Any:
    if not is_sealed(document):
        return codec.decode(document)
    text = open_(document, job_id, field)
    try:
        return codec.decode(json.loads(text))
    except (DecodeError, ValueError):
        pass  # raised below, where no message can follow as its context
    raise DecodeError(
        f"{field} cannot be turned back into a value: a row that it names was deleted, "
        "or its class is not known here; more is not told, as it is sensitive"
    )


# --- arguments -----------------------------------------------------------------------


def _items(document: Mapping[str, Any]) -> Iterator[tuple[Place, Any]]:
    for index, item in enumerate(document["args"]):
        yield ("args", index), item
    for name, item in document["kwargs"].items():
        yield ("kwargs", name), item


def seal_arguments(text: str, places: Collection[Place], job_id: UUID) -> str:
    """Return the document of codec.encode_arguments, encrypted in these places.

    Raises:
        SettingsError: there is no key.
        MissingKey: the current key cannot be fetched.
    """
    if not places:
        return text
    document = json.loads(text)
    for root, step in places:
        document[root][step] = seal(
            _dumps(document[root][step]), job_id, path_of((root, step))
        )
    return _dumps({**document, SEALED: True})


_dumps: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode


def has_sealed(document: object) -> bool:
    """Tell whether a job's arguments are encrypted, all or some."""
    return isinstance(document, dict) and SEALED in document


def decode_arguments(
    document: object, job_id: UUID
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a job; as codec.decode_arguments, with what is sealed.

    Raises:
        MissingKey: a key is not at hand in this process.
        DecodeError: something cannot be read, here or anywhere.
    """
    if not has_sealed(document):
        return codec.decode_arguments(document)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for place, item in _checked_items(document):
        value = _decode(item, job_id, path_of(place))
        if place[0] == "args":
            args.append(value)
        else:
            kwargs[str(place[1])] = value
    return args, kwargs


def _checked_items(document: Any) -> list[tuple[Place, Any]]:
    args, kwargs = document.get("args", []), document.get("kwargs", {})
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise DecodeError(
            'relay_job.args holds no arguments: it is {"args": [...], "kwargs": {...}}'
        )
    return list(_items({"args": args, "kwargs": kwargs}))


async def adecode_arguments(
    document: object, job_id: UUID
) -> tuple[list[Any], dict[str, Any]]:
    """As decode_arguments, for an event loop: what may wait is read in a thread."""
    if not has_sealed(document):
        return await codec.adecode_arguments(document)
    read = sync_to_async(decode_arguments, thread_sensitive=True)
    return await read(document, job_id)


def reseal_arguments(
    document: dict[str, Any], job_id: UUID, new_id: UUID
) -> dict[str, Any] | None:
    """Return a job's arguments, encrypted by the current key for another job.

    None if nothing is sealed, or all of it by that key for that job already.

    Raises:
        MissingKey: a key is not at hand in this process.
        DecodeError: something was altered or moved.
    """
    if not has_sealed(document):
        return None
    made = {**document, "args": list(document.get("args", []))}
    made["kwargs"] = dict(document.get("kwargs", {}))
    is_changed = False
    for (root, step), item in _checked_items(document):
        if is_sealed(item) and (job_id != new_id or not is_current(item)):
            field = path_of((root, step))
            made[root][step] = seal(open_(item, job_id, field), new_id, field)
            is_changed = True
    return made if is_changed else None


# --- results -------------------------------------------------------------------------


def encode_result(
    value: object, job_id: UUID, *, is_sensitive: bool
) -> tuple[str, str | None]:
    """As codec.encode_result within the settings' limits; encrypted if sensitive.

    Never raises: one that cannot be encrypted is stored as null.
    """
    if value is None and not is_sensitive:
        return "null", None
    settings = get_settings()
    text, note = codec.encode_result(
        value, limit_bytes=settings.max_result_bytes, depth=settings.max_depth
    )
    if not is_sensitive:
        return text, note
    if note is not None:
        note = "result not stored whole; as it is sensitive, more is not told"
    try:
        return _dumps(seal(text, job_id, _RESULT)), note
    except (MissingKey, SettingsError) as error:
        return "null", f"result not stored: {error}"


def decode_result(document: object, job_id: UUID) -> Any:
    """Return the value of a job's result.

    Raises:
        MissingKey: a key is not at hand in this process.
        DecodeError: it cannot be read.
    """
    return _decode(document, job_id, _RESULT)


def reseal_result(document: object, job_id: UUID) -> dict[str, str] | None:
    """Return a job's result, encrypted by the current key; None if it needs nothing.

    Raises:
        MissingKey, DecodeError: as reseal_arguments.
    """
    return _resealed(document, job_id, _RESULT)


def _resealed(document: object, job_id: UUID, field: str) -> dict[str, str] | None:
    if not isinstance(document, dict) or not is_sealed(document):
        return None
    if is_current(document):
        return None
    return seal(open_(document, job_id, field), job_id, field)


# --- steps ---------------------------------------------------------------------------


def encode_step(value: object, job_id: UUID, name: str, *, is_sensitive: bool) -> str:
    """Return the value of a job's step as JSON text; encrypted if sensitive.

    Raises:
        EncodeError: it cannot be carried, or is larger than RELAY["MAX_RESULT_BYTES"].
        MissingKey, SettingsError: it cannot be encrypted here.
    """
    settings, path = get_settings(), f"step {name!r}"
    try:
        text = codec.encode(value, path, depth=settings.max_depth)
        size = len(text.encode())
        if size > settings.max_result_bytes:
            raise EncodeError(
                path,
                f"is {size} bytes as JSON; at most {settings.max_result_bytes} are "
                "kept (RELAY['MAX_RESULT_BYTES']): save the data and return its key",
            )
    except EncodeError as error:
        if not is_sensitive:
            raise
        path = error.path[: len(path)]
    else:
        return _dumps(seal(text, job_id, _step(name))) if is_sensitive else text
    # Here: the first error, which may quote a value, must not follow this one.
    raise EncodeError(path, "cannot be kept; as it is sensitive, more is not told")


def decode_step(document: object, job_id: UUID, name: str) -> Any:
    """Return the value of a job's step.

    Raises:
        MissingKey: a key is not at hand in this process.
        DecodeError: it cannot be read.
    """
    return _decode(document, job_id, _step(name))


def reseal_step(document: object, job_id: UUID, name: str) -> dict[str, str] | None:
    """Return a step's value, encrypted by the current key; None if it needs nothing.

    Raises:
        MissingKey, DecodeError: as reseal_arguments.
    """
    return _resealed(document, job_id, _step(name))


def _step(name: str) -> str:
    return f"step[{name!r}]"


# --- what is shown -------------------------------------------------------------------


def mask_arguments(
    places: Collection[Place], args: Collection[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments with a mask in these places."""
    return (
        [
            MASK if ("args", place) in places else item
            for place, item in enumerate(args)
        ],
        {
            name: MASK if ("kwargs", name) in places else item
            for name, item in kwargs.items()
        },
    )


def mask_text(document: object, job_id: UUID, *texts: str) -> tuple[str, ...]:
    """Return texts without the sensitive arguments of the job that they tell of.

    A handler's error may well quote what it was given. Found are whole values, of text
    or numbers, also inside others, and whole lines of them, as logs begin each line
    anew; what a handler has computed from them is not.
    """
    if not has_sealed(document):
        return texts
    found: set[str] = set()
    try:
        for place, item in _checked_items(document):
            if is_sealed(item):
                found |= set(_leaves(json.loads(open_(item, job_id, path_of(place)))))
    except (MissingKey, DecodeError, ValueError):
        return texts  # the handler was given none of it
    for text in sorted(found, key=len, reverse=True):
        texts = tuple(each.replace(text, MASK) for each in texts)
    return texts


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if value.get(TAG) == "bytes":
            yield from _forms(_shown_bytes(value.get("value")))
        for name, item in value.items():
            if name != TAG:
                yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif not isinstance(value, bool) and value is not None:
        text = str(value)
        yield from _forms(text)
        lines = text.splitlines()
        for line in lines if len(lines) > 1 else ():
            yield from _forms(line.strip())


def _shown_bytes(text: Any) -> str:
    return repr(base64.b64decode(str(text)))[2:-1]


def _forms(text: str) -> Iterator[str]:
    """Give the text as it stands in messages: bare, in a repr, as JSON."""
    for form in (text, repr(text)[1:-1], json.dumps(text)[1:-1]):
        if len(form) >= _LEAST_MASKED:
            yield form

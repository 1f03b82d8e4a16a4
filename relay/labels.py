"""Tags and metadata: what a job carries for people and programs besides its arguments.

They are found by, shown and read; the handler is not called with them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from django.db import connections

from relay import codec
from relay.exceptions import ArgumentError
from relay.traces import META_NAME

__all__ = [
    "check_meta",
    "check_tag",
    "check_tags",
    "encode_meta",
    "joined_tags",
    "read_labels",
]

# Source: docs/howto/tags.md. Small, as every list and copy of a row carries them.
MOST_TAGS: Final = 20
LONGEST_TAG: Final = 100
META_LIMIT_BYTES: Final = 4_096
META_DEPTH: Final = 8
# The engine's own names in the column; see engine/finish.py.
_RESERVED: Final = frozenset({"row_keep_s", META_NAME})

_TAG: Final = re.compile(r"[^\x00-\x1f\x7f]+")

# Primary key. As text: Django's cursors do not parse jsonb.
READ: Final = "SELECT tags, meta::text FROM relay_job WHERE id = %(id)s"


def check_tag(value: object) -> str:
    """Return a tag.

    Raises:
        ArgumentError: it cannot be one.
    """
    if (
        isinstance(value, str)
        and len(value) <= LONGEST_TAG
        and _TAG.fullmatch(value)
        and value == value.strip()
    ):
        try:
            value.encode()
        except UnicodeEncodeError:
            pass
        else:
            return value
    raise ArgumentError(
        f"the tag {value!r}: give a text of 1 to {LONGEST_TAG} characters, without "
        "control characters and without spaces at its ends"
    )


def check_tags(value: object) -> tuple[str, ...]:
    """Return tags, each once, in the order given.

    Raises:
        ArgumentError: they are none, or too many.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise ArgumentError(
            f'tags={value!r}: give a list or tuple of texts, such as tags=("import",)'
        )
    return joined_tags(map(check_tag, value))


def joined_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return checked tags, each once.

    Raises:
        ArgumentError: they are too many for one job.
    """
    found = tuple(dict.fromkeys(tags))
    if len(found) > MOST_TAGS:
        raise ArgumentError(
            f"{len(found)} tags, {', '.join(map(repr, found[:3]))} …: give at most "
            f"{MOST_TAGS} to a job, those of its task among them"
        )
    return found


def check_meta(value: object) -> None:
    """Refuse what cannot be a job's metadata.

    Raises:
        ArgumentError, EncodeError: as encode_meta.
    """
    encode_meta(value)


def encode_meta(value: object) -> str | None:
    """Return metadata as JSON text; None if there is none.

    Raises:
        ArgumentError: it is no dict, too large, or uses a name of the engine's.
        EncodeError: something in it cannot be carried; its path is named.
    """
    if value is None or value == {}:
        return None
    if not isinstance(value, Mapping):
        raise ArgumentError(
            f'meta={value!r}: give a dict, such as meta={{"tenant": 7}}'
        )
    if taken := _RESERVED & value.keys():
        raise ArgumentError(
            f"meta has the name {min(taken)!r}, which relay uses itself: take another"
        )
    text = codec.encode(dict(value), "meta", depth=META_DEPTH)
    size = len(text.encode())
    if size > META_LIMIT_BYTES:
        raise ArgumentError(
            f"meta has {size:,} bytes of JSON; at most {META_LIMIT_BYTES:,} are kept: "
            "pass more as an argument, or the key of a row that holds it"
        )
    return text


def read_labels(job_id: UUID, *, using: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return a job's tags and metadata; none of a job without a row.

    Transaction: one statement on Django's connection.
    """
    with connections[using].cursor() as cursor:
        cursor.execute(READ, {"id": job_id})
        row = cursor.fetchone()
    tags, meta = row or (None, None)
    return tuple(tags or ()), _decode_meta(meta)


def _decode_meta(text: str | None) -> dict[str, Any]:
    document = json.loads(text) if text else {}
    for name in _RESERVED & document.keys():
        del document[name]
    found = codec.decode(document)
    return found if isinstance(found, dict) else {}

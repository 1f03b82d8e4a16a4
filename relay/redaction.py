"""Stored documents as a person may see them: without what is called a secret."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from inspect import Parameter, Signature
from typing import Any, Final

from relay.conf import get_settings
from relay.envelopes import SEALED, is_sealed
from relay.packing import TAG, clean_text
from relay.sensitive import MASK

__all__ = [
    "conceal",
    "is_secret_name",
    "know",
    "logged_arguments",
    "redact",
    "redact_value",
]

# Characters of a job's arguments in a log. Source: docs/reference/logs.md.
LOGGED_LENGTH: Final = 1_000

# As jsonb_pretty writes: one item a line, strings on one line each.
_LINE: Final = re.compile(r'( *)(?:"((?:[^"\\]|\\.)*)": )?(.*?)(,?)', re.DOTALL)
_ENVELOPE: Final = f'"{TAG}": "{SEALED}"'
_CLOSING: Final = {"{": "}", "[": "]"}


@cache
def _pattern(names: str) -> re.Pattern[str]:
    return re.compile(names, re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Tell whether what stands under the name is shown to nobody."""
    return _pattern(get_settings().redacted_names).search(name) is not None


def redact(text: str | None) -> str | None:
    """Return a document from jsonb_pretty, also a cut one, with masks for secrets.

    Masked is what stands under a name in which RELAY["REDACTED_NAMES"] is found, and
    what is encrypted. The values' lengths are not told either.
    """
    if text is None:
        return None
    pattern = _pattern(get_settings().redacted_names)
    return "\n".join(_redacted(text.split("\n"), pattern))


def redact_value(value: Any) -> Any:
    """Return a JSON value as redact() shows its text.

    Raises:
        RecursionError: it is nested deeper than Python can go.
    """
    return _without_secrets(value, _pattern(get_settings().redacted_names))


def _without_secrets(value: Any, pattern: re.Pattern[str]) -> Any:
    if isinstance(value, list):
        return [_without_secrets(item, pattern) for item in value]
    if not isinstance(value, dict):
        return value
    if is_sealed(value):
        return MASK
    return {
        name: MASK if pattern.search(name) else _without_secrets(item, pattern)
        for name, item in value.items()
    }


# --- what a job is called with, in a log ---------------------------------------------

_signatures: Final[dict[str, Signature]] = {}


def know(task: str, signature: Signature) -> None:
    """Take in what a task's arguments are called, so that secrets are told by it."""
    _signatures[task] = signature


def logged_arguments(task: str, document: Any) -> str:
    """Return a job's arguments as a log may have them: JSON, cut at 1,000 characters.

    Masked is what redact_value() masks, and what is passed by place under a name that
    is a secret's; where the task's code is not at hand, all that is passed by place.

    Args:
        document: of relay_job.args, or its text.
    """
    try:
        value = json.loads(document) if isinstance(document, str) else document
        args, kwargs = value.get("args", []), value.get("kwargs", {})
        shown = {
            "args": [
                redact_value(item) if _may_show(task, place) else MASK
                for place, item in enumerate(args)
            ],
            "kwargs": redact_value(kwargs),
        }
        text = json.dumps(shown, ensure_ascii=False, default=str)
    except (AttributeError, TypeError, ValueError, RecursionError):
        return MASK  # made by hand: a handler cannot be called with it either
    return clean_text(text, limit=LOGGED_LENGTH)


def _may_show(task: str, place: int) -> bool:
    """Tell whether the argument at a place has a name, and no secret's."""
    signature = _signatures.get(task)
    if signature is None:
        return False
    for number, each in enumerate(signature.parameters.values()):
        if each.kind is Parameter.VAR_POSITIONAL or number == place:
            return not is_secret_name(each.name)
    return False


def conceal(text: str | None) -> str | None:
    """Return a mask for the whole document: for who may not see payloads."""
    return None if text is None else MASK


def _redacted(lines: list[str], pattern: re.Pattern[str]) -> Iterator[str]:
    place = 0
    while place < len(lines):
        line = lines[place]
        place += 1
        found = _LINE.fullmatch(line)
        if found is None:
            yield line
            continue
        indent, name, value, comma = found.groups()
        is_secret = name is not None and pattern.search(name) is not None
        end = _end_of(lines, place, indent, value) if value in _CLOSING else place
        if not is_secret and not _is_envelope(lines[place:end], value):
            yield line
            continue
        if end > place:
            comma = "," if lines[end - 1].endswith(",") else ""
        place = end
        label = "" if name is None else f'"{name}": '
        yield f'{indent}{label}"{MASK}"{comma}'


def _end_of(lines: list[str], place: int, indent: str, opening: str) -> int:
    """Return the line after the one that closes what was opened before place."""
    closing = (indent + _CLOSING[opening], f"{indent}{_CLOSING[opening]},")
    for number in range(place, len(lines)):
        if lines[number] in closing:
            return number + 1
    return len(lines)


def _is_envelope(inner: list[str], opening: str) -> bool:
    # Of an envelope all is its own: no other document has the tag among its own keys.
    return (
        opening == "{"
        and len(inner) <= _ENVELOPE_LINES
        and any(line.strip().rstrip(",") == _ENVELOPE for line in inner)
    )


# Its three items and the closing line.
_ENVELOPE_LINES: Final = 4

"""Stored documents as a person may see them: without what is called a secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from relay.conf import get_settings
from relay.envelopes import SEALED, is_sealed
from relay.packing import TAG
from relay.sensitive import MASK

__all__ = ["conceal", "is_secret_name", "redact", "redact_value"]

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

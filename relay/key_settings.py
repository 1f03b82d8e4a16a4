"""What settings.RELAY["ENCRYPTION_KEYS"] says. No message may hold a value."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Final

from relay.exceptions import SettingsError

__all__ = ["EncryptionKey", "decode_key", "read_keys"]

_KEY_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
KEY_BYTES: Final = 32
_STANDARD: Final = str.maketrans("-_", "+/")

EncryptionKey = str | bytes | Callable[[], str | bytes]


def read_keys(value: object) -> dict[str, EncryptionKey]:
    """Return the keys, also of the text form 'id:base64,id:base64' of a variable.

    Raises:
        SettingsError: it is none of both, or a key is none.
    """
    if isinstance(value, str):
        pairs = [part.strip().partition(":") for part in value.split(",") if part]
        if not all(colon for _, colon, _ in pairs):
            raise _keys_refused("is a text without key ids, such as 'id:base64'")
        if len({name for name, _, _ in pairs}) < len(pairs):
            raise _keys_refused("names a key twice")
        value = {name: key for name, _, key in pairs}
    if not isinstance(value, Mapping):
        raise _keys_refused(f"is a {type(value).__name__}")
    for name, key in value.items():
        if not isinstance(name, str) or not _KEY_ID.fullmatch(name):
            raise _keys_refused(
                "has a key id that is not 1 to 64 letters, digits, '_', '.' or '-'"
            )
        if not callable(key) and decode_key(key) is None:
            raise _keys_refused(f"holds no {KEY_BYTES} bytes under {name!r}")
    return dict(value)


def decode_key(value: object) -> bytes | None:
    """Return the bytes of a key, as they are or as base64; None if it is no key."""
    if isinstance(value, str):
        try:
            value = base64.b64decode(value.strip().translate(_STANDARD), validate=True)
        except (binascii.Error, ValueError):
            return None
    if isinstance(value, bytes) and len(value) == KEY_BYTES:
        return value
    return None


def _keys_refused(reason: str) -> SettingsError:
    return SettingsError(
        f"RELAY['ENCRYPTION_KEYS'] {reason}: give a dict of key ids and keys, the "
        f"current one first; a key is {KEY_BYTES} bytes as base64, or a callable that "
        "returns it"
    )

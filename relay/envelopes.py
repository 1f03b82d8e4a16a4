"""Values encrypted by a ring of keys, each bound to where it stands.

AES-256-GCM, one envelope for each value. Source: docs/howto/sensitive-arguments.md.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from relay.conf import Settings, get_settings
from relay.exceptions import DecodeError, MissingKey, SettingsError
from relay.key_settings import decode_key
from relay.packing import TAG

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["SEALED", "is_current", "is_sealed", "open_", "seal"]

# The tag of an envelope, and the key of an arguments document that holds some.
SEALED: Final = "sealed"
_TABLE: Final = "relay_job"
# Source: NIST SP 800-38D, 5.2.1.1; random, so at most 2**32 values for one key.
_NONCE_BYTES: Final = 12

# --- keys ----------------------------------------------------------------------------


class _Ring:
    """The keys of one Settings object, each read once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._ciphers: dict[str, AESGCM] = {}

    def current(self) -> str:
        for key_id in self.settings.encryption_keys:
            return key_id
        raise SettingsError(
            "RELAY['ENCRYPTION_KEYS'] is empty, and an argument or a result is "
            "sensitive: give a dict of key ids and keys"
        )

    def cipher(self, key_id: str) -> AESGCM:
        found = self._ciphers.get(key_id)
        if found is None:
            found = self._ciphers[key_id] = _cipher(
                key_id, self.settings.encryption_keys.get(key_id)
            )
        return found


def _cipher(key_id: str, value: Any) -> AESGCM:
    if value is None:
        raise MissingKey(
            key_id, "is not in RELAY['ENCRYPTION_KEYS'] of this process: add it there"
        )
    try:
        # Here: it belongs to an extra, and costs a process that needs none of it.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise MissingKey(
            key_id, "is of no use here: install 'django-relay[crypto]'"
        ) from None
    failure = ""
    if callable(value):
        try:
            value = value()
        except Exception as error:  # an edge: a provider's own code, message unknown
            failure = (
                f"could not be fetched: its callable raised {type(error).__name__}"
            )
    key = None if failure else decode_key(value)
    if key is None:
        raise MissingKey(
            key_id, failure or "could not be fetched: its callable returned no key"
        )
    return AESGCM(key)


_last: _Ring | None = None


def _ring() -> _Ring:
    global _last
    settings, ring = get_settings(), _last
    if ring is None or ring.settings is not settings:
        ring = _last = _Ring(settings)
    return ring


# --- envelopes -----------------------------------------------------------------------


def _bound_to(job_id: UUID, field: str) -> bytes:
    return json.dumps([_TABLE, str(job_id), field]).encode()


def seal(text: str, job_id: UUID, field: str) -> dict[str, str]:
    """Return the text as an envelope, by the current key.

    Raises:
        SettingsError: there is no key.
        MissingKey: it cannot be fetched.
    """
    ring = _ring()
    key_id = ring.current()
    nonce = os.urandom(_NONCE_BYTES)
    sealed = ring.cipher(key_id).encrypt(nonce, text.encode(), _bound_to(job_id, field))
    return {
        TAG: SEALED,
        "key": key_id,
        "value": base64.b64encode(nonce + sealed).decode("ascii"),
    }


def is_sealed(document: object) -> bool:
    """Tell whether it is an envelope; no value of a caller's can look like one."""
    return isinstance(document, dict) and document.get(TAG) == SEALED


def open_(envelope: Mapping[str, Any], job_id: UUID, field: str) -> str:
    """Return the JSON text in the envelope.

    Raises:
        MissingKey: its key is not at hand.
        DecodeError: it was altered, or belongs to another job or argument.
    """
    key_id, value = envelope.get("key"), envelope.get("value")
    try:
        data = base64.b64decode(str(value), validate=True)
    except ValueError:
        data = b""
    if not isinstance(key_id, str) or len(data) <= _NONCE_BYTES:
        raise _unreadable(field)
    cipher = _ring().cipher(key_id)
    from cryptography.exceptions import InvalidTag  # here: as above

    nonce, sealed = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
    try:
        return cipher.decrypt(nonce, sealed, _bound_to(job_id, field)).decode()
    except (InvalidTag, ValueError):
        raise _unreadable(field) from None


def _unreadable(field: str) -> DecodeError:
    return DecodeError(
        f"{field} cannot be decrypted: it was altered, moved here from another job or "
        "argument, or encrypted by another key of the same id"
    )


def is_current(envelope: Mapping[str, Any]) -> bool:
    """Tell whether it was made by the current key."""
    return bool(envelope.get("key") == _ring().current())

"""What settings.RELAY["QUEUES"] says of single queues, where it is a dict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from relay.exceptions import ArgumentError, SettingsError
from relay.retention import DEFAULT, Retention

__all__ = ["read_permissions", "read_retention"]

_KEYS: Final = frozenset({"RETENTION", "PERMISSION"})


def read_retention(queues: Mapping[str, object]) -> dict[str, Retention]:
    """Return how long the jobs of each queue are kept.

    Raises:
        SettingsError: a key is unknown or a value cannot be used.
    """
    found: dict[str, Retention] = {}
    for name, given in queues.items():
        try:
            found[name] = Retention.of(_options(name, given).get("RETENTION", DEFAULT))
        except ArgumentError as error:
            raise SettingsError(f"RELAY['QUEUES'][{name!r}]: {error}") from error
    return found


def read_permissions(queues: Mapping[str, object]) -> dict[str, str]:
    """Return the permission that each queue asks for, of those that ask for one.

    Raises:
        SettingsError: a key is unknown or a value cannot be used.
    """
    found: dict[str, str] = {}
    for name, given in queues.items():
        permission = _options(name, given).get("PERMISSION")
        if permission is None:
            continue
        if not isinstance(permission, str):
            raise SettingsError(
                f"RELAY['QUEUES'][{name!r}]['PERMISSION'] is {permission!r}: give a "
                "permission of Django's, such as 'billing.charge', or None"
            )
        found[name] = permission
    return found


def _options(name: str, given: object) -> Mapping[str, Any]:
    if isinstance(given, Mapping) and given.keys() <= _KEYS:
        return given
    raise SettingsError(
        f"RELAY['QUEUES'][{name!r}] is {given!r}: give a dict with nothing but "
        "RETENTION and PERMISSION, or an empty one"
    )

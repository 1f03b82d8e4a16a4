"""Settings, options, states and signals: each name of the code has its row."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

from docs.site.tables import kept
from relay import signals
from relay.conf import ApiSettings, OtelSettings, Settings
from relay.models import FINAL_STATES, JobState
from relay.options import EnqueueOptions, TaskOptions
from relay.retry import Backoff

__all__ = ["MAKERS"]

_UNITS: Final = {86_400: "day", 3_600: "h", 60: "min", 1: "s"}


def _span(value: timedelta) -> str:
    seconds = int(value.total_seconds())
    for size, unit in _UNITS.items():
        if seconds >= size and seconds % size == 0:
            count = seconds // size
            return f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''}"
    return "0"


def _bytes(value: int) -> str:
    if value % (1 << 20) == 0:
        return f"{value >> 20} MiB"
    return f"{value >> 10} KiB"


def _shown(name: str, value: object) -> str:
    """Return a default as a reader would write it."""
    if isinstance(value, timedelta):
        return _span(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return _bytes(value) if name.endswith("_bytes") else f"`{value:,}`"
    if isinstance(value, str):
        text = value.replace("|", "\\|")
        return f'`"{text}"`'
    if isinstance(value, tuple):
        inner = ", ".join(f'"{each}"' for each in value)
        return f"`[{inner}]`"
    if isinstance(value, Backoff):
        return "`Backoff()`"
    if isinstance(value, Mapping) or dataclasses.is_dataclass(value):
        return "`{}`"
    return f"`{value}`"


def _comments(kind: type) -> dict[str, str]:
    """Return what stands above each field in the code."""
    found: dict[str, str] = {}
    said: list[str] = []
    for line in inspect.getsource(kind).splitlines():
        text = line.strip()
        field = re.match(r"(\w+): ", text)
        if text.startswith("#"):
            said.append(text.lstrip("# "))
        elif field and said:
            found[field[1]] = " ".join(said)
            said = []
    return found


def _settings(
    kind: type[Settings | ApiSettings | OtelSettings],
) -> dict[str, tuple[str, str]]:
    words = _comments(kind)
    values = kind()
    return {
        field.name.upper(): (
            _shown(field.name, getattr(values, field.name)),
            words.get(field.name, ""),
        )
        for field in dataclasses.fields(kind)
        if field.init
    }


def _attributes(kind: type) -> dict[str, str]:
    """Return what a docstring says of each attribute."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in (inspect.getdoc(kind) or "").splitlines():
        begun = re.match(r" {4}(\w+(?:, \w+)*): (.+)", line)
        if begun:
            names = begun[1].split(", ")
            found |= dict.fromkeys(names, begun[2])
        elif line.startswith(" " * 8):
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return found


def _options(kind: type, *more: str) -> dict[str, tuple[str, ...]]:
    words = _attributes(kind)
    return {name: (*more, words.get(name, "")) for name in kind.__annotations__}


def _states() -> dict[str, tuple[str, ...]]:
    return {
        state.value: ("final" if state in FINAL_STATES else "live", "", "", "")
        for state in JobState
    }


MAKERS: Final[dict[str, Callable[[str], str]]] = {
    "settings": lambda old: kept(
        old, ("key", "default", "meaning"), _settings(Settings), facts=[1]
    ),
    "api_settings": lambda old: kept(
        old, ("key", "default", "meaning"), _settings(ApiSettings), facts=[1]
    ),
    "otel_settings": lambda old: kept(
        old, ("key", "default", "meaning"), _settings(OtelSettings), facts=[1]
    ),
    "task_options": lambda old: kept(
        old, ("option of `@task`", "default", "meaning"), _options(TaskOptions, "")
    ),
    "enqueue_options": lambda old: kept(
        old,
        ("option of `using` and `enqueue(name)`", "meaning"),
        _options(EnqueueOptions),
    ),
    "states": lambda old: kept(
        old,
        ("state", "", "meaning", "leaves it by", "`django.tasks`"),
        _states(),
        facts=[1],
    ),
    "signals": lambda old: kept(
        old,
        ("signal", "sent", "besides `job`, `queue`"),
        dict.fromkeys(signals.__all__, ("", "")),
    ),
}

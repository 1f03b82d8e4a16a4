"""E004, E008, E010-E012, W003, W011, W016: what tasks, schedules and paths tell."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from importlib.util import find_spec
from typing import Any, Final
from uuid import UUID

from django.core.checks import CheckMessage
from django.db.models import Model
from django.utils.module_loading import import_string

from relay import codec
from relay.checks.messages import error, readable_settings, warning
from relay.exceptions import EncodeError, SettingsError
from relay.options import can_limit_memory
from relay.scheduler.registry import declared
from relay.tasks import Task, all_tasks, known_queues
from relay.worker.middleware import import_factory

__all__ = [
    "check_access",
    "check_arguments",
    "check_declared",
    "check_memory_limits",
    "check_middleware",
    "check_sensitive",
    "check_tasks",
    "unknown_queue",
]


def check_tasks(**_: object) -> list[CheckMessage]:
    """E008: workers cannot import the module of a task."""
    return [
        error(
            "E008",
            f"the task {made.name!r} stands in {made.function.__module__}, which "
            "workers cannot import: its jobs would be handed back until they fail",
            "Move the function into the tasks.py of an installed app.",
            obj=made.name,
        )
        for made in all_tasks().values()
        if not _is_importable(made.function.__module__)
    ]


def _is_importable(module: str) -> bool:
    if module == "__main__":
        return False
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def check_sensitive(**_: object) -> list[CheckMessage]:
    """E010: a task has sensitive arguments, and there is nothing to encrypt them by."""
    relay = readable_settings()
    if relay is None or relay.encryption_keys:
        return []
    return [
        error(
            "E010",
            f"the task {made.name!r} has sensitive arguments, and "
            "RELAY['ENCRYPTION_KEYS'] is empty: its jobs cannot be enqueued",
            "Give a key, as docs/howto/sensitive-arguments.md shows.",
            obj=made.name,
        )
        for made in all_tasks().values()
        if made.sensitive
    ]


def check_memory_limits(**_: object) -> list[CheckMessage]:
    """W016: a task has a memory limit, and nothing here enforces one."""
    if can_limit_memory():
        return []
    return [
        warning(
            "W016",
            f"the task {made.name!r} has a memory_limit, and {sys.platform} does not "
            "hold processes to one: its handlers may take any amount",
            "Run its workers on Linux.",
            obj=made.name,
        )
        for made in all_tasks().values()
        if made.memory_limit is not None
    ]


def check_middleware(**_: object) -> list[CheckMessage]:
    """E011: what RELAY["MIDDLEWARE"] names cannot stand around a handler."""
    relay = readable_settings()
    found: list[CheckMessage] = []
    for path in relay.middleware if relay is not None else ():
        try:
            import_factory(path)
        except SettingsError as refused:
            hint = "How to write one stands in docs/howto/middleware.md."
            found.append(error("E011", str(refused), hint))
    return found


def check_access(**_: object) -> list[CheckMessage]:
    """E012: what is to tell who may do what cannot be imported."""
    relay = readable_settings()
    if relay is None:
        return []
    paths = [("ACCESS", relay.access)] if relay.access is not None else []
    if find_spec("rest_framework") is not None:  # else there is no API to close
        name = "API']['AUTHENTICATION_CLASSES"
        paths += [(name, path) for path in relay.api.authentication_classes]
    return [
        error(
            "E012",
            f"RELAY['{name}'] names {path!r}, which cannot be imported ({reason}): "
            "every request would fail",
            "Give dotted paths; docs/reference/settings.md says of what.",
        )
        for name, path in paths
        if (reason := _import_error(path)) is not None
    ]


def _import_error(path: str) -> str | None:
    try:
        import_string(path)
    except ImportError as refused:
        return str(refused)
    return None


def check_declared(**_: object) -> list[CheckMessage]:
    """E004 and W003: what @cron declares for a task or a queue that is not there."""
    found: list[CheckMessage] = []
    queues = known_queues() if readable_settings() is not None else None
    for schedule in declared().values():
        if schedule.task not in all_tasks():
            found.append(
                error(
                    "E004",
                    f"@cron declares the schedule {schedule.name!r} for the task "
                    f"{schedule.task!r}, which is not registered",
                    "Write @cron above @task, which registers the function.",
                )
            )
        if queues is not None and schedule.queue not in {None, *queues}:
            found.append(unknown_queue(schedule.name, str(schedule.queue)))
    return found


def unknown_queue(schedule: str, queue: str) -> CheckMessage:
    return warning(
        "W003",
        f"the schedule {schedule!r} puts its jobs into the queue {queue!r}, which "
        "neither RELAY['QUEUES'] nor a task names: no worker serves it",
        "Correct the name, or add it to RELAY['QUEUES'].",
    )


def check_arguments(**_: object) -> list[CheckMessage]:
    """W011: a task's parameter asks for, or defaults to, what JSON cannot carry."""
    return [
        warning(
            "W011",
            f"the parameter {name!r} of the task {made.name!r} {reason}",
            "Pass plain values, or the key by which the handler looks it up; what can "
            "travel stands in docs/reference/arguments.md.",
            obj=made.name,
        )
        for made in all_tasks().values()
        for name, reason in _find_uncarried(made)
    ]


def _find_uncarried(made: Task[..., Any]) -> Iterator[tuple[str, str]]:
    try:
        hints = typing.get_type_hints(made.function)
    except Exception:  # a name that is not defined here, or never
        hints = {}
    for name, parameter in made.signature.parameters.items():
        refused = _find_refused(hints.get(name))
        if refused is not None:
            yield name, f"is annotated with {refused}, which no job can carry"
        elif parameter.default is not inspect.Parameter.empty:
            try:
                codec.encode(parameter.default, "its default")
            except EncodeError as error:
                yield name, f"cannot be passed what it defaults to: {error}"


_CARRIED: Final = (
    str,
    int,
    float,
    type(None),
    list,
    tuple,
    dict,
    set,
    frozenset,
    bytes,
    date,
    time,
    timedelta,
    Decimal,
    UUID,
    Model,
)


def _find_refused(hint: Any) -> str | None:
    """Return what in an annotation can surely not be carried."""
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return None
    if origin is not None:
        is_class = isinstance(origin, type) and origin is not types.UnionType
        if is_class and (refused := _find_refused(origin)) is not None:
            return refused
        parts = typing.get_args(hint)
        if is_class and issubclass(origin, dict) and parts[:1] not in ((), (str,)):
            return f"{_name(hint)} (JSON has only text as keys)"
        found = map(_find_refused, parts)
        return next(filter(None, found), None)
    if not isinstance(hint, type) or hint in (object, Any):
        return None
    if issubclass(hint, Enum):
        return f"{_name(hint)} (pass its .value)"
    if hint is Callable:
        return "a callable"
    is_open = inspect.isabstract(hint) or getattr(hint, "_is_protocol", False)
    if is_open or issubclass(hint, _CARRIED) or dataclasses.is_dataclass(hint):
        return None
    return _name(hint)


def _name(hint: Any) -> str:
    if isinstance(hint, type) and typing.get_origin(hint) is None:
        return f"{hint.__module__}.{hint.__qualname__}"
    return str(hint)

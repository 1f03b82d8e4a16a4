"""What a body of REST says, as relay.operations takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from relay.models import Schedule
from relay.unique import Unique

__all__ = ["edit_options", "enqueue_options", "plan_options", "set_schedule"]


def _seconds(value: float | None) -> timedelta | None:
    return None if value is None else timedelta(seconds=value)


def _instant(value: str | None) -> datetime | None:
    return None if value is None else datetime.fromisoformat(value)


def _unique(values: Mapping[str, Any]) -> Unique:
    return Unique(key=values.get("key"), for_=_seconds(values.get("for")))


# Name in the body -> name of the option, and how it is read.
_OPTIONS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "timeout": ("timeout", _seconds),
    "delay": ("run_in", _seconds),
    "run_at": ("run_at", _instant),
    "deadline": ("deadline", _instant),
    "unique": ("unique", _unique),
}


def enqueue_options(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a job, without its task and arguments."""
    return _read(body, without=("task", "args", "kwargs"))


def edit_options(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what shall change of a job."""
    return _read(body)


def _read(body: Mapping[str, Any], without: tuple[str, ...] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in body.items():
        if name not in without:
            option, read = _OPTIONS.get(name, (name, lambda given: given))
            found[option] = read(value)
    return found


# --- schedules -----------------------------------------------------------------------

_COLUMNS: Final[Mapping[str, str]] = {
    "every": "every_ms",
    "spread": "spread_ms",
    "success_within": "success_within_ms",
    "catch_up_window": "catch_up_window_ms",
}
_INSTANTS: Final = frozenset({"once_at", "starts_at", "ends_at"})


def set_schedule(schedule: Schedule, body: Mapping[str, Any]) -> list[str]:
    """Set what a body says on a row; return the columns that it is about."""
    changed: dict[str, Any] = {}
    for name, value in body.items():
        if name in _COLUMNS:
            changed[_COLUMNS[name]] = None if value is None else round(value * 1_000)
        elif name in _INSTANTS:
            changed[name] = _instant(value)
        elif name not in ("args", "kwargs"):
            changed[name] = value
    if "cron" in body:
        changed["cron"] = body["cron"] or ""
        changed["seconds"] = len(changed["cron"].split()) == 6
    if "args" in body or "kwargs" in body:
        changed["args"] = {
            "args": body.get("args", []),
            "kwargs": body.get("kwargs", {}),
        }
    for name, value in changed.items():
        setattr(schedule, name, value)
    return list(changed)


def plan_options(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what relay.queries.preview takes."""
    return {
        "cron": body["cron"],
        "seconds": len(body["cron"].split()) == 6,
        "timezone": body["timezone"],
        "limit": body["n"],
    }

"""Tasks to make a load of."""

from __future__ import annotations

from relay import Unique, task

__all__ = ["greet", "once", "once_or_raise"]


@task(queue="default")
def greet(name: str, *, loud: bool = False) -> str:
    return name.upper() if loud else name


@task(unique=Unique())
def once() -> None: ...


@task(unique=Unique(on_conflict="raise"))
def once_or_raise() -> None: ...

"""Simple tasks for the tests."""

from __future__ import annotations

import asyncio
from typing import Any

from relay import task

__all__ = ["aadd", "add", "afail", "echo", "fail"]


@task
def add(a: int, b: int) -> int:
    return a + b


@task
def echo(value: Any) -> Any:
    return value


@task
def fail(message: str) -> None:
    raise ValueError(message)


@task
async def aadd(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


@task
async def afail(message: str) -> None:
    await asyncio.sleep(0)
    raise ValueError(message)

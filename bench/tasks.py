"""Handlers that do nothing, so that only relay is measured."""

from __future__ import annotations

from relay import task

__all__ = ["anoop", "late", "noop"]


@task
def noop(number: int) -> None:
    """Do nothing in a thread."""


@task
async def anoop(number: int) -> None:
    """Do nothing on the event loop."""


@task
def late(number: int) -> None:
    """Do nothing, for rows that are told apart from live traffic."""

"""Handlers that do next to nothing, so that only relay is measured."""

from __future__ import annotations

from django.db.models import F

from bench.models import Item
from bench.record import note
from relay import Unique, task

__all__ = ["anoop", "keyed", "late", "noop", "remind", "touch", "touch_item"]


@task
def noop(n: int) -> None:
    """Note the start, in a thread."""
    note(n)


@task
async def anoop(n: int) -> None:
    """Note the start, on the event loop."""
    note(n)


@task
def late(n: int) -> None:
    """Note the start, for rows that are told apart from live traffic."""
    note(n)


@task
def remind(n: int, text: str) -> None:
    """Note the start of a job that is due much later, and is not as long as others."""
    note(n)


@task(unique=Unique())
def keyed(n: int) -> None:
    """Note the start of a job that has a unique key."""
    note(n)


@task
def touch(n: int) -> None:
    """Read one row by the ORM and write it."""
    touch_item(n)


def touch_item(n: int) -> None:
    """Do what touch does; for a bare thread pool as well."""
    note(n)
    item = Item.objects.get(pk=n % Item.ROWS + 1)
    Item.objects.filter(pk=item.pk).update(value=F("value") + 1)

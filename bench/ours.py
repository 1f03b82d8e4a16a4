"""relay as a user calls it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from bench.contenders import EnqueueMany, EnqueueOne
from bench.models import Item
from bench.tasks import anoop, keyed, noop, remind, touch
from relay import enqueue_many
from relay.tasks import Task

__all__ = [
    "enqueuing",
    "enqueuing_many",
    "enqueuing_many_coroutine",
    "enqueuing_many_keyed",
    "enqueuing_many_scheduled",
    "enqueuing_many_touch",
    "set_up",
    "work",
]


def set_up() -> None:
    """Lay the schema, and fill the table of the ORM measurement."""
    call_command("migrate", verbosity=0, run_syncdb=True)
    Item.objects.bulk_create(Item(name=f"item {n}") for n in range(Item.ROWS))


@contextmanager
def enqueuing() -> Iterator[EnqueueOne]:
    """Connect; give what enqueues one job, committed."""
    connection.ensure_connection()
    yield lambda number: noop.enqueue(n=number)


@contextmanager
def _bulk(task: Task[..., None]) -> Iterator[EnqueueMany]:
    def enqueue(numbers: Iterable[int]) -> None:
        enqueue_many([task.job(n=number) for number in numbers])

    connection.ensure_connection()
    yield enqueue


@contextmanager
def enqueuing_many_scheduled() -> Iterator[EnqueueMany]:
    """Connect; give what enqueues many jobs, due from tomorrow on.

    Their texts are of 0 to 63 characters, as arguments differ in length. Rows that are
    all alike may leave room on every page for just one that is a little shorter.
    """
    tomorrow = timezone.now() + timedelta(days=1)

    def enqueue(numbers: Iterable[int]) -> None:
        enqueue_many(
            [
                remind.using(run_at=tomorrow + timedelta(seconds=number)).job(
                    n=number, text="x" * (number * 37 % 64)
                )
                for number in numbers
            ]
        )

    connection.ensure_connection()
    yield enqueue


enqueuing_many = partial(_bulk, noop)
enqueuing_many_coroutine = partial(_bulk, anoop)
enqueuing_many_keyed = partial(_bulk, keyed)
enqueuing_many_touch = partial(_bulk, touch)


def work() -> None:
    """Run a worker in the foreground."""
    call_command("relay_worker", processes=1)

"""procrastinate at its best: a coroutine task, ten at once, finished jobs kept."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import procrastinate

from bench.contenders import EnqueueMany, EnqueueOne
from bench.record import note

__all__ = ["enqueuing", "enqueuing_many", "set_up", "work"]

CONCURRENCY = 10

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=os.environ["DATABASE_URL"])
)


async def _noop(n: int) -> None:
    note(n)


noop = app.task(name="noop", queue="default")(_noop)


def set_up() -> None:
    with app.open():
        app.schema_manager.apply_schema()


@contextmanager
def enqueuing() -> Iterator[EnqueueOne]:
    with app.open():
        yield lambda number: noop.defer(n=number)


@contextmanager
def enqueuing_many() -> Iterator[EnqueueMany]:
    def enqueue(numbers: Iterable[int]) -> None:
        noop.batch_defer(*({"n": number} for number in numbers))

    with app.open():
        yield enqueue


def work() -> None:
    app.run_worker(concurrency=CONCURRENCY)

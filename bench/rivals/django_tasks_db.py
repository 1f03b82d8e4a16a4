"""django-tasks-db: one task at a time in a process, by polling; no bulk enqueue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management import call_command
from django.db import connection
from django.tasks import task

from bench.contenders import EnqueueOne
from bench.record import note

__all__ = ["enqueuing", "set_up", "work"]


@task()
def noop(n: int) -> None:
    note(n)


def set_up() -> None:
    call_command("migrate", verbosity=0)


@contextmanager
def enqueuing() -> Iterator[EnqueueOne]:
    connection.ensure_connection()
    yield lambda number: noop.enqueue(n=number)


def work() -> None:
    call_command("db_worker", startup_delay=False, reload=False)

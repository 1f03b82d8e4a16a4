"""Who is measured: relay, the engine's statements alone, and the rivals installed.

Each has a module of the functions in Adapter, run in processes of its own by
bench/client.py, and a database of its own.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["RAW", "RELAY", "RIVALS", "Adapter", "Contender", "installed_rivals"]

EnqueueOne = Callable[[int], Any]
EnqueueMany = Callable[[Iterable[int]], Any]
# Asynchronous where what it gives is a coroutine function.
Opened = (
    AbstractContextManager[Callable[..., Any]]
    | AbstractAsyncContextManager[Callable[..., Any]]
)


class Adapter(Protocol):
    """What a contender's module has; enqueuing_many too, where it has a bulk API."""

    def set_up(self) -> None:
        """Lay the schema in an empty database."""

    def enqueuing(self) -> Opened:
        """Connect; give the function that enqueues job n and commits."""

    def work(self) -> None:
        """Run one worker until SIGTERM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One that is measured.

    Attributes:
        settings: the Django settings its module needs, if any.
        unfinished: SQL, whether a job is ready or running.
        drain_jobs, quick_jobs: as many as it drains in some seconds.
        needs: modules that must be there.
        worker: the arguments of python for one worker, where work() is not used.
    """

    name: str
    module: str
    unfinished: str
    settings: str | None = None
    has_bulk: bool = True
    drain_jobs: int = 60_000
    quick_jobs: int = 12_000
    needs: tuple[str, ...] = ()
    worker: tuple[str, ...] = ()


# Two questions, each answered from a small index, however many rows are finished.
_UNFINISHED = (
    "SELECT EXISTS (SELECT FROM relay_job "
    "WHERE state = 'queued' AND concurrency_key IS NULL) "
    "OR EXISTS (SELECT FROM relay_job WHERE state = 'running')"
)

RELAY = Contender(
    name="relay",
    module="bench.ours",
    settings="bench.settings",
    unfinished=_UNFINISHED,
    worker=("-m", "django", "relay_worker", "--processes", "1"),
)
RAW = Contender(
    name="raw",
    module="bench.raw",
    settings="bench.settings",
    unfinished=_UNFINISHED,
)
RIVALS = (
    Contender(
        name="pgqueuer",
        module="bench.rivals.pgqueuer",
        needs=("pgqueuer", "asyncpg"),
        unfinished="SELECT EXISTS (SELECT FROM pgqueuer)",
    ),
    Contender(
        name="procrastinate",
        module="bench.rivals.procrastinate",
        needs=("procrastinate",),
        unfinished="SELECT EXISTS (SELECT FROM procrastinate_jobs "
        "WHERE status IN ('todo', 'doing'))",
        drain_jobs=10_000,
        quick_jobs=1_000,
    ),
    Contender(
        name="django-tasks-db",
        module="bench.rivals.django_tasks_db",
        settings="bench.rivals.django_settings",
        needs=("django_tasks_db",),
        unfinished="SELECT EXISTS (SELECT FROM django_tasks_database_dbtaskresult "
        "WHERE status IN ('READY', 'RUNNING'))",
        has_bulk=False,
        drain_jobs=4_000,
        quick_jobs=600,
    ),
)


def installed_rivals() -> list[Contender]:
    """Return the rivals that can be imported here."""
    return [
        rival
        for rival in RIVALS
        if all(importlib.util.find_spec(name) is not None for name in rival.needs)
    ]

"""The tasks of a chaos run. Each writes down that it ran, outside the database."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from django.db import connection

from relay import SkipRetry, cron, current_job, task

__all__ = ["PlannedFailure", "token"]


class PlannedFailure(Exception):
    """Raised on purpose; its message carries the token of the attempt."""


def token() -> str:
    """Return the running attempt's fence as text: what its writes are known by."""
    job = current_job()
    return f"{job.attempt} {job.worker_id}"


@cache
def _effects(digit: str) -> int:
    path = os.environ["RELAY_CHAOS_EFFECTS"].replace("?", digit)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _write(phase: str) -> None:
    # One write of less than 4 KB with O_APPEND: whole lines, from any number of
    # processes, and what was written outlives a SIGKILL.
    job = current_job()
    line = (
        f"{phase} {job.id} {job.attempt} {job.worker_id} {os.getpid()} "
        f"{time.monotonic():.6f} {time.time():.6f}\n"
    )
    os.write(_effects(job.id.hex[-1]), line.encode("ascii"))


@contextmanager
def _recorded() -> Iterator[None]:
    _write("start")
    try:
        yield
    finally:
        _write("end")


@task(name="chaos:nothing", queue="chaos")
def nothing(*, key: str) -> str:
    with _recorded():
        return token()


@task(name="chaos:nap", queue="chaos")
def nap(seconds: float, *, key: str) -> str:
    with _recorded():
        time.sleep(seconds)
        return token()


@task(name="chaos:doze", queue="chaos")
async def doze(seconds: float, *, key: str) -> str:
    with _recorded():
        await asyncio.sleep(seconds)
        return token()


@task(name="chaos:stumble", queue="chaos")
def stumble(seconds: float, *, key: str) -> str:
    """Fail the first two attempts, then end well."""
    with _recorded():
        time.sleep(seconds / 4)
        if current_job().attempt <= 2:
            raise PlannedFailure(token())
        return token()


@task(name="chaos:refuse", queue="chaos")
def refuse(*, key: str) -> str:
    with _recorded():
        raise SkipRetry(token())


@task(name="chaos:doomed", queue="chaos", max_retries=1)
def doomed(*, key: str) -> str:
    with _recorded():
        raise PlannedFailure(token())


@task(name="chaos:transact", queue="chaos", transactional=True)
def transact(seconds: float, *, key: str) -> str:
    """Write a row that counts only with the finish; some fail after it at first."""
    with _recorded():
        job = current_job()
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO chaos_written (job, attempt) VALUES (%s, %s)",
                [job.id, job.attempt],
            )
        time.sleep(seconds)
        if job.attempt == 1 and seconds < 0.005:
            raise PlannedFailure(token())
        return token()


if os.environ.get("RELAY_CHAOS_NEWER"):

    @task(name="chaos:newer", queue="chaos")
    def newer(*, key: str) -> str:
        """Known to the newer code alone."""
        with _recorded():
            return token()


@cron("* * * * * *", seconds=True, catch_up="all", name="chaos:every-second")
@task(name="chaos:tick", queue="chaos")
def tick() -> str:
    with _recorded():
        return token()

"""pgqueuer at its best: asyncpg, uvloop where it is there, batches of 100."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from bench.client import run_async
from bench.contenders import EnqueueMany, EnqueueOne
from bench.record import note

__all__ = ["enqueuing", "enqueuing_many", "set_up", "work"]

BATCH = 100


@asynccontextmanager
async def _queries() -> AsyncIterator[Any]:
    session = await asyncpg.connect(os.environ["DATABASE_URL"])
    try:
        yield Queries(AsyncpgDriver(session))
    finally:
        await session.close()


def _payload(number: int) -> bytes:
    return json.dumps({"n": number}).encode()


def set_up() -> None:
    async def install() -> None:
        async with _queries() as queries:
            await queries.install()

    run_async(install())


@asynccontextmanager
async def enqueuing() -> AsyncIterator[EnqueueOne]:
    async with _queries() as queries:
        yield lambda number: queries.enqueue("noop", _payload(number))


@asynccontextmanager
async def enqueuing_many() -> AsyncIterator[EnqueueMany]:
    async with _queries() as queries:

        async def enqueue(numbers: Iterable[int]) -> None:
            payloads = [_payload(number) for number in numbers]
            size = len(payloads)
            await queries.enqueue(["noop"] * size, payloads, [0] * size)

        yield enqueue


def work() -> None:
    async def handle(job: Any) -> None:
        note(json.loads(job.payload)["n"])

    async def run() -> None:
        session = await asyncpg.connect(os.environ["DATABASE_URL"])
        worker = PgQueuer.from_asyncpg_connection(session)
        worker.entrypoint("noop")(handle)
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGTERM, worker.shutdown.set
        )
        await worker.run(batch_size=BATCH)

    run_async(run())

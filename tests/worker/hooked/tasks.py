"""Tasks inside middleware."""

from __future__ import annotations

import asyncio
import json
import os
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from relay import signals, task
from tests.worker.effects import note


@task
def plain() -> str:
    note("start")
    return "plain"


@task(isolation="process")
def apart() -> str:
    note("start")
    return "apart"


@task
async def coroutine() -> str:
    await asyncio.sleep(0)
    note("start")
    return "coroutine"


@task
async def wait() -> None:
    note("start")
    await asyncio.sleep(600)


@task(max_retries=0)
def fail() -> None:
    raise ValueError("no good")


def _note_signal(name: str, *, job: Any, **_: Any) -> None:
    line = {"job": str(job.id), "attempt": 0, "pid": os.getpid(), "phase": name}
    text = json.dumps({**line, "at": time.monotonic(), "said": None})
    if path := os.environ.get("WORKER_TESTS_EFFECTS"):
        with Path(path).open("a") as file:
            file.write(f"{text}\n")


receivers: Final = {name: partial(_note_signal, name) for name in signals.__all__}

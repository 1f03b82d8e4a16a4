"""Handlers that do with a secret what handlers do: return, quote, die with it."""

from __future__ import annotations

import logging
import os
import signal
from typing import Any

from relay import current_job, task


@task(sensitive=True)
def keep(secret: Any) -> Any:
    return secret


@task(sensitive=True)
async def akeep(secret: Any) -> Any:
    return secret


@task(sensitive=("secret",), max_retries=1)
def quote(secret: str, order: int) -> None:
    local = {"secret": secret}
    raise ValueError(f"{secret} of order {order}: {local}")


@task(sensitive=("secret",), max_retries=0)
async def aquote(secret: str, order: int) -> None:
    try:
        raise KeyError(secret)
    except KeyError as error:
        raise RuntimeError(order, secret) from error


@task(sensitive=("secret",))
def die_once(secret: str) -> int:
    if current_job().attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return len(secret)


@task(sensitive=("secret",), capture_logs=True, capture_stdout=True)
def report(secret: str) -> None:
    job = current_job()
    job.progress(50, message=f"half of {secret}")
    job.log.info("first %s", secret)
    logging.getLogger("relay.job.vault").warning("then %r", [secret])
    print(f"and {secret}")  # noqa: T201 - is captured
    job.step("charge", str, secret)

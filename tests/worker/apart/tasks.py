"""Isolated tasks that misbehave in the ways these tests ask for."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import os
import resource
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

from django.contrib.contenttypes.models import ContentType
from django.db import connection

from relay import SoftTimeout, current_job, task
from relay.worker import isolation
from tests.worker.effects import note
from tests.worker.tasks import backend

MEBIBYTE = 1024 * 1024
MOST_PROCESSES = 2_000  # of the account; root is not held to it
if grace := os.environ.get("WORKER_TESTS_APART_GRACE"):
    vars(isolation)["GRACE_SECONDS"] = float(grace)


@task(isolation="process")
def quick(said: object = None) -> object:
    note("start", said)
    return said


@task(isolation="process")
async def aquick(said: object = None) -> object:
    note("start", said)
    await asyncio.sleep(0)
    return await asyncio.to_thread(lambda: said)


@task(isolation="process")
def gate(path: str) -> None:
    """Wait until the test makes the file."""
    note("start")
    while not Path(path).exists():
        time.sleep(0.005)
    note("end")


@task(isolation="process")
def beat(count: int, interval: float) -> None:
    """Write a line now and then, whatever is asked of it."""
    note("start")
    for _ in range(count):
        time.sleep(interval)
        note("beat")
    note("end")


@task(isolation="process")
def nap(seconds: float) -> None:
    note("start")
    time.sleep(seconds)
    note("end")


@task(isolation="process")
async def anap(seconds: float) -> None:
    note("start")
    await asyncio.sleep(seconds)
    note("end")


@task(isolation="process")
def hold_interpreter() -> None:
    """Stay in one C call that never gives the interpreter's lock away."""
    note("start")
    sum(itertools.repeat(1, 1 << 62))


@task(isolation="process", timeout=timedelta(seconds=1.5), max_retries=0)
def hold_interpreter_for_too_long() -> None:
    note("start")
    sum(itertools.repeat(1, 1 << 62))


@task(isolation="process", timeout=timedelta(seconds=1.5), max_retries=0)
def sleep_for_too_long() -> None:
    note("start")
    try:
        time.sleep(600)
    finally:
        note("cleaned")


@task(isolation="process", timeout=timedelta(seconds=1.5), max_retries=0)
async def asleep_for_too_long() -> None:
    note("start")
    try:
        await asyncio.sleep(600)
    finally:
        note("cleaned")


@task(
    isolation="process",
    timeout=timedelta(seconds=60),
    soft_timeout=timedelta(seconds=0.2),
)
def stop_softly() -> str:
    note("start")
    try:
        time.sleep(600)
    except SoftTimeout:
        return "in time"
    return "too late"


@task(isolation="process")
def never_stop() -> None:
    note("start")
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(60)


@task(isolation="process", max_retries=0)
def die(how: str, times: int = 1_000) -> int:
    """Die in this way, on the first attempts."""
    note("start")
    attempt = current_job().attempt
    if attempt <= times:
        if how == "segfault":
            ctypes.string_at(0)
        elif how == "abort":
            os.abort()
        elif how == "exit":
            os._exit(0)
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return attempt


@task(isolation="process", max_retries=0)
def bomb(generations: int, lasting_seconds: float) -> None:
    """Fork, and have all that come of it fork too, as often as they are let."""
    note("start")
    _, hardest = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (MOST_PROCESSES, hardest))
    origin = os.getpid()
    for _ in range(generations):
        with contextlib.suppress(BlockingIOError):  # the limit of processes
            os.fork()
    if os.getpid() != origin:
        time.sleep(lasting_seconds)
        os._exit(0)


@task(isolation="process")
def kill_the_nursery() -> None:
    note("start")
    if current_job().attempt == 1:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)


@task(isolation="process", memory_limit=64 * MEBIBYTE, max_retries=0)
def grow(mebibytes: int) -> int:
    note("start")
    return len(bytearray(mebibytes * MEBIBYTE))


@task(isolation="process", memory_limit=64 * MEBIBYTE, max_retries=0)
async def agrow(mebibytes: int) -> int:
    note("start")
    await asyncio.sleep(0)
    return len(bytearray(mebibytes * MEBIBYTE))


_kept: list[bytearray] = []


@task(isolation="process", memory_limit=64 * MEBIBYTE)
def leak(mebibytes: int) -> None:
    note("start")
    _kept.append(bytearray(os.urandom(1) * (mebibytes * MEBIBYTE)))


@task(isolation="process", max_jobs=3)
def three_each() -> None:
    note("start")


class Unpicklable(Exception):
    def __init__(self, one: object, two: object) -> None:
        super().__init__("cannot be pickled")
        self.pair = (lambda: one, two)


@task(isolation="process", max_retries=0)
def raise_unpicklable() -> None:
    raise Unpicklable(object(), sys.stdin)


@task(isolation="process")
def return_much(size_bytes: int) -> str:
    return "x" * size_bytes


@task(isolation="process")
def use_orm() -> int:
    note("start", backend())
    return ContentType.objects.count()


@task(isolation="process")
def leave_a_transaction_open() -> None:
    connection.set_autocommit(False)
    note("start", backend())


@task(isolation="process", transactional=True)
def count_in_its_transaction() -> int:
    note("start")
    return ContentType.objects.count()


@task(isolation="process", capture_logs=True)
def tell(path: str) -> int:
    """Tell of its progress, log, and wait until the test makes the file."""
    note("start")
    job = current_job()
    for done in range(1, 6):
        job.progress(done, 10, message="under way")
    job.log.info("half way")
    while not Path(path).exists():
        time.sleep(0.005)
    job.progress(10, 10)
    return job.step("count", int, "7")


@task(isolation="process", sensitive=("card",))
def pay(card: str) -> str:
    note("start")
    return card[-4:]


@task(isolation="process")
def fork_and_go_on() -> None:
    """Fork, and leave the handler in the child as in the parent."""
    note("start")
    if os.fork() == 0:
        sys.exit(0)


@task(isolation="process")
def fork_and_terminate() -> int:
    """Fork a process, and end it as multiprocessing does."""
    note("start")
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    os.kill(pid, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@task(isolation="process")
def run_program() -> None:
    """Start a program that goes on for long, and wait for it."""
    program = subprocess.Popen(
        [sys.executable, "-S", "-c", "import time;time.sleep(600)"]
    )
    note("start", program.pid)
    with contextlib.suppress(BaseException):
        program.wait()
    time.sleep(600)

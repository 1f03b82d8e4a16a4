"""Tasks that misbehave in the ways these tests ask for."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import psycopg
from asgiref.sync import sync_to_async
from django.contrib.contenttypes.models import ContentType
from django.db import connection, connections, transaction

from relay import (
    Failure,
    JobTimeout,
    Retry,
    SkipRetry,
    Snooze,
    SoftTimeout,
    current_job,
    task,
)
from relay.conf import get_settings
from tests.worker.effects import note


@task
def quick(said: object = None) -> object:
    note("start", said)
    return said


@task
def silent() -> None:
    pass


@task
def mourn(failure: Failure) -> None:
    note("start", [str(failure.job_id), failure.error_class])


@task(on_failure=mourn)
def die_mourned() -> None:
    note("start")
    os.kill(os.getpid(), signal.SIGKILL)


@task
def nap(seconds: float) -> None:
    note("start")
    time.sleep(seconds)
    note("end")


@task
async def anap(seconds: float) -> None:
    note("start")
    await asyncio.sleep(seconds)
    note("end")


@task
def wait_on_socket() -> None:
    """Read from a peer that never writes."""
    note("start")
    near, far = socket.socketpair()
    with near, far:
        near.recv(1)


@task(soft_timeout=timedelta(seconds=1.5))
def clean_up_when_warned(how: str) -> str:
    note("start")
    try:
        spin_for(30)
    except SoftTimeout:
        note("warned")
        if how == "return":
            return "cleaned up"
        if how == "go on":
            spin_for(30)
        raise
    return "never warned"


@task(soft_timeout=timedelta(seconds=1.5))
async def aclean_up_when_warned(how: str) -> str:
    note("start")
    try:
        await asyncio.sleep(30)
    except SoftTimeout:
        note("warned")
        if how == "return":
            await asyncio.sleep(0.01)
            return "cleaned up"
        if how == "go on":
            await asyncio.sleep(30)
        raise
    return "never warned"


def ask_to_sleep(seconds: float) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(%s)", [seconds])


@task
def show_statement_limit(is_closed_then: bool) -> str:
    note("start")
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        found: str = cursor.fetchone()[0]
    if is_closed_then:
        connection.close()
    return found


@task
def sleep_in_a_query(seconds: float) -> None:
    note("start")
    ask_to_sleep(seconds)


@task
async def sleep_in_a_query_of_a_coroutine(seconds: float) -> None:
    note("start")
    await sync_to_async(ask_to_sleep)(seconds)


@task
async def sleep_in_the_loop(seconds: float) -> None:
    note("start")
    time.sleep(seconds)


@task
def spin(seconds: float) -> None:
    note("start")
    spin_for(seconds)
    note("end")


@task
def swallow_timeouts(seconds: float) -> None:
    """Raise another error in place of the timeout's."""
    note("start")
    try:
        spin_for(seconds)
    except JobTimeout:
        raise psycopg.OperationalError("the database is away") from None


def spin_for(seconds: float) -> None:
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        pass


@task
def gate(path: str) -> None:
    """Wait until the test makes the file."""
    note("start")
    while not Path(path).exists():
        time.sleep(0.005)
    note("end")


@task
def hold_interpreter(seconds: float) -> float:
    """Stay in one C call that never gives the interpreter's lock away."""
    note("start")
    begun_at = time.monotonic()
    ctypes.PyDLL(None).poll(None, 0, round(seconds * 1000))
    took = time.monotonic() - begun_at
    note("end", took)
    return took


@task
def beat(count: int, interval: float) -> None:
    """Write a line now and then, whatever is asked of it."""
    note("start")
    for _ in range(count):
        time.sleep(interval)
        note("beat")
    note("end")


@task
def die() -> None:
    note("start")
    os.kill(os.getpid(), signal.SIGKILL)


@task
def die_by(how: str) -> None:
    """Take the process down, as faulty code of C, the kernel or os._exit() does."""
    note("start")
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "abort":
        os.abort()
    elif how == "exit":
        os._exit(0)
    else:
        os.kill(os.getpid(), signal.SIGKILL)


@task
def return_much(size_bytes: int) -> str:
    note("start")
    return "x" * size_bytes


@task
def return_nested(depth: int) -> object:
    note("start")
    found: object = 0
    for _ in range(depth):
        found = [found]
    return found


@task
def leave(code: int) -> None:
    note("start")
    os._exit(code)


@task
def fail(said: str = "on purpose") -> None:
    note("start")
    raise ValueError(said)


@task
def snooze(times: int) -> int:
    """Ask to be run again so many times, then end well."""
    note("start")
    job = current_job()
    if job.attempt <= times:
        raise Snooze(timedelta(seconds=0.05))
    return job.attempt


@task
def fail_with_a_large_local() -> None:
    kept = bytearray(1_000_000)
    raise ValueError(f"holding {len(kept)} bytes")


@task
def use_orm() -> int:
    note("start", backend())
    count = ContentType.objects.count()
    note("end")
    return count


@task
def use_orm_for(seconds: float) -> int:
    """Ask the database now and then, as a real job does."""
    note("start")
    ends_at = time.monotonic() + seconds
    asked = 0
    while time.monotonic() < ends_at:
        ContentType.objects.count()
        asked += 1
        time.sleep(0.02)
    note("end")
    return asked


@task
async def use_orm_from_coroutine() -> int:
    note("start")
    count = await sync_to_async(ContentType.objects.count)()
    note("end")
    return count


@task(transactional=True)
def transact(seconds: float) -> int:
    """Write a row that is there once for each job that completes."""
    note("start")
    job = current_job()
    with connections[get_settings().database].cursor() as cursor:
        cursor.execute(
            "INSERT INTO tests_effect VALUES (%s, %s)", [job.id, job.attempt]
        )
    time.sleep(seconds)
    note("end")
    return job.attempt


@task
async def ask_in_threads_for(seconds: float) -> None:
    """Ask the database now and then, each time in a thread."""
    note("start")
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        await sync_to_async(ContentType.objects.count)()
        await asyncio.to_thread(time.sleep, 0.02)
    note("end")


@task
def break_the_loop() -> None:
    """Make the loop of the embedded worker fail at its next step."""
    from relay.worker.embedded import process  # other workers have none

    def fail(*_: object) -> None:
        raise ValueError("the loop is broken")

    note("start")
    worker = process._state.worker
    assert worker is not None
    if current_job().attempt == 1:
        loop, thread = worker._loop, worker._loop_thread
        loop._collect = fail
        # As long as this slot is taken, nothing that waits in the loop can start.
        while thread.is_alive() or loop._pool.is_waiting:
            time.sleep(0.01)


@task
def cut_off_worker() -> None:
    """End the sessions of relay itself, as the last act."""
    note("start")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name LIKE 'relay %%' AND datname = current_database()"
        )
    note("end")


@task
def leave_orphans(count: int) -> None:
    """Double-fork: each orphan ends a little later, with nobody to wait for it."""
    note("start")
    for _ in range(count):
        subprocess.run(
            [
                sys.executable,
                "-S",
                "-c",
                "import os,time\nif os.fork() == 0: time.sleep(0.1)",
            ],
            check=True,
        )
    note("end")


@task
def grow(mebibytes: int) -> None:
    note("start")
    _kept.append(bytearray(os.urandom(1) * (mebibytes * 1024 * 1024)))


_kept: list[bytearray] = []


def backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        number: int = cursor.fetchone()[0]
        return number


@task
def orders(what: str) -> object:
    """Do what the test says."""
    note("start")
    if what == "return NUL":
        return {"text": "a\x00b"}
    if what == "return surrogate":
        return {"text": "\ud800"}
    if what == "raise NUL":
        raise ValueError("bad\x00bytes")
    if what == "raise surrogate":
        raise OSError(os.fsdecode(b"bad caf\xe9"))
    if what == "skip retry":
        raise SkipRetry("never")
    if current_job().attempt == 1:
        raise Retry(after=timedelta(seconds=0.5))
    return None


@task
def clock() -> float:
    """Return the time by this process's wall clock."""
    return time.time()


@task
def fork_and_go_on() -> None:
    """Fork, and leave the handler in the child as in the parent."""
    note("start")
    if os.fork() == 0:
        sys.exit(0)


@task
async def let_exit_escape() -> None:
    async def leave() -> None:
        sys.exit(3)

    note("start")
    _kept.append(asyncio.ensure_future(leave()))
    await asyncio.sleep(0.05)


@task
async def stop_the_loop() -> None:
    note("start")
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)


@task
async def cancel_the_others() -> None:
    note("start")
    for other in asyncio.all_tasks():
        if other is not asyncio.current_task():
            other.cancel()


@task
async def block_the_loop(path: str) -> None:
    """Give no other coroutine a turn until the test makes the file."""
    note("start")
    while not Path(path).exists():
        time.sleep(0.005)


@task
async def leave_a_transaction_open_in_a_thread() -> None:
    note("start")
    await asyncio.to_thread(_leave_open)


def _leave_open() -> None:
    connection.set_autocommit(False)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


_kept: list[asyncio.Future[None]] = []


@task
def tell_progress(path: str) -> None:
    """Tell it inside a transaction, and go on when the test makes the file."""
    with transaction.atomic():
        ContentType.objects.count()
        current_job().progress(50, message="half way")
        while not Path(path).exists():
            time.sleep(0.005)
    current_job().progress(100)


@task
async def atell_progress(path: str) -> None:
    current_job().progress(50, message="half way")
    while not Path(path).exists():
        await asyncio.sleep(0.005)
    current_job().progress(100)


@task(capture_logs="failed", capture_stdout=True)
def log_and_fail() -> None:
    current_job().log.info("about to fail")
    print("printed")  # noqa: T201 - what is tested
    raise ValueError("on purpose")


@task
def five_steps(path: str) -> list[str]:
    """Wait in the third step until the test makes the file."""
    job = current_job()

    def step(number: int) -> str:
        note(f"step {number}")
        while number == 3 and not Path(path).exists():
            time.sleep(0.005)
        return f"{number} by {job.attempt}"

    return [job.step(f"step {number}", step, number) for number in range(1, 6)]


@task
async def five_async_steps(path: str) -> list[str]:
    job = current_job()

    async def step(number: int) -> str:
        note(f"step {number}")
        while number == 3 and not Path(path).exists():
            await asyncio.sleep(0.005)
        return f"{number} by {job.attempt}"

    return [await job.astep(f"step {number}", step, number) for number in range(1, 6)]

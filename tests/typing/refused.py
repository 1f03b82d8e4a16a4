"""What type checkers must refuse: each line marked E, with mypy's error codes."""

from __future__ import annotations

from datetime import timedelta

from relay import (
    Retention,
    Unique,
    cancel_jobs,
    cron,
    current_job,
    enqueue,
    enqueue_many,
    every,
    once,
    task,
)
from relay.testing import ApiClient, FakeWorker, mode
from relay.worker.embedded import start


@task
def bare(a: int, *, b: str = "") -> str:
    return b * a


@task
async def coroutine(a: int) -> float:
    return a / 2


@task(queu="mail")  # E: call-overload untyped-decorator
def misspelt() -> None: ...


@task(priority="high")  # E: call-overload untyped-decorator
def mistyped() -> None: ...


@task(isolation="thread")  # E: call-overload untyped-decorator
def not_apart() -> None: ...


@task(transactional="yes")  # E: call-overload untyped-decorator
def unsure() -> None: ...


@task(timeout=30)  # E: call-overload untyped-decorator
def too_early() -> None: ...


@task(backoff=30)  # E: call-overload untyped-decorator
def no_backoff() -> None: ...


@task(give_up_on=(ValueError(),))  # E: arg-type
def no_class() -> None: ...


@task(on_failure=coroutine)  # E: arg-type
def wrong_follower() -> None: ...


@task(on_failure=bare)  # E: arg-type
def no_follower() -> None: ...


@task(retention=60)  # E: call-overload untyped-decorator
def no_retention() -> None: ...


Retention(failed=60)  # E: arg-type


@cron("* * * * *")  # E: type-var
def no_task() -> None: ...


bare.enqueue("1")  # E: arg-type
bare.enqueue()  # E: call-arg
bare.enqueue(1, "x")  # E: call-arg
bare.enqueue(1, c=2)  # E: call-arg
bare.using(priority="high")  # E: arg-type
bare.using(on_commit=True)  # E: arg-type
cancel_jobs(state="failed")  # E: arg-type
cancel_jobs("mail")  # E: call-arg
bare.using(tags=7)  # E: arg-type
bare.using(meta=["a"])  # E: arg-type
bare.using(delay=1)  # E: call-arg
bare.using(queue="mail").enqueue("1")  # E: arg-type
bare.job("1")  # E: arg-type
coroutine.enqueue("1")  # E: arg-type
enqueue(bare, 1)  # E: arg-type
enqueue("a:b", unique=True)  # E: arg-type
Unique(until="queued")  # E: arg-type
Unique(for_=60)  # E: arg-type
Unique(timedelta(1))  # E: arg-type call-arg
enqueue_many([bare])  # E: arg-type
current_job().step("count", bare.function, "no number")  # E: arg-type
current_job().step(len, [1])  # E: arg-type
current_job().progress("40")  # E: arg-type
number: int = bare.enqueue(1).result()  # E: assignment
text: str = coroutine.enqueue(1).result()  # E: assignment
text = coroutine(1)  # E: assignment
start(concurrency="4")  # E: arg-type
start(grace=10)  # E: arg-type
mode("eager")  # E: arg-type
FakeWorker(7)  # E: arg-type
FakeWorker("mail").fail(bare.enqueue(1), "no error")  # E: arg-type
ApiClient("read", queues=7)  # E: arg-type
ApiClient("read").secret = 7  # E: assignment


@every(30)  # E: arg-type
@task
def too_often() -> None: ...


@cron("* * * * *", overlap="maybe")  # E: arg-type
@task
def overlapping() -> None: ...


@once("2026-12-24")  # E: arg-type
@task
def eve() -> None: ...

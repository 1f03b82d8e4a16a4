"""What type checkers must accept; tests/typing/test_typing.py runs two on it."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from django.core.asgi import get_asgi_application

from relay import (
    Backoff,
    Failure,
    JobHandle,
    JobOccurrence,
    JobRequest,
    JobsReport,
    Progress,
    Retention,
    Task,
    Unique,
    acancel_jobs,
    aenqueue,
    cancel_jobs,
    cron,
    current_job,
    enqueue,
    enqueue_many,
    every,
    once,
    retry_jobs,
    task,
)
from relay.signals import job_completed, job_failed
from relay.testing import ApiClient, FakeWorker, Outcome, mode, perform
from relay.worker.embedded import EmbeddedWorker, astop, start, stop, with_worker


@task
def bare(a: int, *, b: str = "") -> str:
    return b * a


@task(queue="mail", max_retries=5, backoff=Backoff(), retention=timedelta(hours=1))
def configured(user_id: int) -> bytes:
    return bytes(user_id)


@task
async def coroutine(a: int) -> float:
    return a / 2


@task(priority=3)
async def configured_coroutine(a: int) -> float:
    return a / 2


@task(unique=Unique(on=("a",), on_conflict="replace", due="push"))
def unique(a: int) -> str:
    return str(a)


def slower(failures: int, error: BaseException) -> timedelta | None:
    return None if failures > 3 else timedelta(minutes=failures)


@task(backoff=[timedelta(minutes=1), timedelta(hours=1)], retry_on=ConnectionError)
def by_list() -> None: ...


@task(backoff=slower, retry_until=timedelta(days=1))
def by_function() -> None: ...


@task(
    backoff={
        ConnectionError: timedelta(seconds=5),
        TimeoutError: Backoff.linear(step=timedelta(minutes=1)),
        Exception: slower,
    },
    give_up_on=(ValueError, KeyError),
)
def by_class() -> None: ...


@task(isolation="process", memory_limit=512 * 1024 * 1024, max_jobs=10)
def isolated(a: int) -> str:
    return str(a)


@task(transactional=True)
def transactional(a: int) -> str:
    return str(a)


@task
def tell(failure: Failure) -> None:
    assert_type(failure.error_class, str | None)


@task
async def tell_later(failure: Failure) -> None:
    assert_type(await failure.aarguments(), tuple[list[Any], dict[str, Any]])


@task(on_failure=tell, retention=Retention(failed=None, result=timedelta(hours=1)))
def told(a: int) -> None: ...


@task(on_failure=tell_later)
async def told_later(a: int) -> None: ...


@once(datetime(2026, 12, 24, tzinfo=UTC), name="eve", priority=5)
@every(timedelta(minutes=90), name="often", overlap="skip", exclude=["2026-12-25"])
@cron("0 7 * * 1-5", timezone="Europe/Rome", spread=timedelta(minutes=10))
@task
def scheduled() -> None: ...


def calls() -> None:
    assert_type(bare.using(on_commit="other").enqueue(1), JobHandle[str])
    assert_type(bare(1, b="x"), str)
    not_awaited = coroutine(1)
    _ = assert_type(not_awaited, Coroutine[Any, Any, float])
    not_awaited.close()
    assert_type(bare.enqueue(1, b="x"), JobHandle[str])
    assert_type(bare.enqueue(1).result(), str)
    assert_type(configured.enqueue(user_id=1), JobHandle[bytes])
    assert_type(coroutine.enqueue(1), JobHandle[float])
    assert_type(configured_coroutine.enqueue(1).result(timeout=5), float)
    assert_type(bare.job(1), JobRequest[str])
    assert_type(bare.using(priority=1, run_in=timedelta(1)).enqueue(1), JobHandle[str])
    within = bare.using(
        run_in=timedelta(minutes=10),
        priority=10,
        unique=Unique(for_=timedelta(hours=1)),
    )
    assert_type(within.enqueue(42), JobHandle[str])
    bare.using(timeout=timedelta(seconds=1)).using(timeout=None).enqueue(1)
    bare.using(deadline=timedelta(hours=1)).using(deadline=None).enqueue(1)
    bare.using(tags=["a"], meta={"b": 1}).using(meta=None, tags=()).enqueue(1)
    bare.using(outside_transaction=True).enqueue(1)
    assert_type(unique.using(unique=None).enqueue(1).is_duplicate, bool)
    enqueue("a:b", unique=Unique(key="c", until="forever"))
    assert_type(bare.using(queue="a").using(priority=1).job(1), JobRequest[str])
    assert_type(enqueue("a:b", 1, kwargs={"c": 2}, queue="mail"), JobHandle[Any])
    assert_type(enqueue_many([bare.job(1), bare.job(2)]), list[JobHandle[str]])
    enqueue_many([bare.job(1), coroutine.job(2)])
    scheduled.enqueue()
    as_argument(bare)
    as_argument(coroutine)


def as_argument(made: Task[..., Any]) -> None:
    made.enqueue(1, "anything")


async def fetched(url: str, *, timeout: float = 1) -> bytes:
    return b""


def counted(count: int) -> str:
    return str(count)


def handler() -> None:
    job = current_job()
    job.progress(40)
    job.progress(3, 10, message="rows")
    job.log.info("sent %d", 3)
    assert_type(job.step("count", counted, 1), str)
    assert_type(job.step("count again", counted, count=1), str)
    assert_type(bare.enqueue(1).progress, Progress | None)


async def coroutine_handler() -> None:
    job = current_job()
    assert_type(await job.astep("fetch", fetched, "https://a", timeout=2), bytes)
    assert_type(await job.astep("count", counted, 1), str)


def many() -> None:
    assert_type(cancel_jobs(task=bare, state="queued", dry_run=True), JobsReport)
    retry_jobs(task="a:b", finished_after=datetime.now(UTC), limit=5, actor="ada")


async def awaited() -> None:
    assert_type(await acancel_jobs(queue="mail", tag="a"), JobsReport)
    assert_type(await bare.enqueue(1).areplay(), JobHandle[str])
    assert_type(await bare.enqueue(1).acancel(), bool)
    assert_type(await coroutine(1), float)
    assert_type(await bare.aenqueue(1), JobHandle[str])
    assert_type(await (await coroutine.aenqueue(1)).aresult(), float)
    assert_type(await aenqueue("a:b"), JobHandle[Any])


async def embedded() -> None:
    assert_type(start(), EmbeddedWorker | None)
    assert_type(start(queues={"mail": 2}, concurrency=4), EmbeddedWorker | None)
    with_worker(get_asgi_application(), queues=["mail"], grace=timedelta(seconds=5))
    assert_type(stop(), bool)
    assert_type(await astop(), bool)


assert_type(current_job().occurrence(), JobOccurrence | None)


def heard(sender: Task[..., Any] | None, job: JobHandle[Any], **_: Any) -> None: ...


job_completed.connect(heard)
job_failed.connect(heard, sender=bare)
assert_type(current_job().tags(), tuple[str, ...])
assert_type(current_job().meta(), dict[str, Any])


async def occurrence() -> JobOccurrence | None:
    return await current_job().aoccurrence()


@mode("inline")
def tested(count: int) -> str:
    with FakeWorker("mail", name="w1", concurrency=2) as worker:
        job = bare.enqueue(1)
        worker.claim(job)
        assert_type(worker.is_asked_to_stop(job), bool)
        assert_type(worker.complete(job, "a"), Outcome[Any])
        assert_type(worker.fail(job, ValueError("b")), Outcome[Any])
    assert_type(perform(bare, 1, kwargs={"b": "c"}).result, str | None)
    assert_type(ApiClient("read", queues=["mail"]).secret, str)
    ApiClient("submit").post("/v1/jobs", {"task": "a.b"})
    return "a" * count


assert_type(tested(1), str)

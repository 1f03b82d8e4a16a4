"""Tasks of the tests of relay.testing, and what they have done."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction

from relay import Retry, SkipRetry, current_job, task

logger = logging.getLogger("shop")
ran: list[Any] = []


@task(name="testing.note")
def note(value: object) -> object:
    ran.append(value)
    return value


@task(name="testing.send", queue="mail")
def send(to: str, *, copies: int = 1, **more: object) -> None:
    ran.append(to)


@task(name="testing.first", priority=5)
def first(value: object) -> None:
    ran.append(value)


@task(name="testing.anote")
async def anote(name: str) -> int:
    await sync_to_async(User.objects.create)(username=name)
    ran.append(name)
    return await User.objects.acount()


@task(name="testing.chain")
def chain(left: int) -> None:
    ran.append(left)
    if left:
        chain.enqueue(left - 1)


@task(name="testing.again")
def again() -> None:
    ran.append("again")
    again.using(run_in=timedelta(hours=1)).enqueue()


@task(name="testing.broken", max_retries=2)
def broken(text: str = "broken") -> None:
    ran.append(current_job().attempt)
    logger.warning("about to break: %s", text)
    raise ValueError(text)


@task(name="testing.patient")
def patient() -> str:
    if current_job().attempt == 1:
        raise Retry(after=timedelta(minutes=5))
    return "done"


@task(name="testing.hopeless")
def hopeless() -> None:
    raise SkipRetry("no such order")


@task(name="testing.spoil")
def spoil(name: str) -> None:
    """Leave the transaction broken."""
    User.objects.create(username=name)
    User.objects.create(username=name)


@task(name="testing.write_and_fail")
def write_and_fail(name: str) -> None:
    User.objects.create(username=name)
    raise ValueError("after the write")


@task(name="testing.transact", transactional=True)
def transact(name: str, fails: bool = False) -> str:
    User.objects.create(username=name)
    transaction.on_commit(lambda: ran.append(name))
    if fails:
        raise ValueError("after the write")
    return name


@task(name="testing.careful")
def careful(name: str) -> None:
    try:
        with transaction.atomic(durable=True):
            User.objects.create(username=name)
            User.objects.create(username=name)
    except IntegrityError:
        ran.append("refused")


@task(name="testing.later")
def later(value: object) -> None:
    with transaction.atomic():
        transaction.on_commit(lambda: note.enqueue(value) and None)
        ran.append(connection.in_atomic_block)


@task(name="testing.add_user")
def add_user(name: str, once: bool) -> None:
    if once:
        User.objects.get_or_create(username=name)
    else:
        User.objects.create(username=f"{name}{User.objects.count()}")

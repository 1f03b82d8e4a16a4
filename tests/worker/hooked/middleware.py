"""Middleware that notes what it sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.utils.decorators import sync_and_async_middleware

from relay import CurrentJob
from tests.worker.effects import note


@sync_and_async_middleware
def both(handle: Callable[[CurrentJob], Any]) -> Callable[[CurrentJob], Any]:
    if iscoroutinefunction(handle):

        async def around(job: CurrentJob) -> Any:
            note("outer", job.task)
            return await handle(job)

        return around

    def around_plain(job: CurrentJob) -> Any:
        note("outer", job.task)
        return handle(job)

    return around_plain


def plain_only(handle: Callable[[CurrentJob], Any]) -> Callable[[CurrentJob], Any]:
    def around(job: CurrentJob) -> Any:
        note("inner", job.task)
        try:
            return handle(job)
        finally:
            note("after", job.task)

    return around

"""One act of one contender, in a process of its own: python -m bench.client.

    python -m bench.client CONTENDER set_up | work
    python -m bench.client CONTENDER enqueue FIRST COUNT [--pause SECONDS]
    python -m bench.client CONTENDER bulk FIRST COUNT [--variant NAME]

Works on the database of DATABASE_URL. enqueue and bulk print JSON: the seconds from
the first call to the return of the last, and when each call returned.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar, cast

import django

from bench.contenders import RAW, RELAY, RIVALS, Adapter

__all__ = ["run_async"]

T = TypeVar("T")
CHUNK = 1_000
# Calls before the clock starts: connections, prepared statements.
WARM_UP = 20
WARM_UP_NUMBER = -1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.client")
    parser.add_argument("contender")
    parser.add_argument("act", choices=["set_up", "work", "enqueue", "bulk"])
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("count", type=int, nargs="?", default=0)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--variant", default="")
    options = parser.parse_args()
    adapter = _adapter(options.contender)
    if options.act == "set_up":
        return adapter.set_up()
    if options.act == "work":
        return adapter.work()
    numbers = range(options.first, options.first + options.count)
    argument: list[Any]
    if options.act == "enqueue":
        function, argument = adapter.enqueuing, list(numbers)
    else:
        name = "_".join(filter(None, ["enqueuing_many", options.variant]))
        function = getattr(adapter, name)
        argument = [numbers[at : at + CHUNK] for at in range(0, len(numbers), CHUNK)]
    warm = [WARM_UP_NUMBER - n for n in range(WARM_UP)] if options.warm else []
    answer = _timed(function, argument, warm, options.pause)
    json.dump(answer, sys.stdout)


def _adapter(name: str) -> Adapter:
    [contender] = [one for one in (RELAY, RAW, *RIVALS) if one.name == name]
    if contender.settings:
        os.environ["DJANGO_SETTINGS_MODULE"] = contender.settings
        django.setup()
    return cast("Adapter", importlib.import_module(contender.module))


def _timed(
    function: Callable[[], Any], arguments: list[Any], warm: list[Any], pause: float
) -> dict[str, Any]:
    opened = function()
    if isinstance(opened, AbstractAsyncContextManager):
        return run_async(_timed_async(opened, arguments, warm, pause))
    returned: list[int] = []
    with opened as call:
        for argument in warm:
            call(argument)
        begun = time.monotonic_ns()
        for argument in arguments:
            call(argument)
            returned.append(time.monotonic_ns())
            if pause:
                time.sleep(pause)
    return _answer(begun, returned)


async def _timed_async(
    opened: AbstractAsyncContextManager[Callable[..., Any]],
    arguments: list[Any],
    warm: list[Any],
    pause: float,
) -> dict[str, Any]:
    returned: list[int] = []
    async with opened as call:
        for argument in warm:
            await call(argument)
        begun = time.monotonic_ns()
        for argument in arguments:
            await call(argument)
            returned.append(time.monotonic_ns())
            if pause:
                await asyncio.sleep(pause)
    return _answer(begun, returned)


def _answer(begun: int, returned: list[int]) -> dict[str, Any]:
    return {"seconds": (returned[-1] - begun) / 1e9, "returned": returned}


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run it on uvloop where that is installed, as those who advise it do."""
    try:
        import uvloop  # optional
    except ImportError:
        return asyncio.run(main)
    done: T = uvloop.run(main)
    return done


if __name__ == "__main__":
    main()

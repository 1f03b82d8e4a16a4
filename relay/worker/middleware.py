"""The project's own code around handlers: RELAY["MIDDLEWARE"], in Django's manner.

A factory is given what it is to call and returns what is called instead; the first in
the list is the outermost. It runs inside the attempt: what it raises is what the
handler raised. Source: docs/howto/middleware.md.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.core.exceptions import MiddlewareNotUsed
from django.utils.module_loading import import_string

from relay.conf import get_settings
from relay.context import CurrentJob, current_job
from relay.exceptions import SettingsError

__all__ = ["Middleware", "import_factory", "load"]

logger = logging.getLogger("relay.worker")

Factory = Callable[[Callable[[CurrentJob], Any]], Callable[[CurrentJob], Any]]

# What the innermost one calls: of the attempt, whose context is its own.
_handler: ContextVar[Callable[[], Any]] = ContextVar("relay_handler")


class Middleware:
    """What stands around every handler of this process.

    Args:
        factories: with their paths, the outermost first.

    Raises:
        SettingsError: one of them makes nothing that can be called.
    """

    def __init__(self, factories: Sequence[tuple[str, Factory]]) -> None:
        self._plain = _build(factories, is_async=False)
        self._coroutine = _build(factories, is_async=True)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a plain function to call in place of a handler."""

        def call(*args: Any, **kwargs: Any) -> Any:
            _handler.set(partial(function, *args, **kwargs))
            return self._plain(current_job())

        return call

    def around_coroutine(
        self, function: Callable[..., Any]
    ) -> Callable[..., Awaitable[Any]]:
        """Return a coroutine function to call in place of a handler."""

        async def call(*args: Any, **kwargs: Any) -> Any:
            _handler.set(partial(function, *args, **kwargs))
            return await self._coroutine(current_job())

        return call


def load() -> Middleware | None:
    """Return what RELAY["MIDDLEWARE"] names, built once per process; None if nothing.

    Raises:
        SettingsError: a path cannot be imported, or makes nothing that can be called.
    """
    paths = get_settings().middleware
    return _load(paths) if paths else None


@lru_cache(maxsize=1)
def _load(paths: tuple[str, ...]) -> Middleware:
    return Middleware([(path, import_factory(path)) for path in paths])


def import_factory(path: str) -> Factory:
    """Return what a path names.

    Raises:
        SettingsError: it cannot be imported or called, or says it takes neither kind of
            handler.
    """
    try:
        factory = import_string(path)
    except ImportError as error:
        raise SettingsError(
            f"RELAY['MIDDLEWARE'] names {path!r}, which cannot be imported ({error}): "
            "give the dotted path of a callable, such as 'shop.middleware.tenant'"
        ) from error
    if not callable(factory):
        raise SettingsError(
            f"RELAY['MIDDLEWARE'] names {path!r}, which is {factory!r} and cannot be "
            "called: give a function or a class that takes handle"
        )
    if not any(_kinds(factory)):
        raise SettingsError(
            f"RELAY['MIDDLEWARE'] names {path!r}, whose sync_capable and async_capable "
            "are both False: make one of them True"
        )
    made: Factory = factory
    return made


def _kinds(factory: Any) -> tuple[bool, bool]:
    """Tell whether it takes plain handles, and coroutine ones: by Django's marks."""
    return getattr(factory, "sync_capable", True), getattr(
        factory, "async_capable", False
    )


def _call(_: CurrentJob) -> Any:
    return _handler.get()()


async def _acall(_: CurrentJob) -> Any:
    return await _handler.get()()


def _build(
    factories: Sequence[tuple[str, Factory]], *, is_async: bool
) -> Callable[[CurrentJob], Any]:
    handle: Callable[[CurrentJob], Any] = _acall if is_async else _call
    handle_is_async = is_async
    for path, factory in reversed(factories):
        takes_plain, takes_coroutine = _kinds(factory)
        is_kept = takes_coroutine if handle_is_async else takes_plain
        wants_async = handle_is_async if is_kept else not handle_is_async
        made: Any
        try:
            made = factory(_as(handle, handle_is_async, wants_async))
        except MiddlewareNotUsed as unused:
            logger.debug("middleware %s is not used: %s", path, unused)
            continue
        if not callable(made) or (
            wants_async and inspect.isfunction(made) and not iscoroutinefunction(made)
        ):
            kind = "a coroutine function" if wants_async else "a function of a job"
            raise SettingsError(
                f"the middleware {path!r} of RELAY['MIDDLEWARE'] returned {made!r}: it "
                f"must return {kind}, which calls handle"
            )
        handle, handle_is_async = made, wants_async
    return _as(handle, handle_is_async, is_async)


def _as(
    handle: Callable[[CurrentJob], Any], is_async: bool, wants_async: bool
) -> Callable[[CurrentJob], Any]:
    """Return the handle as one of the wanted kind, as Django does with views."""
    if is_async == wants_async:
        return handle
    if wants_async:
        return sync_to_async(handle, thread_sensitive=True)
    return async_to_sync(handle)

"""An ASGI application that starts a worker with its server and drains it with it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any, Unpack

from relay.worker.embedded.process import StartOptions, astop, start

__all__ = ["with_worker"]

# Servers and frameworks have types of their own for scope, receive and send.
Application = Callable[[Any, Any, Any], Awaitable[None]]


def with_worker(
    application: Application, **options: Unpack[StartOptions]
) -> Application:
    """Return the application with an embedded worker around it.

    It starts at the lifespan's startup and drains at its shutdown. With a server that
    has no lifespan it starts at the first request, and drains at the process's exit.

    Args:
        options: of start().
    """
    started_in = 0

    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        nonlocal started_in
        if scope["type"] == "lifespan":
            started_in = os.getpid()
            await _live(receive, send, options)
            return
        if started_in != os.getpid():
            start(**options)
            started_in = os.getpid()
        await application(scope, receive, send)

    return wrapped


async def _live(receive: Any, send: Any, options: StartOptions) -> None:
    """Answer the lifespan's two messages, which Django's application does not know."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            try:
                start(**options)
            except Exception as error:  # an edge: the server shows it and ends
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
        else:
            await astop()
            await send({"type": "lifespan.shutdown.complete"})
            return

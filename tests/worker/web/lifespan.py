"""python -m tests.worker.web.lifespan FILE [without]: what an ASGI server does.

It serves until FILE is there; without lifespan it makes one request instead.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from django.core.asgi import get_asgi_application

from relay.worker.embedded import with_worker


async def answer(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "http"


get_asgi_application()
application = with_worker(answer, concurrency=2)


async def serve(stop: Path, *, has_lifespan: bool) -> list[str]:
    answers: list[str] = []

    async def send(message: Any) -> None:
        answers.append(message["type"])

    async def receive() -> Any:
        if not answers:
            return {"type": "lifespan.startup"}
        while not stop.exists():
            await asyncio.sleep(0.02)
        return {"type": "lifespan.shutdown"}

    if has_lifespan:
        await application({"type": "lifespan"}, receive, send)
    else:
        await application({"type": "http"}, receive, send)
        answers.append("lifespan.unknown")
        await receive()
    return answers


answers = asyncio.run(serve(Path(sys.argv[1]), has_lifespan=len(sys.argv) == 2))
sys.stderr.write(f"answers: {' '.join(answers)}\n")
sys.stderr.flush()
if "lifespan.shutdown.complete" in answers:
    os._exit(0)  # as uvicorn, whose last act is the signal it was sent

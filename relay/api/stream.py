"""News as they come, as server-sent events: only under ASGI, and if switched on.

A client costs no connection of the database's: one thread hears for all of a process.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, ClassVar, Final
from uuid import UUID

from asgiref.sync import sync_to_async
from django.contrib.auth import get_user
from django.core.handlers.asgi import ASGIRequest
from django.db import Error, connections
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from rest_framework.exceptions import APIException
from rest_framework.request import Request

from relay.api.auth import who_asks
from relay.api.endpoints import endpoint, text
from relay.api.jobs import OneJobView
from relay.api.problems import ProblemError
from relay.conf import get_settings
from relay.engine.listening import listening
from relay.engine.watching import watching
from relay.models import FINAL_STATES, Job

__all__ = ["StreamView"]

# What follows within this comes along. Source: docs/reference/rest.md, "News".
GATHER_SECONDS: Final = 0.25
# Between two looks whether the caller still may, and comments that keep the line open.
BEAT_SECONDS: Final = 15.0
# At once in one process, of all callers and of one: it leaves some to the others.
MOST_CLIENTS: Final = 100
MOST_OF_ONE: Final = 25

_HEADERS: Final = {"X-Accel-Buffering": "no"}  # of a proxy that would hold it back
_TYPE: Final = "text/event-stream"


class _News:
    """What one client is to be told; filled by other threads, emptied by its loop."""

    def __init__(self, queues: frozenset[str] | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._queues = queues
        self._ready: set[str] = set()
        self._is_new = False
        self.may_be_over = False
        self.rung = asyncio.Event()

    def tell(self, queue: str | None) -> None:
        if queue is None or self._queues is None or queue in self._queues:
            self._call(self._note, queue)

    def wake(self) -> None:
        self._call(self._note_end)

    def _call(self, function: Any, *args: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: so is the client
            self._loop.call_soon_threadsafe(function, *args)

    def _note(self, queue: str | None) -> None:
        if queue is None:
            self._is_new = True
        else:
            self._ready.add(queue)
        self.rung.set()

    def _note_end(self) -> None:
        self.may_be_over = True
        self.rung.set()

    def take(self) -> list[bytes]:
        """Return the events that there are, and forget them."""
        self.rung.clear()
        found = [event("listening", {})] if self._is_new else []
        if self._ready:
            found.append(event("ready", {"queues": sorted(self._ready)}))
        self._is_new, self._ready = False, set()
        return found


def event(name: str, document: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(document)}\n\n".encode()


class StreamView(OneJobView):
    """/v1/stream."""

    _open: ClassVar[Counter[str]] = Counter()

    @endpoint(
        "view_job",
        {200: bytes},
        query={
            "queue": text("Only of these queues, between commas."),
            "job": text("Of the end of this job too."),
        },
        codes=("not_found", "too_many_requests"),
        is_for_some=True,
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Tell of queues in which jobs have become ready, and of the end of a job."""
        http = request._request
        if not (get_settings().api.stream and isinstance(http, ASGIRequest)):
            raise ProblemError(
                "not_found",
                "There is no stream here: RELAY['API']['STREAM'] is off, or the server "
                "does not speak ASGI.",
            )
        queues = self.who.queues
        if (named := self.query.get("queue")) is not None:
            queues = frozenset(named.split(","))
            for name in sorted(queues):
                self.who.require_queue(name)
        job = self.query.get("job")
        job_id = None if job is None else self.checked(job)
        if (reason := self._full()) is not None:
            raise ProblemError(
                "too_many_requests", reason, headers={"Retry-After": "10"}
            )
        _give_back()
        if request.method == "HEAD":
            return HttpResponse(content_type=_TYPE)
        events = self._events(http, queues, job_id)
        return StreamingHttpResponse(events, content_type=_TYPE, headers=_HEADERS)

    def _full(self) -> str | None:
        """Return why there is no place for another client; None if there is."""
        if sum(list(StreamView._open.values())) >= MOST_CLIENTS:
            return f"{MOST_CLIENTS} listen to this process already."
        if StreamView._open[self.who.key] >= MOST_OF_ONE:
            return f"{self.actor.name} listens to it {MOST_OF_ONE} times already."
        return None

    async def _events(
        self, http: ASGIRequest, queues: frozenset[str] | None, job_id: UUID | None
    ) -> AsyncIterator[bytes]:
        loop, using = asyncio.get_running_loop(), get_settings().database
        news = _News(queues)
        if self._full() is not None:  # taken by who came at the same time
            yield b"retry: 10000\n\n"
            return
        with ExitStack() as stack:
            stack.enter_context(_place(self.who.key))
            stack.enter_context(listening(news.tell, using=using))
            if job_id is not None:
                stack.enter_context(watching(job_id, news.wake, using=using))
            yield b"retry: 2000\n\n"
            beat_at = loop.time() + BEAT_SECONDS
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.rung.wait(), beat_at - loop.time())
                    await asyncio.sleep(GATHER_SECONDS)
                for each in news.take():
                    yield each
                if job_id is not None and news.may_be_over:
                    news.may_be_over = False
                    state = await sync_to_async(_end_of)(job_id)
                    if state is not None:
                        yield event("ended", {"job": str(job_id), "state": state})
                        return
                if loop.time() >= beat_at:
                    if not await sync_to_async(self._may_go_on)(http):
                        return
                    yield b": still here\n\n"
                    beat_at = loop.time() + BEAT_SECONDS

    def _may_go_on(self, http: ASGIRequest) -> bool:
        """Tell whether who was let in would be let in now, as who they were."""
        again = copy.copy(http)
        try:
            if hasattr(http, "session") and hasattr(http, "user"):
                again.session = type(http.session)(http.session.session_key)
                again.user = get_user(again)
            who = who_asks(Request(again), self.request_id)
        except APIException:
            return False
        except Error:  # nobody can tell now; what is told is hints
            return True
        finally:
            _give_back()
        is_same = who is not None and (who.key, who.queues) == (
            self.who.key,
            self.who.queues,
        )
        return is_same and who is not None and who.actor.may("view_job")


@contextmanager
def _place(caller: str) -> Iterator[None]:
    """Count a client for as long as it listens; all of them in the loop's thread."""
    StreamView._open[caller] += 1
    try:
        yield
    finally:
        StreamView._open[caller] -= 1
        if not StreamView._open[caller]:
            del StreamView._open[caller]


def _end_of(job_id: UUID) -> str | None:
    """Return the state in which a job has ended, "gone", or None if it has not."""
    try:
        rows = Job.objects.using(get_settings().database).filter(pk=job_id)
        state = rows.values_list("state", flat=True).first()
    except Error:  # it is looked for again
        return None
    finally:
        _give_back()
    if state is None:
        return "gone"
    return state if state in FINAL_STATES else None


def _give_back() -> None:
    """Close this thread's connections: the request lasts, and needs none."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()

"""A relay of bytes before PostgreSQL that does them every harm a network can do.

It knows so much of the protocol as to tell where a message ends, and which answer says
that something was committed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Literal, Self

__all__ = ["Direction", "FaultProxy"]

Direction = Literal["to server", "to client"]

CHUNK_BYTES: Final = 65_536
# What a client may ask before it says who it is; refused, it goes on in the clear.
# Source: PostgreSQL 18, "Message Formats", SSLRequest and GSSENCRequest.
_ENCRYPTION: Final = (80877103, 80877104)
_WRITES: Final = (b"INSERT", b"UPDATE", b"DELETE", b"MERGE", b"COPY")

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class FaultProxy:
    """Listens on a port of this machine, in a thread of its own.

    Args:
        socket_path: the server's socket.

    Attributes:
        commits_cut: how many sessions were cut between a commit and its answer.
    """

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxy")
        self._sessions: set[_Session] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.flows = asyncio.Event()
        self.delay_seconds = 0.0
        self.dropped: Direction | None = None
        self.commits_to_cut = 0
        self.commits_cut = 0

    def __enter__(self) -> Self:
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._accept, "127.0.0.1", 0)
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self.flows.set()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- faults -----------------------------------------------------------------------

    def delay(self, seconds: float) -> None:
        """Pass on each chunk so much later, in both directions."""
        self.delay_seconds = seconds

    def freeze(self) -> None:
        """Pass on nothing, lose nothing; new connections wait as well."""
        self._call(self.flows.clear)

    def drop(self, direction: Direction) -> None:
        """Lose all that goes in one direction."""
        self.dropped = direction

    def heal(self) -> None:
        """Pass on everything again; who has lost bytes meanwhile is cut."""
        self.delay_seconds, self.dropped = 0.0, None
        self._call(self.flows.set)
        self._call(lambda: self._close(lambda session: session.has_gap))

    def cut(self) -> None:
        """Close every connection."""
        self._call(lambda: self._close(lambda session: True))

    def tear(self) -> None:
        """Cut every connection in the middle of its next answer."""
        self._call(self._tear)

    def cut_commits(self, count: int) -> None:
        """Cut the next sessions in which something is committed, before its answer."""
        self.commits_to_cut = count

    def _call(self, act: Callable[[], object]) -> None:
        """Do it in the proxy's thread, and wait until it is done."""
        done = threading.Event()

        def do() -> None:
            act()
            done.set()

        self._loop.call_soon_threadsafe(do)
        done.wait()

    def _close(self, is_meant: Callable[[_Session], bool]) -> None:
        for session in [each for each in self._sessions if is_meant(each)]:
            session.close()

    def _tear(self) -> None:
        for session in self._sessions:
            session.is_torn_next = True

    # --- sessions ---------------------------------------------------------------------

    def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = self._loop.create_task(self._serve((reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: _Streams) -> None:
        session = None
        with suppress(OSError, asyncio.IncompleteReadError):
            await self.flows.wait()
            first = await _first_message(client)
            server = await asyncio.open_unix_connection(self._socket_path)
            session = _Session(self, client, server)
            self._sessions.add(session)
            try:
                await session.run(first)
            finally:
                self._sessions.discard(session)
                session.close()
        client[1].close()


class _Session:
    """One client and its connection to the server."""

    def __init__(self, proxy: FaultProxy, client: _Streams, server: _Streams) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self.has_gap = False
        self.is_torn_next = False

    def close(self) -> None:
        self._client[1].close()
        self._server[1].close()

    async def run(self, first: bytes) -> None:
        self._server[1].write(first)
        ways: list[Coroutine[Any, Any, None]] = [self._ask(), self._answer()]
        tasks = [asyncio.ensure_future(way) for way in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self) -> None:
        reader, writer = self._client[0], self._server[1]
        while data := await reader.read(CHUNK_BYTES):
            if await self._passes("to server"):
                writer.write(data)
                await writer.drain()

    async def _answer(self) -> None:
        reader, writer = self._server[0], self._client[1]
        unfinished, held = bytearray(), bytearray()
        while data := await reader.read(CHUNK_BYTES):
            unfinished += data
            passed = bytearray()
            for message in _messages(unfinished):
                # From the word that something was written up to the end of the cycle.
                if held or (self._proxy.commits_to_cut and _is_written(message)):
                    held += message
                else:
                    passed += message
                if held and message.startswith(b"Z"):
                    if self._is_cut(message):
                        return
                    passed += held
                    held.clear()
            if not passed or not await self._passes("to client"):
                continue
            if self.is_torn_next:
                writer.write(passed[: max(1, len(passed) // 2)])
                return
            writer.write(passed)
            await writer.drain()

    def _is_cut(self, ready_for_query: bytes) -> bool:
        """Tell whether the session is to be cut here: it is in no transaction now."""
        if self._proxy.commits_to_cut and ready_for_query.endswith(b"I"):
            self._proxy.commits_to_cut -= 1
            self._proxy.commits_cut += 1
            return True
        return False

    async def _passes(self, direction: Direction) -> bool:
        proxy = self._proxy
        if proxy.delay_seconds:
            await asyncio.sleep(proxy.delay_seconds)
        await proxy.flows.wait()
        if proxy.dropped == direction:
            self.has_gap = True
            return False
        return True


async def _first_message(client: _Streams) -> bytes:
    reader, writer = client
    while True:
        head = await reader.readexactly(8)
        length, code = int.from_bytes(head[:4]), int.from_bytes(head[4:])
        if code not in _ENCRYPTION:
            return head + await reader.readexactly(length - 8)
        writer.write(b"N")


def _messages(unfinished: bytearray) -> Iterator[bytes]:
    """Take the whole messages from the front of the bytes."""
    while len(unfinished) >= 5:
        end = 1 + int.from_bytes(unfinished[1:5])
        if len(unfinished) < end:
            return
        yield bytes(unfinished[:end])
        del unfinished[:end]


def _is_written(message: bytes) -> bool:
    """Tell whether this is the CommandComplete of a COMMIT or of a write."""
    if not message.startswith(b"C"):
        return False
    tag = message[5:].rstrip(b"\0")
    if tag == b"COMMIT":
        return True
    return tag.startswith(_WRITES) and not tag.endswith(b" 0")

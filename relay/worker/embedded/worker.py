"""What watches over an embedded worker from a thread of its web process."""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import threading
import time
from contextlib import suppress
from datetime import timedelta
from importlib import metadata
from typing import Any, Final
from uuid import UUID

from relay.conf import get_settings
from relay.ids import uuid7
from relay.worker.bell import Bell
from relay.worker.embedded.handle import Helper, Order
from relay.worker.embedded.loop import EmbeddedLoop
from relay.worker.fence import fence_margin
from relay.worker.loop import CAPACITY
from relay.worker.messages import Channel, datagrams
from relay.worker.options import LoopOptions
from relay.worker.shared import SharedState
from relay.worker.stuck import in_hand

__all__ = ["EmbeddedWorker"]

logger = logging.getLogger("relay.worker")

LOOK_SECONDS: Final = 0.25
# How long handlers that were interrupted may take to end.
INTERRUPT_SECONDS: Final = 2.0
# For the helper to say in the database that this worker has ended.
STOP_SECONDS: Final = 4.5
# A loop that ends by an error is started again after this long.
RESTART_SECONDS: Final = 5.0


class EmbeddedWorker:
    """The worker of a web process: threads here, and a helper process beside it.

    start() makes it. The helper registers it, renews its lease and does its duties; if
    it dies another takes its place. Handlers are interrupted before the lease may have
    run out; those that cannot be, in the middle of a call into C, go on.
    """

    def __init__(
        self, options: LoopOptions, *, grace: timedelta, name: str | None
    ) -> None:
        self._options = options
        self._grace = grace
        self._asked_name = name
        self._name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._margin = fence_margin(get_settings().lease).total_seconds()
        self._memory = _memory_file()
        os.ftruncate(self._memory, SharedState.size_bytes(1, CAPACITY))
        self._shared = SharedState(1, CAPACITY, file=self._memory)
        self._table = self._shared.tables[0]
        self._table.reserve_seconds = self._margin
        self._control, self._waker = datagrams()
        # Both ends stay open here: a new helper gets what the old one had not read.
        near, self._far = datagrams()
        self._near = near
        self._channel = Channel(near)
        self._alive_reader, self._alive_writer = os.pipe()
        self._bell = Bell()
        self._are_files_closed = False
        self._helper = Helper(self._order(), self._shared)
        self._loop: EmbeddedLoop | None = None
        self._loop_thread: threading.Thread | None = None
        self._loop_at = 0.0
        self._is_abandoned = False
        self._unsettled: dict[UUID, dict[str, Any]] = {}
        self._is_asked_to_stop = False
        self._drain_by: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="relay-embedded", daemon=True
        )

    def _order(self) -> Order:
        return Order(
            name=self._name,
            supervisor=str(uuid7()),
            queues=list(self._options.queues),
            concurrency=self._options.concurrency,
            version=metadata.version("django-relay"),
            web_pid=os.getpid(),
            memory=self._memory,
            channel=self._far.fileno(),
            waker=self._waker.fileno(),
            alive=self._alive_reader,
        )

    # --- what others call ------------------------------------------------------------

    def start(self) -> None:
        """Start it; once."""
        self._thread.start()

    def stop(self) -> bool:
        """Drain: claim nothing more, let running jobs go on for the grace.

        Those that go on are interrupted then. Two seconds later this returns: a job
        that could not be stopped keeps its lease until it ends, or until the process
        does; then the helper hands it back uncharged.

        Returns:
            whether all jobs have ended, or were handed back.
        """
        self._is_asked_to_stop = True
        self._bell.ring()
        seconds = self._grace.total_seconds() + INTERRUPT_SECONDS + STOP_SECONDS
        until = time.monotonic() + seconds
        while not self._ended.wait(
            min(LOOK_SECONDS, max(0.0, until - time.monotonic()))
        ):
            if time.monotonic() >= until or self._is_stuck():
                logger.warning(
                    "jobs go on past the grace: they are handed back once this process "
                    "has ended",
                    extra={"event": "worker.stuck"},
                )
                return False
        return True

    @property
    def has_ended(self) -> bool:
        """Whether it was stopped, and all of its jobs have ended."""
        return self._ended.is_set()

    @property
    def worker_id(self) -> UUID | None:
        """The id of its row, which is new after each lost lease; None before any."""
        loop = self._loop
        return None if loop is None else loop.worker_id

    def is_like(
        self, options: LoopOptions, *, grace: timedelta, name: str | None
    ) -> bool:
        """Tell whether it was made of the same arguments."""
        mine = (self._options, list(self._options.queues), self._grace)
        return (*mine, self._asked_name) == (
            options,
            list(options.queues),
            grace,
            name,
        )

    def disown(self) -> None:
        """Close, in a process forked from this one, what only this one may use."""
        self._close_files()
        if self._loop is not None:
            self._loop.disown()

    # --- its thread ------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                if self._look():
                    break
            except Exception:  # an edge: without this thread nobody fences the jobs
                logger.exception(
                    "embedded worker: one look failed",
                    extra={"event": "worker.look_failed"},
                )
            self._bell.expect()
            self._bell.wait([self._channel], LOOK_SECONDS)
        self._end()

    def _look(self) -> bool:
        """See to everything once; True if it is over."""
        if self._helper.see_to():
            self._brief()
        self._read_helper()
        self._fence()
        self._drain()
        self._see_to_loop()
        self._channel.flush()
        return self._drain_by is not None and self._loop is None

    def _brief(self) -> None:
        """Tell a new helper what the one before it knew: all may be repeated."""
        self._channel.forget()
        self._introduce()
        for message in self._unsettled.values():
            self._channel.send(**message)
        if self._drain_by is not None:
            self._channel.send(kind="drain")

    def _introduce(self) -> None:
        if self._loop is not None:
            self._channel.send(
                kind="child",
                index=0,
                worker=str(self._loop.worker_id),
                pid=os.getpid(),
            )

    def _read_helper(self) -> None:
        for message in self._channel.receive():
            worker_id = UUID(message["worker"])
            if message["kind"] == "settled":
                self._unsettled.pop(worker_id, None)
            elif message["kind"] == "shutdown":
                self._is_asked_to_stop = True
            elif message["kind"] == "lost" and worker_id == self.worker_id:
                # Others hold its jobs. Whatever it still writes is fenced.
                logger.error(
                    "the lease was lost: the jobs that run are interrupted",
                    extra={"event": "worker.lease_lost", "worker_id": str(worker_id)},
                )
                self._is_abandoned = True
                if self._loop is not None:
                    self._loop.drain()

    def _fence(self) -> None:
        """Interrupt what runs before the lease may have run out, or if it is lost."""
        if self._loop is None:
            return
        is_safe = time.monotonic() < self._shared.lease_safe_until - self._margin
        if self._is_abandoned or (self._table.is_registered and not is_safe):
            self._loop.interrupt()

    def _drain(self) -> None:
        now = time.monotonic()
        if self._is_asked_to_stop and self._drain_by is None:
            self._drain_by = now + self._grace.total_seconds()
            entries = list(self._table.entries())
            logger.info(
                "draining",
                extra={
                    "event": "worker.draining",
                    "worker": self._name,
                    "inflight": sum(not each.is_over for each in entries),
                },
            )
            self._channel.send(kind="drain")
        if self._drain_by is None or self._loop is None:
            return
        self._loop.drain()
        if now >= self._drain_by:
            self._loop.interrupt()

    def _is_stuck(self) -> bool:
        """Whether the handlers that run were interrupted and go on all the same."""
        loop, by = self._loop, self._drain_by
        late = by is not None and time.monotonic() >= by + INTERRUPT_SECONDS
        return late and loop is not None and loop.is_running

    # --- the loop's life -------------------------------------------------------------

    def _see_to_loop(self) -> None:
        if self._loop is None:
            if self._drain_by is None and time.monotonic() >= self._loop_at:
                self._start_loop()
            return
        if self._loop_thread is not None and self._loop_thread.is_alive():
            return
        # If the loop failed nobody takes its jobs' ends: none may start any more.
        self._loop.forget_waiting()
        if self._loop.is_running:
            self._loop.interrupt()
            return
        # Let go of first: a fork must not close the numbers once more.
        ended, self._loop, self._loop_thread = self._loop, None, None
        self._is_abandoned = False
        self._settle(ended)
        ended.close()

    def _start_loop(self) -> None:
        worker_id = uuid7()
        self._table.reset(worker_id)
        with suppress(BlockingIOError):
            while True:
                self._control.recv(65536)  # what was meant for the loop before
        self._loop = EmbeddedLoop(
            worker_id, self._options, self._table, self._control, self._waker
        )
        self._loop_thread = threading.Thread(
            target=self._run_loop, args=(self._loop,), name="relay-loop", daemon=True
        )
        self._loop_thread.start()
        self._introduce()
        logger.info(
            "started",
            extra={
                "event": "worker.started",
                "worker": self._name,
                "queues": list(self._options.queues),
                "concurrency": self._options.concurrency,
            },
        )

    def _run_loop(self, loop: EmbeddedLoop) -> None:
        try:
            loop.run()
        except BaseException:  # an edge: the thread ends here, whatever happened
            self._loop_at = time.monotonic() + RESTART_SECONDS
            logger.exception("the loop failed", extra={"event": "worker.failed"})
        finally:
            self._bell.ring()

    def _settle(self, loop: EmbeddedLoop) -> None:
        """Have the helper end the worker's row; what a failed loop holds is charged."""
        message: dict[str, Any] = {
            "kind": "dead",
            "worker": str(loop.worker_id),
            **in_hand(self._table),
            "is_charged": True,
            "reason": "the loop of the embedded worker failed",
        }
        self._unsettled[loop.worker_id] = message
        self._channel.send(**message)

    def _end(self) -> None:
        """Let the helper settle and end."""
        deadline = time.monotonic() + STOP_SECONDS
        self._channel.send(kind="stop")
        while time.monotonic() < deadline and not self._helper.has_ended():
            self._channel.flush()
            self._bell.wait([self._channel], LOOK_SECONDS / 10)
            self._read_helper()
        self._helper.kill()
        if self._unsettled:
            logger.warning(
                "the database could not be told that this worker ended",
                extra={"event": "worker.untold"},
            )
        self._close_files()
        waited_s = None
        if self._drain_by is not None:
            began_at = self._drain_by - self._grace.total_seconds()
            waited_s = round(time.monotonic() - began_at, 6)
        logger.info(
            "stopped",
            extra={
                "event": "worker.stopped",
                "worker": self._name,
                "waited_s": waited_s,
            },
        )
        self._ended.set()

    def _close_files(self) -> None:
        """Close all; once, as others get the numbers, here or after a fork."""
        if self._are_files_closed:
            return
        self._are_files_closed = True
        for end in (self._control, self._waker, self._near, self._far):
            end.close()
        for file in (self._memory, self._alive_reader, self._alive_writer):
            os.close(file)
        self._bell.close()


def _memory_file() -> int:
    """Return a descriptor of a file in memory, or of one without a name on a disk."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("relay")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())

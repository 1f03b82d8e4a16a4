"""The loop of an embedded worker: a thread beside those of the web server."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from uuid import UUID

import psycopg

from relay import counts
from relay.worker.apart import Nursery, is_isolation_needed
from relay.worker.loop import Loop
from relay.worker.options import LoopOptions
from relay.worker.rollup import meter
from relay.worker.shared import SlotTable
from relay.worker.tally import Told

__all__ = ["EmbeddedLoop"]


class EmbeddedLoop(Loop):
    """A loop that other threads of its process drain and interrupt.

    Args:
        waker: the other end of control.
    """

    def __init__(
        self,
        worker_id: UUID,
        options: LoopOptions,
        table: SlotTable,
        control: socket.socket,
        waker: socket.socket,
    ) -> None:
        nursery = Nursery.spawn(options.concurrency) if is_isolation_needed() else None
        super().__init__(worker_id, options, table, control, None, nursery)
        self.worker_id = worker_id
        self._waker = waker
        # The web process shows the metrics, and not its helper.
        self._hands.tally.on_told = self._meter

    def _meter(self, told: Told) -> None:
        meter(told)
        for queue in told.running if told.goes_on else self._options.queues:
            counts.put("relay_jobs_running", queue, value=told.running[queue])

    @property
    def is_running(self) -> bool:
        """Whether a handler runs or may begin, be it after run() has failed."""
        return self._pool.is_running

    def drain(self, *_: object) -> None:
        """Stop claiming and hand back what has not started. From any thread."""
        super().drain()
        with suppress(OSError):  # it is full of what wakes the loop as well
            self._waker.send(b"")

    def forget_waiting(self) -> None:
        """Let nothing start any more, once run() has failed."""
        self._pool.withdraw()

    def interrupt(self) -> None:
        """Make the handlers that run stop, and hand their jobs back; may be repeated.

        From any thread: this one may be waiting for the database.
        """
        self._pool.interrupt_all()

    def close(self) -> None:
        """End what run() leaves or, where it failed, left; no handler runs any more."""
        self._hands.announcer.close()
        if self._nursery is not None:
            self._nursery.close()
        self._pool.close()
        self._link.close()
        self._bell.close()

    def disown(self) -> None:
        """Close, in a process forked from this one, what only the other may use."""
        self._bell.close()
        if self._nursery is not None:
            self._nursery.disown()
        if (connection := self._link.connection) is not None:
            with suppress(psycopg.Error, OSError):
                # Not close(): that would end the session that the other one uses.
                os.close(connection.pgconn.socket)
